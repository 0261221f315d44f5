"""`consilience watch` on damaged logs, references and states, with options that do not fit.

The command ends with 0, or with an error of one line; it never writes over what it reads.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl

from fuzz.fuzzers import REFUSED, Fuzzer, register
from fuzz.mutations import WORDS, damage, draw_damage

N = 60
QUICK: dict[str, Any] = {"epochs": 1, "device": "cpu", "verbose": 0, "random_state": 0}
OPTIONS = (
    ["--false-alarms", "0.5"],
    ["--false-alarms", "nan"],
    ["--false-alarms", "1"],
    ["--time", "time"],
    ["--time", "nobody"],
    ["--out", "page.html"],
    ["--out", "log.csv"],
    ["--out", "reference.csv"],
    ["--out", "no/such/page.html"],
    ["--state", "state.json"],
    ["--state", "kept.json"],
    ["--state", "state.txt"],
    ["--encoder", "vibration=mlp"],
    ["--nobody", "5"],
    ["--debug"],
)
FILES = ("log.csv", "reference.csv", "kept.json")


def _table(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    return pl.DataFrame(
        {
            "time": [f"2024-01-{1 + n % 28:02d}" for n in range(rows)],
            **{f"vibration_{n}": rng.normal(size=rows) + y for n in range(2)},
            "heat": [None if empty else 20.5 - one for empty, one in zip(rng.random(rows) < 0.1, y)],
            "mode": np.array(["idle", "run"])[rng.integers(2, size=rows)],
            "state": np.array(["ok", "worn"])[y],
        }
    )


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="watched-")


@cache
def contents() -> dict[str, bytes]:
    """The model's folder is made once; returns the content of the files beside it."""
    import consilience as cs

    folder = Path(_home().name)
    _table(N, 0).write_csv(folder / "train.csv")
    columns = {"vibration": ["vibration_*"], "heat": ["heat", "mode"]}
    data = cs.load_data(folder / "train.csv", target="state", modalities=columns)
    model = cs.FusionClassifier("bayes", **QUICK).fit(data.train)
    model.save(folder / "model")
    for name, seed in (("log.csv", 1), ("reference.csv", 2)):
        _table(40, seed).drop("state").write_csv(folder / name)
    cs.Monitor(model, model.read(folder / "reference.csv")).save(folder / "kept.json")
    return {name: (folder / name).read_bytes() for name in FILES}


def draw(random: Random) -> dict[str, Any]:
    """Draw the options, and the damage to some file."""
    case: dict[str, Any] = {"options": random.sample(range(len(OPTIONS)), random.choice((0, 0, 1, 1, 2, 3)))}
    case["reference"] = random.random() < 0.9
    if random.random() < 0.8:
        case |= {"file": random.choice((*FILES[:2], *FILES)), "damage": draw_damage(random)}
    if random.random() < 0.1:
        case["word"] = random.choice(WORDS)
    return case


def run(case: dict[str, Any]) -> str | None:
    """Run the command in a folder of its own."""
    from consilience.cli import main

    files = dict(contents())
    if "file" in case:
        files[case["file"]] = damage(files[case["file"]], case["damage"])
    words = ["watch", str(Path(_home().name) / "model"), "log.csv"]
    words += ["--reference", "reference.csv"] * case["reference"]
    words += [word for number in case["options"] for word in OPTIONS[number]]
    if "word" in case:
        words.append(case["word"].replace("\0", ""))
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            for name, content in files.items():
                Path(name).write_bytes(content)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = main(words)
                except SystemExit as left:
                    code = int(left.code or 0)
            written = {path.name for path in Path().rglob("*")} - set(files)
            assert written <= {"page.html", "state.json", "no", "such"}, written
            for name in ("log.csv", "reference.csv"):
                assert Path(name).read_bytes() == files[name], f"watch has changed {name}"
            pages = "".join(path.read_text(encoding="utf-8") for path in Path().rglob("page.html"))
        finally:
            os.chdir(before)
    said = err.getvalue()
    assert "Traceback" not in out.getvalue() + (
        said if [*OPTIONS[-1]] not in [OPTIONS[n] for n in case["options"]] else ""
    )
    assert code in (0, 1, 2), code
    assert "NaN" not in pages.replace("is NaN", "")
    if code == 0:
        return None
    assert said.strip(), "there is no word of what is wrong"
    return REFUSED


def valid() -> list[dict[str, Any]]:
    """A log that is read with its reference, and one that continues from a state."""
    return [
        {"options": [3, 5, 9], "reference": True},
        {"options": [10], "reference": False},
    ]


register(Fuzzer("watched logs", "files", draw, run, seconds=60, examples=40, valid=valid))
