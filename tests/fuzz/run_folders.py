"""Damaged run folders of `compare` and checkpoints: they are read as they were written, done again, or refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, damage_inside, draw_damage, draw_edits, edited

QUICK: dict[str, Any] = {"training": {"epochs": 1}, "verbose": 0, "levels": (5,), "corruption": "gaussian"}


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="runs-")


@cache
def finished_run() -> tuple[Path, Path, str]:
    """A comparison that has ended: its data, its folder, and its table."""
    from consilience import compare

    rng, y = np.random.default_rng(0), np.arange(60) % 2
    data = Path(_home().name) / "small.npz"
    np.savez(data, a=y[:, None] + rng.normal(size=(60, 2)), b=rng.normal(size=(60, 3)), y=y)
    done = compare(data, ["late", "concat"], seeds=2, out=Path(_home().name) / "run", **QUICK)
    return data, done.folder, done.table("markdown")


def _kinds(folder: Path) -> dict[str, list[Path]]:
    """The files of a run folder by what they are."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(path.parts[0] if len(path.parts) > 1 else path.name, []).append(path)
    return kinds


def draw_folder(random: Random) -> dict[str, Any]:
    """Draw a file of the folder, and damage."""
    case: dict[str, Any] = {
        "kind": random.choice(("plan.json", "plan.json", "jobs", "jobs", "best", "any")),
        "which": random.random(),
        "again": random.random() < 0.2,
        "member": random.random(),
    }
    how = random.choice(("edits", "edits", "inside", "damage"))
    return case | ({"edits": draw_edits(random)} if how == "edits" else {how: draw_damage(random)})


def run_folder(case: dict[str, Any]) -> None:
    """Damage one file of a run folder, then open the folder, or run the comparison again."""
    from consilience import compare
    from consilience.comparison import reopen

    data, run, table = finished_run()
    with tempfile.TemporaryDirectory() as around:
        folder = shutil.copytree(run, Path(around) / "run")
        kinds = _kinds(folder)
        among = kinds.get(case["kind"]) or [path for each in kinds.values() for path in each]
        chosen = folder / among[int(case["which"] * len(among))]
        chosen.write_bytes(_changed(chosen.read_bytes(), case))
        done = compare(data, ["late", "concat"], seeds=2, out=folder, **QUICK) if case["again"] else reopen(folder)
        found = done.table("markdown")
        assert "nan" not in found
        if "edits" not in case and "inside" not in case:  # bytes that were damaged without a right checksum
            assert chosen.name == "plan.json" or found == table, "a damaged result changed the table"
        assert [path.name for path in Path(around).iterdir()] == ["run"]


def _changed(content: bytes, case: dict[str, Any]) -> bytes:
    if "damage" in case:
        return damage(content, case["damage"])
    if "inside" in case:
        return damage_inside(content, case["member"], case["inside"])
    try:
        return json.dumps(edited(json.loads(content), case["edits"])).encode()
    except ValueError:
        return damage(content, [["cut", case["member"]]])


def valid_folders() -> list[dict[str, Any]]:
    """The folder as it was written, opened and continued."""
    common = {"kind": "plan.json", "which": 0.0, "member": 0.0, "edits": []}
    return [{**common, "again": again} for again in (False, True)]


register(
    Fuzzer("run folders", "files", draw_folder, run_folder, seconds=120, examples=25, valid=valid_folders),
)


@cache
def checkpoint() -> bytes:
    """The checkpoint of a training run after two of four epochs."""
    folder = Path(_home().name) / "checkpoints"
    _train(folder, stop=2)
    return _files(folder)[0].read_bytes()


class Stopped(Exception):
    """Ends a training run before its last epoch."""


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _train(folder: Path, stop: int | None = None) -> np.ndarray:
    from consilience import FusionClassifier
    from consilience.training import Callback

    class Stop(Callback):
        def on_epoch_start(self, run: Any) -> None:
            if run.epoch == stop:
                raise Stopped

    rng, y = np.random.default_rng(0), np.arange(40) % 2
    X = {"a": y[:, None] + rng.normal(size=(40, 2)), "b": rng.normal(size=(40, 3))}
    training = {"checkpoint": str(folder), "checkpoint_seconds": 0}
    model = FusionClassifier(
        "concat", settings={"width": 4}, epochs=4, validation=None, device="cpu", training=training, callbacks=[Stop()]
    )
    try:
        return model.fit(X, y).predict_proba(X)
    except Stopped:
        return np.zeros(0)


@cache
def _where() -> Path:
    checkpoint()
    return _files(Path(_home().name) / "checkpoints")[0].relative_to(Path(_home().name) / "checkpoints")


def draw_checkpoint(random: Random) -> dict[str, Any]:
    """Draw damage to the file, or to what is packed in it."""
    return {"inside": random.random() < 0.6, "member": random.random(), "damage": draw_damage(random)}


def run_checkpoint(case: dict[str, Any]) -> None:
    """Continue training from a damaged checkpoint."""
    whole = checkpoint()
    content = damage_inside(whole, case["member"], case["damage"]) if case["inside"] else damage(whole, case["damage"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _where()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        assert np.isfinite(_train(Path(folder))).all(), "probabilities are not finite"


def valid_checkpoints() -> list[dict[str, Any]]:
    """The checkpoint as it was written."""
    return [{"inside": False, "member": 0.0, "damage": []}]


register(
    Fuzzer("checkpoints", "files", draw_checkpoint, run_checkpoint, seconds=60, examples=25, valid=valid_checkpoints),
)
