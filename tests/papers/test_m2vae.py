"""Latent fusion on pictures in parts, small: every figure, the page, and runs that are continued."""

import shutil

import numpy as np
import pytest
import yaml

from consilience.comparison.plan import Source
from consilience.comparison.store import Result, Store
from consilience.core.errors import MissingDataError, TrainingError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.sets.digits import cut_quadrants
from consilience.reproduction.study import Cell
from paper_scripts import PAPERS, script

m2vae = script("m2vae")
DIGITS = {"variants": ["m2vae", "joint"], "seeds": 1, "latent": 3, "epochs": 1, "draws": 4, "estimated": 50}


def run(folder, **changes):
    return m2vae.run(**DIGITS | {"out": folder, "verbose": 0} | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """That of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run(folder)
    return folder


def test_every_figure_is_there(folder):
    done = run(folder, command="a command")
    [findings], asked = m2vae.read_findings(folder)
    [first] = findings.results["m2vae"]
    assert asked["draws"] == 4
    assert {name: values.shape for name, values in first.arrays.items()} == {
        "squared_error": (3, 359),
        "conditional": (3, 50),
        "coherent": (3, 359),
        "joint": (50,),
        "index": (359,),
        "pictures": (3, 8, 8, 8),
    }
    assert first.about["judge"] > 0.95
    errors, coherence = (findings.summary("m2vae", name)[0] for name in ("error", "coherent"))
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
    assert [len(table.rows) for table in done.document.tables] == [2, 2, 2, 2]


def test_a_finished_run_is_not_measured_again(folder, monkeypatch):
    monkeypatch.setattr(m2vae, "train", None)
    assert run(folder).document.answer


def test_findings_are_read_of_the_first_seeds(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    store = Store(tmp_path / "run")
    plan = store.read_plan()
    later = {**plan["jobs"][0], "key": "open", "settings": {"cut": "digits", "variant": "m2vae", "seed": 1}}
    store.write_plan(plan | {"jobs": [*plan["jobs"], later]})
    [findings], _ = m2vae.read_findings(tmp_path / "run", seeds=1)
    assert len(findings.results["joint"]) == 1
    with pytest.raises(TrainingError, match="cut digits, variant m2vae, seed 1: it has no readable result"):
        m2vae.read_findings(tmp_path / "run")


def test_two_processes_find_the_same(folder, tmp_path):
    run(tmp_path / "run", jobs=2)
    stores = [Store(path) for path in (folder, tmp_path / "run")]
    for one, other in zip(*(store.read_plan()["jobs"] for store in stores), strict=True):
        assert one == other
        alone, parallel = (store.read(Cell(**one)).arrays for store in stores)
        for name, values in alone.items():
            np.testing.assert_array_equal(values, parallel[name], err_msg=name)


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
    m2vae.prepare.cache_clear()


def test_mnist_comes_in_halves_and_in_quadrants(noise, tmp_path):
    smaller = {"latent": 2, "hidden": [8], "most": [60, 20, 20], "estimated": 10}
    done = run(tmp_path / "run", name="m2vae-mnist", variants=["mopoe", "joint"], **smaller)
    for findings, sizes in zip(m2vae.read_findings(tmp_path / "run")[0], (1, 3), strict=True):
        [result] = findings.results["mopoe"]
        assert findings.reference == "mopoe"
        assert result.arrays["coherent"].shape == (sizes, 20)
        assert result.arrays["conditional"].shape == (sizes, 10)
        assert np.isin(result.arrays["pictures"][2], (0, 1)).all()
    assert [len(table.header) for table in done.document.tables] == [4, 7, 4, 4, 4, 7]
    assert "Bernoulli likelihoods" in done.page.read_text(encoding="utf-8")


def test_without_mnist_it_says_what_to_get(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="MNIST"):
        m2vae.run(name="m2vae-mnist", quick=True, out=tmp_path / "run")


@pytest.mark.parametrize("name", m2vae.NAMES)
def test_the_files_have_all_settings(name, monkeypatch):
    study = yaml.safe_load((PAPERS / f"{name}.yaml").read_text(encoding="utf-8"))
    settings, asked = study["settings"], []
    assert (study["script"], study["paper"], settings["name"]) == ("m2vae.py", m2vae.PAPER, name)
    assert settings["quick_settings"].keys() <= settings.keys() | m2vae.DEFAULTS.keys()
    monkeypatch.setattr(Source, "fingerprint", lambda source: "of nothing")
    monkeypatch.setattr(
        m2vae, "run_study", lambda name, measure, cells, shared, *_, **options: asked.append((shared, cells))
    )
    for quick in (False, True):
        m2vae.run(quick=quick, **settings)  # as `consilience reproduce` calls it
    (full, full_cells), (quick, quick_cells) = asked
    assert full["epochs"] == settings["epochs"]
    assert quick["epochs"] == settings["quick_settings"]["epochs"]
    assert len(full_cells) == 5 * len(quick_cells) == 100 * len(settings["cuts"])
    if name == "m2vae-mnist":
        assert full["most"] == [5000, 1000, 1000]
        assert "5 000 train each model, 1 000 choose the epoch and 1 000 test" in settings["notes"][-1]


def test_a_difference_that_every_seed_shows_is_significant():
    rng, cells, results = np.random.default_rng(0), [], []
    for seed in range(9):
        error, right = rng.random((1, 40)), rng.random((1, 40)) < 0.5
        for variant, factor in (("jmvae", 0.5), ("m2vae", 1.0), ("mvae", 1.0)):
            arrays = {"squared_error": factor * error, "coherent": right, "index": np.arange(40)}
            cells.append({"cut": "few", "variant": variant, "seed": seed})
            results.append(Result({}, arrays))
    findings = m2vae.Findings({"name": "few", "count": 2}, ["jmvae", "m2vae", "mvae"], cells, results)
    significant = {measure: findings.significant(measure) for measure in ("error", "coherent")}
    assert significant == {"error": {("jmvae", 0): 1}, "coherent": {}}  # of an error, less is better
    error, coherent = (m2vae.say_ranks(findings, measure, significant[measure]) for measure in significant)
    assert error.startswith("best is jmvae (")
    assert error.endswith("Significantly better than it is jmvae.")
    assert "ignificantly" not in coherent


def test_ink_is_drawn_once_by_its_grey():
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2000, axis=1)
    samples = Samples.of({"a": grey})
    drawn = np.asarray(m2vae.binarised(samples)["a"])
    np.testing.assert_allclose(drawn.mean(axis=1), np.arange(256) / 255, atol=0.06)
    assert not drawn[0].any()
    assert drawn[255].all()
    np.testing.assert_array_equal(m2vae.binarised(samples)["a"], drawn)


def test_parts_join_to_the_picture_they_were_cut_from():
    images = np.random.default_rng(0).random((3, 1, 8, 6))
    np.testing.assert_array_equal(m2vae.joined(cut_quadrants(images).values()), images[:, 0])
    square = np.random.default_rng(0).random((3, 8, 8))
    flat = {name: part.reshape(3, -1) for name, part in cut_quadrants(square).items()}
    np.testing.assert_array_equal(m2vae.joined(flat.values()), square)
