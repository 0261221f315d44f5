"""Patients with pictures, notes and lab values on the command line: described, compared, predicted."""

import io
import json

import numpy as np
import polars as pl
import pytest
from PIL import Image
from polars.testing import assert_frame_equal

from cli.conftest import QUICK
from consilience.core.errors import InputError
from consilience.data.loading import with_broken

COLUMNS = (
    *("--target", "outcome", "--modality", "photo=photo_path:image", "--modality", "note=note:text"),
    *("--modality", "labs=lab_*", "--media", "photo.size=8", "--media", "photo.colour=rgb"),
)


def patients(folder, n, seed):
    """A table, and its pictures beside it."""
    rng, y = np.random.default_rng(seed), np.arange(n) % 2
    (folder / "photos").mkdir(parents=True)
    for row in range(n):
        pixels = rng.integers(0, 120, size=(9, 12)) + 100 * y[row]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"photos/{row}.png")
    return pl.DataFrame(
        {
            "id": [f"P{row}" for row in range(n)],
            "photo_path": [f"photos/{row}.png" for row in range(n)],
            "note": [f"patient {rng.integers(99)} {'coughs' if label else 'sleeps'}" for label in y],
            "lab_a": rng.normal(size=n) + y,
            "lab_b": rng.normal(size=n),
            "outcome": ["ill" if label else "well" for label in y],
        }
    )


@pytest.fixture
def table(tmp_path):
    patients(tmp_path / "study", 60, seed=0).write_csv(tmp_path / "study" / "patients.csv")
    return tmp_path / "study" / "patients.csv"


def test_describe(run, table):
    done = run("data", "describe", table, *COLUMNS)
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.split()[:1] == ["photo"]]
    assert line.split() == ["photo", "image", "3×8×8", "0.0%", "missing", "files", "of", "photo_path:", "60", ".png"]
    described = json.loads(run("data", "describe", table, *COLUMNS, "--json").out)
    assert described["modalities"][0]["files"]["endings"] == {".png": 60}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--media", "photo=8"), "--media must have the form MODALITY.NAME=VALUE"),
        (("--media", "photo.sise=8"), "did you mean 'size'"),
        (("--broken", "skip"), "Known: error, missing"),
    ],
)
def test_wrong_words(run, table, words, message):
    done = run("data", "describe", table, *COLUMNS, *words)
    assert done.code == 2
    assert message in done.err


def test_broken_files_are_an_error_or_missing(run, table):
    (table.parent / "photos/5.png").write_bytes(b"no picture")
    done = run("data", "describe", table, *COLUMNS)
    assert done.code == 2
    assert "row 5, 'photos/5.png': it is no picture that can be read" in done.err
    done = run("data", "describe", table, *COLUMNS, "--broken", "missing")
    assert done.code == 0
    assert "1 unreadable" in done.out


def test_files_that_break_after_training_may_be_missing_in_new_rows(run, table, tmp_path):
    assert run("train", table, *COLUMNS, "--method", "concat", "--epochs", "1", "--out", tmp_path / "model").code == 0
    patients(tmp_path / "clinic", 6, seed=1).drop("outcome").write_csv(tmp_path / "clinic" / "new.csv")
    (tmp_path / "clinic/photos/2.png").write_bytes(b"no picture")
    words = ("predict", tmp_path / "model", tmp_path / "clinic" / "new.csv")
    done = run(*words)
    assert done.code == 2
    assert "row 2, 'photos/2.png'" in done.err
    done = run(*words, "--broken", "missing")
    assert done.code == 0
    assert len(pl.read_csv(io.StringIO(done.out))) == 6
    assert "The modality is missing in these rows" in done.err
    with pytest.raises(InputError, match="this model reads no files"):
        with_broken({"format": "table", "modalities": [{"name": "labs", "numbers": ["lab_a"]}]}, "missing")


@pytest.mark.slow
def test_compare_in_processes_and_predict_elsewhere(run, table, tmp_path):
    words = (*COLUMNS, "--broken", "missing", "--methods", "late", "concat", *QUICK, "--jobs", "2")
    done = run("compare", table, *words, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    new = patients(tmp_path / "clinic", 30, seed=1)
    outcome = new["outcome"]
    cells = [None, "photos/none.png", *new["photo_path"][2:]]
    new.drop("outcome").with_columns(photo_path=pl.Series(cells)).write_csv(tmp_path / "clinic" / "new.csv")
    for path in table.parent.glob("photos/*"):
        path.unlink()
    done = run("predict", tmp_path / "run" / "best", tmp_path / "clinic" / "new.csv")
    assert done.code == 0, done.err
    assert "1 of 30 files of column 'photo_path' cannot be read" in done.err
    predicted = pl.read_csv(io.StringIO(done.out))
    assert (predicted["prediction"] == outcome).mean() > 0.6


def test_paths_in_json_lines_start_from_their_folder(run, table, tmp_path, monkeypatch):
    assert run("train", table, *COLUMNS, "--method", "concat", "--epochs", "1", "--out", tmp_path / "model").code == 0
    new = patients(tmp_path / "clinic", 6, seed=1).drop("outcome")
    new.write_csv(tmp_path / "clinic" / "new.csv")
    new.write_ndjson(tmp_path / "clinic" / "new.jsonl")
    patients(tmp_path / "other", 6, seed=2)  # pictures of the same names
    monkeypatch.chdir(tmp_path / "other")
    words = ("predict", tmp_path / "model")
    expected = pl.read_csv(io.StringIO(run(*words, tmp_path / "clinic" / "new.csv").out))
    for path in (tmp_path / "clinic" / "new.jsonl", "../clinic/new.jsonl"):
        assert_frame_equal(pl.read_csv(io.StringIO(run(*words, path).out)), expected)
    with open(tmp_path / "clinic" / "new.jsonl") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        elsewhere = pl.read_csv(io.StringIO(run(*words, "-").out))  # a stream has no folder
    with pytest.raises(AssertionError):
        assert_frame_equal(elsewhere, expected)
