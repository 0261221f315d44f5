"""The experiment `m2vae-digits` at its smallest: every variant's figures, the page, and going on where it stopped."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.m2vae_digits.account import summary
from consilience.comparison.experiments.m2vae_digits.cells import QUICK, SIZES, Cell
from consilience.comparison.experiments.m2vae_digits.running import read_results, reproduce
from consilience.comparison.store import Store
from consilience.errors import TrainingError

PROTOCOL = replace(QUICK, variants=("m2vae", "joint"), seeds=1, latent=3, epochs=1, draws=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "digits"


def test_every_figure_is_there(folder):
    done = reproduce(PROTOCOL, folder, title="Digits", verbose=0, command="a command")
    results = read_results(PROTOCOL.cells(), Store(folder))
    first = results[Cell.of(PROTOCOL, "m2vae", 0).key]
    assert {name: values.shape for name, values in first.arrays.items()} == {
        "squared_error": (len(SIZES), 359),
        "conditional": (len(SIZES), 359),
        "coherent": (len(SIZES), 359),
        "joint": (359,),
        "index": (359,),
    }
    assert first.about["classifier"] > 0.95
    errors, coherence = (summary(PROTOCOL, results, "m2vae", name)[0] for name in ("error", "coherent"))
    np.testing.assert_allclose(errors, np.sqrt(first.arrays["squared_error"].mean(axis=1)))
    assert coherence[2] > coherence[0]  # the more is given, the less can be wrong
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "cannot reach significance" in text
    assert done.page.exists()
    assert [len(table.rows) for table in done.account.tables] == [2, 2, 2, 2]


def test_a_finished_run_is_only_told_again(folder, monkeypatch):
    monkeypatch.setattr("consilience.comparison.experiments.m2vae_digits.cells.measure", None)
    assert reproduce(PROTOCOL, folder, title="Digits", verbose=0).account.answer
    with pytest.raises(TrainingError, match="m2vae, seed 1: it has no readable result"):
        read_results(replace(PROTOCOL, seeds=2).cells(), Store(folder))


def test_it_is_found_by_its_name():
    assert find_experiment("m2vae-digits").title.startswith("Latent fusion on digits")
