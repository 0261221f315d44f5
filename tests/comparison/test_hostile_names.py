"""Whatever sets, modalities, methods and classes are called: nothing outside the run folder is touched."""

import os

import numpy as np
import pytest

from consilience import compare, load
from consilience.cli.main import main
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.splits import draw_split

QUICK = {"training": {"epochs": 1}, "verbose": 0, "seeds": 1, "levels": (5,), "corruption": "gaussian"}
MODALITIES = ("/abs/x", "..", "m\nl", " ", "file", "M", "m", "x" * 500, "a.b", "keys", "\0")
CLASSES = ("../c", "\ud802", "z" * 500)


def make(name, modalities=("heat", "sound"), classes=("a", "b", "c")):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=150)
    labels = np.array(classes, dtype=object)[y]
    values = {each: np.eye(3)[y] + rng.normal(scale=0.6, size=(150, 3)) for each in modalities}
    return DataSet(name, Samples.of(values, labels), "classification", *draw_split(labels, "classification"))


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A home with a working directory, and files beside, above and below it that must not change."""
    for folder in ("precious", "work/precious", "work/runs/precious", "work/.sens", "work/other"):
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "data.npy").write_bytes(b"years of work")
        (tmp_path / folder / "deep" / "model.json").write_text('{"library": "other"}')
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def tree(folder, but):
    """Every path below a folder with its content and kind, the folder `but` left out."""
    return {
        path: (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
        if but not in (path, *path.parents)
    }


def test_names_of_everything_stay_in_the_run_folder(world):
    names = [
        *(str(world / "precious"), "../precious", "..", ".", "", "/", "a/b", "a\\b", "n\nl", "\0", "\ud800", "x" * 500),
        *("CON", "A", "a", "precious ", "../" * 20 + "etc", "<script>", "jobs", ".lock"),
    ]
    run, before = world / "work" / "run", tree(world, world / "work" / "run")
    variant = "late@../../precious\n" + "v" * 500
    settings = {variant: {"expert_loss": 0.5}}
    sets = [make(name, MODALITIES, CLASSES) for name in names]
    done = compare(sets, ["late", variant], settings=settings, out=run, **QUICK)
    assert not len(done.findings.failed)
    assert len({folder.name.casefold() for folder in done.bests.values()}) == len(names)
    for data, folder in zip(sets, done.bests.values(), strict=True):
        assert folder.parent == run / "best"
        assert load(folder).score(data.test, data.test.y) >= 0
    assert tree(world, run) == before
    again = compare(sets, ["late", variant], settings=settings, out=run, **QUICK)  # replaces nothing but its own
    assert again.bests == done.bests
    assert tree(world, run) == before


@pytest.mark.parametrize("name", ["..", "../../precious", "/", "x" * 500, "\0", "\n"])
def test_the_default_run_folder_is_one_folder_in_runs(world, name):
    before = tree(world, world / "work" / "runs")
    done = compare(make(name), ["late"], **QUICK)
    assert done.folder.parent.absolute() == world / "work" / "runs"
    assert tree(world, world / "work" / "runs") == before
    assert (world / "work" / "runs" / "precious" / "data.npy").read_bytes() == b"years of work"


def test_hidden_folders_of_arrays_survive_a_comparison(world, capsys):
    rng = np.random.default_rng(0)
    folders = [world / "data" / ".sens", world / "data" / "other", world / "more" / ".sens"]
    for folder in folders:
        folder.mkdir(parents=True)
        y = rng.integers(0, 3, size=150)
        for name in ("heat", "sound"):
            np.save(folder / f"{name}.npy", np.eye(3)[y] + rng.normal(scale=0.6, size=(150, 3)))
        np.save(folder / "y.npy", y)
    run, before = world / "work" / "run", tree(world, world / "work" / "run")
    words = ["--methods", "late", "--seeds", "1", "--levels", "5", "--epochs", "1", "--out", "run"]
    assert main(["compare", *map(str, folders), *words]) in (0, None)
    assert tree(world, run) == before
    assert "best model for data/.sens: run/best/data__sens~" in capsys.readouterr().out
    assert len(list((run / "best").iterdir())) == 3


def test_a_folder_in_the_place_of_the_best_model_is_refused_before_training(world, monkeypatch):
    run = world / "work" / "run"
    done = compare([make("a"), make("b")], ["late"], out=run, **QUICK)
    mine = done.bests["a"] / "my thesis.tex"
    mine.write_text("years of work")
    compare([make("a"), make("b")], ["late"], out=run, **QUICK)  # nothing is trained, nothing replaced
    monkeypatch.setattr("consilience.comparison.engine.work", None)
    with pytest.raises(InputError, match=r"holds 'my thesis\.tex', which is no part of a model of this comparison"):
        compare([make("a"), make("b")], ["late", "concat"], out=run, **QUICK)
    assert mine.read_text() == "years of work"


@pytest.mark.parametrize("name", ["best", "jobs", "models", "figures", "report.html"])
def test_links_out_of_the_run_folder_are_not_followed(world, name):
    run, before = world / "work" / "run", tree(world, world / "work" / "run")
    compare(make("a"), ["late"], out=run, **QUICK)
    kept = run / f"{name}.kept"
    os.replace(run / name, kept)
    (run / name).symlink_to(world / "precious" / ("data.npy" if "." in name else ""))
    with pytest.raises(InputError, match=r"is a symbolic link, and nothing outside .*run is written or removed"):
        compare(make("a"), ["late", "concat"], out=run, **QUICK)
    assert tree(world, run) == before


def test_names_with_half_a_character_are_refused_before_training(world):
    with pytest.raises(InputError, match=r"modality '\\ud800' has a lone surrogate"):
        make("a", ("\ud800", "b"))
    with pytest.raises(InputError, match=r"compare: method 'late@\\ud800' has a lone surrogate"):
        compare(make("a"), ["late@\ud800"], settings={"late@\ud800": {}}, **QUICK)
