"""Figures of progressive fusion on AV-MNIST, without any files."""

import numpy as np
import pytest

from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.progressive_figures import cells as figures
from consilience.comparison.experiments.progressive_figures.account import gains_by_pass, give_account, probe_table
from consilience.comparison.store import Result, Store
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.splits import draw_split

TINY = figures.Protocol(
    build={"side": 28},
    training={"epochs": 1, "batch_size": 20, "lr": 0.05, "optimizer": "sgd"},
    seeds=2,
    probed=("lowrank",),
    probed_steps=2,
    probe_samples=30,
    deep=("lowrank",),
    depths=(1, 2),
    time_rounds=1,
)


@pytest.fixture
def pairs(monkeypatch):
    random = np.random.default_rng(0)
    y = np.arange(70) % 3
    values = {name: random.normal(y[:, None, None, None], 2, size=(70, 1, 28, 28)) for name in ("image", "audio")}
    data = DataSet("av-mnist", Samples.of(values, y), "classification", *draw_split(y, "classification"))
    monkeypatch.setattr(figures, "_load", lambda build: data)


def test_a_loop_of_two_figures_is_trained_once():
    timed, *trained = TINY.cells()
    loops = dict.fromkeys(cell.loop for cell in trained)
    assert timed.loop is None
    assert [place["image"] for place in TINY.places()] == ["conv1", "conv2", "conv3", "conv4", "end"]
    assert len(loops) == 1 + 5 + 1  # probed, joining at five places, and one pass; two passes are probed already
    assert TINY.deepening()[1] == TINY.probing()[0]
    assert len({cell.key for cell in TINY.cells()}) == 1 + 2 * len(loops)
    assert len(figures.FULL.places()) == 7


def test_the_figures_from_the_first_training_to_the_page(pairs, tmp_path):
    store = Store(tmp_path / "run")
    store.write_plan({"asked": TINY.asked(), "jobs": []})
    few = [cell for cell in TINY.cells() if cell.loop == TINY.probing()[0]]
    figures.measure_on_gpu(few, TINY, store)  # wherever it runs
    found = find_experiment("progressive-figures").follow(TINY, tmp_path / "run", verbose=0)
    probes, stages, depths = (section.tables[0] for section in found.account.sections[:3])
    assert [row[0] for row in probes.rows] == ["LFN, image", "LFN, audio"]
    assert [row[0] for row in stages.rows] == ["conv1", "conv2", "conv3", "conv4", "end"]
    assert [row[0] for row in depths.rows] == ["LFN, one pass", "LFN, 2 passes"]
    assert depths.rows[0][2:] == ("1.00", "1.00")
    assert len(found.account.sections[0].figures) == 1
    assert found.page.is_file()


def invented(cell):
    """Results that a formula gives: every pass adds one point to the image, the third stage is best on validation."""
    if cell.loop is None:
        return Result({"times": {str(steps): {"training": 2.0 * steps, "prediction": 0.5 * steps} for steps in (1, 2)}})
    place = next((place for place, loop in enumerate(TINY.joining()) if loop == cell.loop), 0)
    rows = [
        {"modality": name, "step": step, "metric": "accuracy", "value": 0.5 + 0.01 * step * (name == "image")}
        for step in (1, 2)
        for name in ("image", "audio")
    ]
    return Result(
        {
            "value": 0.7 + 0.01 * place + 0.002 * cell.seed,
            "validation": 0.6 - 0.01 * abs(place - 2),
            "parameters": 1000,
            "device": "cpu",
            "sizes": {"train": 10},
            "probes": rows if cell.loop.probed else [],
        }
    )


def test_the_answer_says_what_was_found():
    results = {cell.key: invented(cell) for cell in TINY.cells()}
    account = give_account(find_experiment("progressive-figures"), TINY, results)
    probed, joined, deep = account.answer
    assert "LFN image +1.0 ± 0.0; LFN audio 0.0 ± 0.0" in probed
    assert "between 70.1 and 74.1 %" in joined
    assert "Validation pairs choose conv3, which has 72.1 %" in joined
    assert "2 passes take 2.00 times as long to train and 2.00 times as long to predict" in deep
    found = {loop: [results[figures.Cell.of(TINY, loop, seed).key].about for seed in (0, 1)] for loop in TINY.probing()}
    gains = gains_by_pass(probe_table(TINY, found))
    assert gains["LFN", "image"].tolist() == pytest.approx([0.01, 0.01])
