"""Commands on a full disk: one line, exit code 2, and everything that was there is kept.

No file may grow over a limit, which gives the same errors as a disk that is full, also from the libraries.
"""

import resource
from contextlib import contextmanager

import numpy as np
import pytest

from cli.conftest import COLUMNS, QUICK
from consilience.comparison import reopen
from consilience.estimators import load


@contextmanager
def largest_file(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_refused(done, path):
    assert done.code == 2
    assert done.out == ""
    assert done.err.splitlines()[-1].startswith(f"consilience: error: cannot write {path}: File too large. What was")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict(run, model, table, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    assert run("predict", model, table, "--out", out).code == 0
    before = contents(tmp_path)
    with largest_file(1000):
        done = run("predict", model, table, "--out", out)
    check_refused(done, out)
    assert contents(tmp_path) == before


def test_train(run, table, tmp_path):
    out = tmp_path / "model"
    words = ("train", table, *COLUMNS, "--method", "late", "--epochs", "1", "--out", out)
    assert run(*words).code == 0
    before = contents(tmp_path)
    with largest_file(1000):
        done = run(*words, "--overwrite")
    check_refused(done, out)
    assert contents(tmp_path) == before
    load(out)


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "parquet"])
def test_fuse(run, tmp_path, ending):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(2000, 3)))
    out = tmp_path / f"fused.{ending}"
    words = ("fuse", tmp_path / "a.npy", tmp_path / "b.npy", "--out", out)
    assert run(*words).code == 0
    before = contents(tmp_path)
    with largest_file(5000):
        done = run(*words)
    check_refused(done, out)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_compare_stops_and_continues(run, table, tmp_path, jobs):
    out = tmp_path / "run"
    words = ("compare", table, *COLUMNS, "--methods", "late", *QUICK, "--jobs", jobs, "--out", out)
    with largest_file(9000):  # enough for the plan, too little for a model
        done = run(*words)
    assert done.code == 2
    assert done.err == (
        f"consilience: error: cannot write to {out}: File too large. Results already there are kept\n"
    ), "it does not go on with the next job"
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["plan.json"]
    assert run(*words).code == 0
    assert len(reopen(out).findings.seeds) == 2


def test_report(run, finished):
    before = contents(finished)
    with largest_file(2000):
        done = run("report", finished)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"consilience: error: cannot write to {finished}: File too large")
    assert contents(finished) == before
    assert run("report", finished).code == 0
