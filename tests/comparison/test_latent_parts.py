"""The experiments on pictures in parts at their smallest: every figure, the page, and going on where it stopped."""

from dataclasses import replace

import numpy as np
import pytest

from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.latent_parts import pictures
from consilience.comparison.experiments.latent_parts.account import answer
from consilience.comparison.experiments.latent_parts.cells import Protocol
from consilience.comparison.experiments.latent_parts.findings import Findings
from consilience.comparison.experiments.latent_parts.pictures import CUTS, Cut, binarised, draw_ink, joined
from consilience.comparison.plan import Source
from consilience.comparison.store import Result, Store
from consilience.core.errors import MissingDataError, TrainingError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.sets.digits import cut_quadrants

DIGITS = Protocol(variants=("m2vae", "joint"), seeds=1, latent=3, epochs=1, draws=4, estimated=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """That of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    find_experiment("m2vae-digits").follow(DIGITS, folder, verbose=0)
    return folder


def test_every_figure_is_there(folder):
    done = find_experiment("m2vae-digits").follow(DIGITS, folder, verbose=0, command="a command")
    results = Store(folder).read_all(DIGITS.cells(), "m2vae-digits")
    found = Findings.gather(DIGITS, results)
    [first] = found.of(CUTS["digits"], "m2vae")
    assert {name: values.shape for name, values in first.arrays.items()} == {
        "squared_error": (3, 359),
        "conditional": (3, 50),
        "coherent": (3, 359),
        "joint": (50,),
        "index": (359,),
        "pictures": (3, 8, 8, 8),
    }
    assert first.about["judge"] > 0.95
    errors, coherence = (found.summary(CUTS["digits"], "m2vae", name)[0] for name in ("error", "coherent"))
    np.testing.assert_allclose(errors, np.sqrt(first.arrays["squared_error"].mean(axis=1)))
    assert coherence[2] > coherence[0]  # the more is given, the less can be wrong
    given, made, true = first.arrays["pictures"]
    np.testing.assert_array_equal(given[:, :4], true[:, :4])
    np.testing.assert_array_equal(made[:, :4], true[:, :4])
    assert not given[:, 4:].any()
    assert (made[:, 4:] != true[:, 4:]).any()
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "cannot reach significance" in text
    assert "359 test digits, likelihoods of 50 of them" in text
    assert (folder / "figures" / "look-digits.png").exists()
    assert done.page.exists()
    assert [len(table.rows) for table in done.account.tables] == [2, 2, 2, 2]


def test_a_finished_run_is_only_told_again(folder, monkeypatch):
    monkeypatch.setattr("consilience.comparison.experiments.latent_parts.cells.measure", None)
    assert find_experiment("m2vae-digits").follow(DIGITS, folder, verbose=0).account.answer
    with pytest.raises(TrainingError, match="m2vae on digits, seed 1: it has no readable result"):
        Store(folder).read_all(replace(DIGITS, seeds=2).cells(), "m2vae-digits")


def test_a_protocol_is_read_back_from_its_run_folder(folder):
    asked = Store(folder).read_plan()["asked"]
    assert Protocol.of(asked) == DIGITS


def test_where_it_ran_does_not_name_a_result():
    elsewhere = replace(DIGITS, device="cuda", seeds=3)
    assert elsewhere.cells()[:2] == DIGITS.cells()
    assert replace(DIGITS, latent=4).cells()[0].key != DIGITS.cells()[0].key


@pytest.fixture
def noise(monkeypatch):
    """As MNIST is, of noise and smaller."""

    def load(source):
        images = np.random.default_rng(0).integers(0, 256, (120, 1, 8, 8), dtype=np.uint8)
        halves = {"left": images[..., :4], "right": images[..., 4:]}
        cut = halves if source.options["parts"] == "halves" else cut_quadrants(images)
        split = np.repeat(["train", "validation", "test"], [70, 25, 25])
        return DataSet("mnist", Samples.of(cut, np.arange(120) % 10), "classification", split, official_split=True)

    monkeypatch.setattr(Source, "load", load)
    monkeypatch.setattr(Source, "fingerprint", lambda source: "of noise")
    yield
    pictures.prepare.cache_clear()


def test_mnist_comes_in_halves_and_in_quadrants(noise, tmp_path):
    experiment = find_experiment("m2vae-mnist")
    protocol = replace(
        experiment.protocol(quick=True),
        variants=("mopoe", "joint"),
        seeds=1,
        latent=2,
        hidden=(8,),
        epochs=1,
        draws=4,
        most=(60, 20, 20),
        estimated=10,
    )
    done = experiment.follow(protocol, tmp_path, verbose=0)
    found = Findings.gather(protocol, Store(tmp_path).read_all(protocol.cells(), "m2vae-mnist"))
    assert found.reference == "mopoe"
    for name, sizes in (("halves", 1), ("quadrants", 3)):
        [one] = found.of(CUTS[name], "mopoe")
        assert one.arrays["coherent"].shape == (sizes, 20)
        assert one.arrays["conditional"].shape == (sizes, 10)
        assert np.isin(one.arrays["pictures"][2], (0, 1)).all()
    assert [len(table.header) for table in done.account.tables] == [4, 7, 4, 4, 4, 7]
    assert "Bernoulli likelihoods" in done.page.read_text(encoding="utf-8")


def test_without_mnist_it_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="MNIST"):
        find_experiment("m2vae-mnist").run(quick=True, out=tmp_path / "run")


def test_full_sizes_are_those_that_are_told():
    experiment = find_experiment("m2vae-mnist")
    full, quick = (experiment.protocol(size) for size in (False, True))
    assert full.most == (5000, 1000, 1000)
    assert "5 000 train each model, 1 000 choose the epoch and 1 000 test" in experiment.notes[-1]
    assert full.device == quick.device == "auto"
    assert (full.seeds, quick.seeds) == (10, 2)
    assert find_experiment("m2vae-digits").protocol(quick=False) == Protocol()


def test_a_difference_that_every_seed_shows_is_sure():
    cut, seeds = Cut("few", "digits", count=2), 9
    protocol = replace(DIGITS, cuts=(cut,), variants=("jmvae", "m2vae", "mvae"), seeds=seeds)
    rng = np.random.default_rng(0)
    results = {}
    for seed in range(seeds):
        error, right = rng.random((1, 40)), rng.random((1, 40)) < 0.5
        for name, factor in (("jmvae", 0.5), ("m2vae", 1.0), ("mvae", 1.0)):
            arrays = {"squared_error": factor * error, "coherent": right, "index": np.arange(40)}
            arrays["conditional"] = -arrays["squared_error"]
            results[cut.name, name, seed] = Result({}, arrays)
    found = Findings(protocol, results)
    sure = {(cut.name, measure): found.sure(cut, measure) for measure in ("error", "conditional", "coherent")}
    assert sure["few", "error"] == {("jmvae", 0): 1}  # less is better
    assert sure["few", "coherent"] == {}
    error, _, coherent = answer(found, sure)
    assert error.startswith("Imputation error: best is jmvae (")
    assert error.endswith("Significantly better than it is jmvae.")
    assert "ignificantly" not in coherent


def test_ink_is_drawn_once_by_its_grey():
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2000, axis=1)
    drawn = draw_ink(grey, np.random.default_rng(1)).mean(axis=1)
    np.testing.assert_allclose(drawn, np.arange(256) / 255, atol=0.06)
    assert drawn[0] == 0
    assert drawn[255] == 1
    samples = Samples.of({"a": grey[:20]})
    np.testing.assert_array_equal(binarised(samples)["a"], binarised(samples)["a"])


def test_parts_join_to_the_picture_they_were_cut_from():
    images = np.random.default_rng(0).random((3, 1, 8, 6))
    np.testing.assert_array_equal(joined(cut_quadrants(images)), images[:, 0])
    square = np.random.default_rng(0).random((3, 8, 8))
    flat = {name: part.reshape(3, -1) for name, part in cut_quadrants(square).items()}
    np.testing.assert_array_equal(joined(flat), square)
