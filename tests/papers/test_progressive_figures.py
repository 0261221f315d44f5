"""Figures 6, 10a and 10b of Progressive Fusion: which loops are trained, the page, and what it concludes."""

import numpy as np
import pytest

from consilience.comparison.store import Result
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.splits import draw_split
from paper_scripts import script

figures = script("progressive-figures")
TINY = {
    "build": {"side": 28},
    "training": {"epochs": 1, "batch_size": 20, "lr": 0.05, "optimizer": "sgd"},
    "seeds": 2,
    "probed": ["lowrank"],
    "probed_steps": 2,
    "probe_samples": 30,
    "joined": "concat",
    "deep": ["lowrank"],
    "depths": [1, 2],
    "time_rounds": 1,
}


@pytest.fixture
def pairs(monkeypatch):
    random = np.random.default_rng(0)
    y = np.arange(70) % 3
    values = {name: random.normal(y[:, None, None, None], 2, size=(70, 1, 28, 28)) for name in ("image", "audio")}
    data = DataSet("av-mnist", Samples.of(values, y), "classification", *draw_split(y, "classification"))
    monkeypatch.setattr(figures, "load_pairs", lambda build: data)


def test_a_loop_of_two_figures_is_trained_once():
    timed, *trained = figures.cells_of(TINY)
    probed, _, deep = figures.loops_of(TINY)
    assert "timed" in timed
    assert [place["image"] for place in figures.places_of(TINY)] == ["conv1", "conv2", "conv3", "conv4", "end"]
    assert len(trained) == 2 * (1 + 5 + 1)  # probed, at five places, and one pass; two passes are probed already
    assert deep[1] == probed[0]
    assert len(figures.places_of(figures.FULL)) == 7


def test_the_figures_from_the_first_training_to_the_page(pairs, tmp_path):
    found = figures.run(settings=TINY, out=tmp_path / "run", verbose=0)
    probes, stages, depths = (section.tables[0] for section in found.document.sections[:3])
    assert [row[0] for row in probes.rows] == ["LFN, image", "LFN, audio"]
    assert [row[0] for row in stages.rows] == ["conv1", "conv2", "conv3", "conv4", "end"]
    assert [row[0] for row in depths.rows] == ["LFN, one pass", "LFN, 2 passes"]
    assert depths.rows[0][2:] == ("1.00", "1.00")
    assert len(found.document.sections[0].figures) == 1
    assert found.page.is_file()


def test_seeds_side_by_side_have_every_figure(pairs):
    [loop], _, _ = figures.loops_of(TINY)
    cells = [{**loop, "seed": seed} for seed in (0, 1)]
    assert len({figures.group_of(cell) for cell in figures.cells_of(TINY)}) == 1 + 7  # timing has no group
    assert figures.group_of(cells[0]) == figures.group_of(cells[1])
    together = figures.measure_seeds(cells, TINY)
    alone = figures.measure(cells[0], TINY)
    assert [result.about.keys() for result in together] == [alone.about.keys()] * 2
    assert together[0].about["parameters"] == alone.about["parameters"]
    assert len(together[1].about["probes"]) == len(alone.about["probes"]) == 4


def invented(cell):
    """Results that a formula gives: every pass adds one point to the image, the third stage is best on validation."""
    if "timed" in cell:
        return Result({"times": {str(steps): {"training": 2.0 * steps, "prediction": 0.5 * steps} for steps in (1, 2)}})
    loop = {name: value for name, value in cell.items() if name != "seed"}
    joined = figures.loops_of(TINY)[1]
    place = joined.index(loop) if loop in joined else 0
    rows = [
        {"modality": name, "step": step, "metric": "accuracy", "value": 0.5 + 0.01 * step * (name == "image")}
        for step in (1, 2)
        for name in ("image", "audio")
    ]
    return Result(
        {
            "value": 0.7 + 0.01 * place + 0.002 * cell["seed"],
            "validation": 0.6 - 0.01 * abs(place - 2),
            "parameters": 1000,
            "device": "cpu",
            "sizes": {"train": 10},
            "probes": rows if cell["probed"] else [],
        }
    )


def test_the_answer_says_what_was_found():
    cells = figures.cells_of(TINY)
    document = figures.describe(TINY, cells, [invented(cell) for cell in cells])
    probed, joined, deep = document.answer
    assert "LFN image +1.0 ± 0.0; LFN audio 0.0 ± 0.0" in probed
    assert "between 70.1 and 74.1 %" in joined
    assert "Validation pairs choose conv3, which has 72.1 %" in joined
    assert "2 passes take 2.00 times as long to train and 2.00 times as long to predict" in deep
