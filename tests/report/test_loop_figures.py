import polars as pl
import pytest

from consilience.core.errors import InputError
from consilience.report.loop_figures import draw_depth, draw_joining, draw_probes

DEPTH = pl.DataFrame(
    {
        "method": ["concat"] * 4,
        "steps": [1, 2, 1, 2],
        "seed": [0, 0, 1, 1],
        "metric": ["accuracy"] * 4,
        "value": [0.70, 0.80, 0.74, 0.82],
        "epoch_seconds": [1.0, 2.2, 2.0, 3.6],
        "prediction_seconds": [0.1, 0.15, 0.1, 0.15],
        "parameters": [10, 20, 10, 20],
    }
)
JOINING = pl.DataFrame(
    {
        "method": ["concat"] * 4,
        "position": [0, 1, 0, 1],
        "stage": ["layer1", "end", "layer1", "end"],
        "seed": [0, 0, 1, 1],
        "metric": ["mse"] * 4,
        "value": [0.5, 0.25, 0.3, 0.35],
    }
)
PROBES = pl.DataFrame(
    {
        "modality": ["image", "sound", "image", "sound"],
        "step": [1, 1, 2, 2],
        "metric": ["r2"] * 4,
        "value": [0.1, 0.2, 0.4, 0.5],
    }
)


def series(drawing):
    (axes,) = drawing.figure.axes
    return [
        (line.get_xdata().tolist(), pytest.approx(line.get_ydata().tolist()))
        for line in axes.lines
        if line.get_transform() == axes.transData
    ]


def test_depth_is_drawn_as_means_and_as_time_relative_to_one_pass():
    performance, cost = draw_depth(DEPTH)
    assert ([1, 2], [72, 81]) in series(performance)
    assert "Concat: 1 → 72.0, 2 → 81.0." in performance.alt
    assert "one standard deviation" in performance.caption
    for line in ([1.0, 2.0], [1.0, 1.5]):
        assert ([1, 2], line) in series(cost)
    assert "Training: 1 → 1.00, 2 → 2.00." in cost.alt
    assert "relative to one pass" in cost.caption


def test_several_methods_are_several_lines():
    both = pl.concat([DEPTH, DEPTH.with_columns(method=pl.lit("align"), value=pl.col("value") - 0.1)])
    performance, cost = draw_depth(both)
    assert ([1, 2], [62, 71]) in series(performance)
    assert "Align, prediction: 1 → 1.00, 2 → 1.50." in cost.alt
    with pytest.raises(InputError, match="one method"):
        draw_joining(JOINING.with_columns(method=pl.Series(["a", "a", "b", "b"])))


def test_joining_stages_are_drawn_in_their_order():
    drawing = draw_joining(JOINING)
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["layer1", "end"]
    assert "layer1 0.400; end 0.300" in drawing.alt


def test_probes_are_a_line_for_each_modality():
    drawing = draw_probes(PROBES)
    assert ([1, 2], [0.1, 0.4]) in series(drawing)
    assert "Image: 1 → 0.100, 2 → 0.400. Sound: 1 → 0.200, 2 → 0.500." in drawing.alt
    assert "Bands" not in drawing.caption
    assert drawing.png()[:4] == b"\x89PNG"


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(InputError, match="nothing to draw: the table has 4 rows of method, position"):
        draw_depth(JOINING)
    both = pl.concat([PROBES, PROBES.with_columns(metric=pl.lit("accuracy"))])
    with pytest.raises(InputError, match="accuracy, r2"):
        draw_probes(both)
