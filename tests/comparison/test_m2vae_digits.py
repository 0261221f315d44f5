"""The experiment `m2vae-digits` at its smallest: every variant's figures, the page, and going on where it stopped."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.m2vae_digits.account import summary
from consilience.comparison.experiments.m2vae_digits.cells import Cell, Protocol
from consilience.comparison.experiments.m2vae_digits.running import reproduce
from consilience.comparison.store import Store
from consilience.data import DataSet
from consilience.data.sets.digits import cut_quadrants
from consilience.errors import TrainingError
from consilience.samples import Samples

PROTOCOL = Protocol(variants=("m2vae", "joint"), seeds=1, latent=3, epochs=1, draws=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "digits"


def test_every_figure_is_there(folder):
    done = reproduce(PROTOCOL, folder, title="Digits", verbose=0, command="a command")
    results = Store(folder).read_all(PROTOCOL.cells(), "m2vae-digits")
    first = results[Cell.of(PROTOCOL, "m2vae", 0).key]
    assert {name: values.shape for name, values in first.arrays.items()} == {
        "squared_error": (3, 359),
        "conditional": (3, 359),
        "coherent": (3, 359),
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
        Store(folder).read_all(replace(PROTOCOL, seeds=2).cells(), "m2vae-digits")


def test_it_is_found_by_its_name():
    assert find_experiment("m2vae-digits").title.startswith("Latent fusion on digits")


@pytest.mark.parametrize(("parts", "sizes"), [("halves", (1,)), ("quadrants", (1, 2, 3))])
def test_pictures_of_mnist_are_cut(parts, sizes, tmp_path, monkeypatch):
    experiment = find_experiment(f"m2vae-mnist-{parts}")
    assert experiment.protocol(quick=False).seeds == 5
    monkeypatch.setattr(Protocol, "load", lambda self, seed: pictures(parts, seed))
    protocol = replace(
        experiment.protocol(quick=True), variants=("m2vae", "joint"), seeds=1, latent=2, epochs=1, draws=4
    )
    protocol = replace(protocol, most=(60, 20, 20))
    assert protocol.sizes == sizes
    reproduce(protocol, tmp_path, title="MNIST", verbose=0)
    result = Store(tmp_path).read_all(protocol.cells(), "m2vae-digits")[protocol.cells()[0].key]
    assert result.arrays["coherent"].shape == (len(sizes), 20)
    assert 0 <= result.about["few_draws"] <= 1


def pictures(parts, seed):
    """As MNIST is, of noise and smaller."""
    images = np.random.default_rng(0).integers(0, 256, (120, 1, 8, 8), dtype=np.uint8)
    cut = {"left": images[..., :4], "right": images[..., 4:]} if parts == "halves" else cut_quadrants(images)
    samples = Samples.of(cut, np.arange(120) % 10)
    split = np.repeat(["train", "validation", "test"], [70, 25, 25])
    return DataSet("mnist", samples, "classification", split)
