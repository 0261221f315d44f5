"""Figures of what the loop of progressive fusion does: by depth, by joining stage, and pass by pass.

They draw the tables of `consilience.evaluation.loop_diagnostics`: mean and standard deviation over seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.core.errors import InputError
from consilience.report.drawing import BACKGROUND, Drawing, Look, looks_of
from consilience.report.plots import Dots, Line, plot_dots, plot_lines, say_bands
from consilience.report.wording import Scale, axis_label, capital, is_percentage, say_metric

if TYPE_CHECKING:
    import polars

# Names of metrics that are not registered.
_WORDS = {"r2": "variance explained"}


def draw_depth(table: polars.DataFrame, name: str = "depth") -> list[Drawing]:
    """`depth_curve` as two figures: performance by number of passes, and time relative to the fewest of them.

    Tables of several methods may be put one below the other: each becomes a line.
    """
    metric, factor = _metric_of(table, "steps")
    words = _say(metric)
    methods = table["method"].unique(maintain_order=True).to_list()
    lines = [
        _line(table.filter(table["method"] == method), "value", "steps", method, look, factor)
        for method, look in looks_of(methods).items()
    ]
    performance = Drawing(
        f"{name}-{metric}",
        f"{capital(words)} on test samples against the number of passes through encoders and fusion."
        + say_bands(lines),
        f"Line chart of {words} by number of passes. {_describe(lines, Scale.of(metric))}",
        plot_lines(lines, "passes", axis_label(words, metric), limits=_limits(metric)),
    )
    return [performance, _draw_time(table, methods, name)]


def _draw_time(table: polars.DataFrame, methods: list[str], name: str) -> Drawing:
    fewest = table["steps"].min()
    costs = {"training": "epoch_seconds", "prediction": "prediction_seconds"}
    # Seed by seed: what else the machine did while one seed ran weighs on all of that seed's times.
    first = table.filter(table["steps"] == fewest).select("method", "seed", *costs.values())
    paired = table.join(first, on=["method", "seed"], suffix="_first")
    relative = paired.with_columns(
        (paired[column] / paired[f"{column}_first"]).alias(column) for column in costs.values()
    )
    labels = {
        what if len(methods) == 1 else f"{method}, {what}": (method, column)
        for method in methods
        for what, column in costs.items()
    }
    looks = looks_of(list(labels))
    lines = [
        _line(relative.filter(relative["method"] == method), column, "steps", label, looks[label], 1.0)
        for label, (method, column) in labels.items()
    ]
    steps = lines[0].levels
    proportional = Line("in proportion", BACKGROUND, steps, [step / steps[0] for step in steps])
    return Drawing(
        f"{name}-time",
        f"Time of one epoch of training and of predicting the test samples, relative to {_passes(fewest)}. The faint "
        "line is what time in proportion to the passes would be." + say_bands(lines),
        f"Line chart of relative time by number of passes. {_describe(lines, Scale(decimals=2))}",
        plot_lines([*lines, proportional], "passes", f"time, {_passes(fewest)} = 1", limits=(0.0, None)),
    )


def draw_joining(table: polars.DataFrame, name: str = "joining") -> Drawing:
    """`joining_curve` of one method as dots: a row for each stage that the feedback joined at, input to end."""
    metric, factor = _metric_of(table, "stage")
    if table["method"].n_unique() > 1:
        raise InputError(f"one figure shows one method's stages, the table holds {', '.join(table['method'].unique())}")
    words, look = _say(metric), looks_of([""])[""]
    stages = table.select("position", "stage").unique().sort("position")
    rows = [
        Dots(stage, look, [factor * value for value in table.filter(table["position"] == position)["value"]])
        for position, stage in stages.iter_rows()
    ]
    scale = Scale.of(metric)
    means = "; ".join(f"{row.label} {row.mean:.{scale.decimals}f}" for row in rows)
    return Drawing(
        f"{name}-{metric}",
        f"{capital(words)} on test samples by the stage that receives the feedback, the encoders' first at the top: "
        "every seed a dot, their mean a mark.",
        f"Dot plot of {words} by joining stage. Means: {means}.",
        plot_dots(rows, axis_label(words, metric)),
    )


def draw_probes(table: polars.DataFrame, name: str = "probes") -> Drawing:
    """`probe_steps` as lines: what a linear probe reads in each modality's features, pass by pass."""
    metric, factor = _metric_of(table, "modality")
    modalities = table["modality"].unique(maintain_order=True).to_list()
    lines = [
        _line(table.filter(table["modality"] == modality), "value", "step", modality, look, factor)
        for modality, look in looks_of(modalities).items()
    ]
    words = f"{_say(metric)} of a linear probe"
    return Drawing(
        f"{name}-{metric}",
        f"{capital(words)} trained on each modality's features after every pass, on test samples. Where it grows, the "
        "modality's encoder has come to use what the others know." + say_bands(lines),
        f"Line chart of the {words} by pass. {_describe(lines, Scale.of(metric))}",
        plot_lines(lines, "pass", axis_label(words, metric), limits=_limits(metric)),
    )


def _metric_of(table: polars.DataFrame, key: str) -> tuple[str, float]:
    """The metric of a table, and what its values are multiplied with to be shown."""
    if key not in table.columns or not len(table):
        raise InputError(f"there is nothing to draw: the table has {len(table)} rows of {', '.join(table.columns)}")
    metrics = table["metric"].unique().to_list()
    if len(metrics) > 1:
        raise InputError(f"one figure shows one metric, the table holds {', '.join(sorted(metrics))}")
    return metrics[0], Scale.of(metrics[0]).factor


def _line(table: polars.DataFrame, column: str, over: str, label: str, look: Look, factor: float) -> Line:
    import polars

    found = table.group_by(over).agg(mean=polars.col(column).mean(), std=polars.col(column).std()).sort(over)
    spreads = None if found["std"].null_count() else [factor * std for std in found["std"]]
    return Line(label, look, [float(step) for step in found[over]], [factor * mean for mean in found["mean"]], spreads)


def _say(metric: str) -> str:
    return _WORDS.get(metric, say_metric(metric))


def _limits(metric: str) -> tuple[float | None, float | None]:
    return (0.0, 100.0) if is_percentage(metric) else (None, None)


def _describe(lines: list[Line], scale: Scale) -> str:
    """What the lines show, in words."""
    sentences = []
    for line in lines:
        points = (f"{step:g} → {mean:.{scale.decimals}f}" for step, mean in zip(line.levels, line.means))
        sentences.append(f"{capital(line.label)}: {', '.join(points)}.")
    return " ".join(sentences)


def _passes(count: object) -> str:
    return "one pass" if count == 1 else f"{count} passes"
