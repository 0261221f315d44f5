"""Exported and compiled models against the model itself, on rows that are missing, huge or broken; bad arguments.

An exported model gives the numbers of the model, and NaN for a row that the model refuses. A compiled one gives them,
or the error of the model. An export with bad arguments writes a file, or is refused and writes nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.fuzzers import REFUSED, Fuzzer, register

N = 60
QUICK: dict[str, Any] = {"epochs": 1, "device": "cpu", "verbose": 0, "random_state": 0, "calibration": None}
TOLERANCE = 1e-5
CELLS = (float("nan"), float("inf"), float("-inf"), 1e38, -3e38, 1e30, 1e12, 1e6, -1e6, 1e-38, 0.0)
METHODS = ("late", "concat", "bayes", "bayes-robust", "qmf", "lowrank")
PATHS = (
    "model.onnx",
    "model.pt2",
    "",
    ".",
    "model",
    "a\0.onnx",
    "no/such/model.onnx",
    "folder.onnx",
    "x" * 300 + ".pt2",
)
PATHS += ("kept.onnx", "kept.pt2", "\ud800.onnx", "link.onnx", "model.onnx/", "data[1].pt2", "model.ONNX")
FORMATS = (None, None, "onnx", "torch", "x", "", 5, ["onnx"], "ONNX")


def inputs(rows: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    """Two vectors and a sequence, float32 as exported models read them."""
    rng, y = np.random.default_rng(seed), np.arange(rows) % 3
    X = {
        "a": rng.normal(size=(rows, 3)) + y[:, None],
        "b": 100 + 5 * rng.normal(size=(rows, 2)),
        "c": rng.normal(size=(rows, 4)) * [1, 10, 0.1, 1],
    }
    return {name: values.astype(np.float32) for name, values in X.items()}


@cache
def model(method: str, kind: str) -> Any:
    """A model, fitted once in this process."""
    import consilience as cs

    y = np.arange(N) % 3
    if kind == "regression":
        return cs.FusionRegressor(method, **QUICK).fit(inputs(), y + 0.5)
    return cs.FusionClassifier(method, **QUICK).fit(inputs(), y)


@cache
def subjects() -> list[tuple[str, str]]:
    """The methods that are registered, with the tasks they serve."""
    from consilience import methods

    found = []
    for name in METHODS:
        if name.rpartition(":")[2] in methods.METHODS:
            tasks = methods.find(name, ["a", "b", "c"])[0].tasks
            found += [(name, kind) for kind in ("classification", "regression") if kind in tasks]
    return found


@cache
def formats() -> list[str]:
    """ONNX if what it needs is installed."""
    return ["torch", *(["onnx"] if all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))) else [])]


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="exported-")


@cache
def exported(method: str, kind: str, form: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] | None:
    """A function that runs an exported model, made once; None if it is refused."""
    from consilience.core.errors import UnsupportedError

    path = Path(_home().name) / f"{method.replace(':', '-')}-{kind}.{'onnx' if form == 'onnx' else 'pt2'}"
    try:
        model(method, kind).export(path)
    except UnsupportedError:
        assert not path.exists()
        return None
    if form == "onnx":
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(str(path))
        outputs = [output.name for output in session.get_outputs()]
        return lambda X: dict(zip(outputs, session.run(outputs, X)))
    import torch

    files = {"consilience.json": ""}
    module = torch.export.load(path, extra_files=files).module()
    described = json.loads(files["consilience.json"])

    def run_program(X: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = len(next(iter(X.values())))
        whole = {one["name"]: X.get(one["name"]) for one in described["inputs"]}
        shapes = {name: values.shape[1:] for name, values in inputs(1).items()}
        given = {
            name: torch.from_numpy(np.full((rows, *shapes[name]), np.nan, np.float32) if values is None else values)
            for name, values in whole.items()
        }
        found = module(given, torch.ones(rows, len(given), dtype=torch.bool))
        return {name: values.numpy() for name, values in zip(described["outputs"], found)}

    return run_program


def draw(random: Random) -> dict[str, Any]:
    """Draw a model, the form it is asked in, and rows with cells that are spoilt."""
    method, kind = random.choice(subjects())
    rows = random.choice((1, 1, 2, 3, 7, 50))
    return {
        "method": method,
        "task": kind,
        "form": random.choice(("compiled", "compiled", *formats())),
        "rows": rows,
        "seed": random.randrange(2**16),
        "missing": random.choice((0.0, 0.0, 0.3, 1.0)),
        "left out": random.sample(("a", "b", "c"), random.choice((0, 0, 0, 1, 2))),
        "cells": [
            [random.randrange(rows), random.choice("abc"), random.randrange(4), random.randrange(len(CELLS))]
            for _ in range(random.choice((0, 0, 1, 2)))
        ],
    }


def rows_of(case: dict[str, Any]) -> dict[str, np.ndarray]:
    """The rows of a case."""
    X, rng = inputs(case["rows"], case["seed"]), np.random.default_rng(case["seed"])
    for values in X.values():
        values[rng.random(len(values)) < case["missing"]] = np.nan
    for row, name, column, cell in case["cells"]:
        X[name][row, column % X[name].shape[1]] = CELLS[cell]
    return {name: values for name, values in X.items() if name not in case["left out"]}


def run(case: dict[str, Any]) -> str | None:
    """Ask the model row by row, and its other form for all rows at once."""
    from consilience.core.errors import ConsilienceError

    X, estimator = rows_of(case), model(case["method"], case["task"])
    ask = estimator.predict_proba if case["task"] == "classification" else estimator.predict
    width = 3 if case["task"] == "classification" else 1
    expected = np.full((case["rows"], width), np.nan)
    refused = 0
    for row in range(case["rows"]):
        try:
            expected[row] = ask({name: values[row : row + 1] for name, values in X.items()})
        except ConsilienceError:
            refused += 1
    if case["form"] == "compiled":
        quick = estimator.compiled()
        found = (quick.predict_proba if width > 1 else quick.predict)(X)  # a refusal ends the case
        assert not refused, "the compiled model answers rows that the model refuses"
        check_close(np.asarray(found).reshape(expected.shape), expected)
        return None
    if (runs := exported(case["method"], case["task"], case["form"])) is None:
        return REFUSED
    found = runs(X)
    check_close(found["probabilities" if width > 1 else "numbers"].reshape(expected.shape), expected)
    for name, values in found.items():
        broken = ~np.isfinite(values.reshape(case["rows"], -1)).all(axis=1)
        assert broken.tolist() == np.isnan(expected).any(axis=1).tolist(), f"{name} is finite in other rows"
    return None


def check_close(found: np.ndarray, expected: np.ndarray) -> None:
    """Check that two outputs agree, NaN in the same rows."""
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def valid() -> list[dict[str, Any]]:
    """Usual rows, in every form of every model."""
    usual = {"rows": 5, "seed": 1, "missing": 0.0, "left out": [], "cells": []}
    forms = ("compiled", *formats())
    return [
        {"method": method, "task": kind, "form": form, **usual} for method, kind in subjects()[:4] for form in forms
    ]


register(Fuzzer("exported models", "exports", draw, run, seconds=120, examples=40, valid=valid, memory=2 << 30))


def draw_arguments(random: Random) -> dict[str, Any]:
    """Draw arguments of `export`."""
    return {"path": random.choice(PATHS), "format": random.choice(FORMATS), "as path": random.random() < 0.3}


def run_arguments(case: dict[str, Any]) -> None:
    """Export into a folder in which some files are; what is refused leaves it as it was."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            for name in ("kept.onnx", "kept.pt2", "aim.onnx"):
                Path(name).write_text(name)
            Path("folder.onnx").mkdir()
            Path("link.onnx").symlink_to("aim.onnx")
            kept = _content()
            path = Path(case["path"]) if case["as path"] else case["path"]
            try:
                written = model("late", "classification").export(path, format=case["format"])
            except BaseException:
                assert _content() == kept, "a refused export has changed the folder"
                raise
            changed = {name for name, content in _content().items() if kept.get(name) != content}
            made = written.absolute().relative_to(Path.cwd()).parts  # new folders too
            assert changed <= {*made, "aim.onnx"}, changed
            assert written.stat().st_size > 1000
        finally:
            os.chdir(before)


def _content() -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}


register(Fuzzer("arguments of export", "calls", draw_arguments, run_arguments, seconds=120, examples=15))
