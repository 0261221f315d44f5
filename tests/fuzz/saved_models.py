"""Saved models that were changed, with checksums that fit: they predict finite numbers, or are refused."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, draw_damage, draw_edits, edited, packed
from resealed_models import reseal

N = 48
QUICK: dict[str, Any] = {"epochs": 1, "validation": None, "device": "cpu"}
PARTS = ("model.json", "weights.safetensors", "experts.skops")


def inputs() -> dict[str, Any]:
    """Two vectors, a sequence and a text."""
    rng, y = np.random.default_rng(0), labels()
    return {
        "a": rng.normal(size=(N, 3)) + y[:, None],
        "b": rng.normal(size=(N, 2)),
        "steps": rng.normal(size=(N, 4, 2)),
        "text": np.array(["a red square", "the blue one", "green"], dtype=object)[y],
    }


def labels() -> np.ndarray:
    return np.arange(N) % 3


def opinions() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: 2 * np.eye(3)[labels()] + rng.normal(size=(N, 3)) for name in ("a", "b")}


def _classifier(method: str, names: str = "a b", **given: Any) -> Callable[[], Any]:
    def make() -> Any:
        from consilience import FusionClassifier

        X = {name: inputs()[name] for name in names.split()}
        return FusionClassifier(method, **QUICK, **given).fit(X, np.array(["no", "yes", "perhaps"])[labels()])

    return make


def _regressor() -> Any:
    from consilience import FusionRegressor

    X = {name: inputs()[name] for name in ("a", "b")}
    return FusionRegressor("late", **QUICK).fit(X, labels() + 0.5).calibrate(X, labels() + 0.5)


def _frame_classifier() -> Any:
    import pandas as pd

    from consilience import FusionClassifier

    X = inputs()
    frame = pd.DataFrame({"a0": X["a"][:, 0], "a1": X["a"][:, 1], "colour": X["text"]})
    return FusionClassifier("late", columns={"a": ["a0", "a1"], "b": ["colour"]}, **QUICK).fit(frame, labels())


def _bayes(**given: Any) -> Callable[[], Any]:
    def make() -> Any:
        from consilience import BayesFusion

        return BayesFusion(**given).fit(opinions(), labels())

    return make


def _experts(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.tree import DecisionTreeClassifier

        from consilience import BayesFusion

        expert = LogisticRegression() if name == "linear" else DecisionTreeClassifier(max_depth=3, random_state=0)
        return BayesFusion(experts=expert).fit({name: inputs()[name] for name in ("a", "b")}, labels())

    return make


def _latent() -> Any:
    from consilience import MultimodalVAE

    return MultimodalVAE(latent=2, **QUICK).fit({name: inputs()[name] for name in ("a", "b")})


MODELS: dict[str, Callable[[], Any]] = {
    **{name: _classifier(name) for name in ("late", "concat", "bayes-robust", "qmf", "tmc", "m2vae", "pro:concat")},
    "mlp": _classifier("concat", encoders={"a": {"name": "mlp", "hidden": [4]}}),
    "wide": _classifier("wide:concat", settings={"width": 4}),
    "imputed": _classifier("late", impute={"latent": 2}),
    "sequences": _classifier("lf-transformer", "steps a"),
    "words": _classifier("concat", "text a steps"),
    "regression": _regressor,
    "frame": _frame_classifier,
    "opinions": _bayes(),
    "reliability": _bayes(reliability="auto", target_prior="em"),
    "linear": _experts("linear"),
    "tree": _experts("tree"),
    "latent": _latent,
    "encoder": _latent,
}


@cache
def saved(name: str) -> Path:
    """The folder of a model, trained once in this process."""
    path = Path(_home().name) / name.replace(":", "-")
    model = MODELS[name]()
    return model.export_encoder("a", path) if name == "encoder" else model.save(path)


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="saved-")


def draw(random: Random) -> dict[str, Any]:
    """Draw a model, one of its files, and what is changed in it."""
    name = random.choice(list(MODELS))
    with_experts = name in ("linear", "tree")
    part = random.choice(PARTS[: 3 if with_experts else 2] + PARTS[:1])
    case: dict[str, Any] = {"model": name, "part": part, "sealed": random.random() > 0.1}
    structured = part == PARTS[0] or random.random() > 0.3
    case |= {"edits": draw_edits(random)} if structured else {"damage": draw_damage(random)}
    return case | {"member": random.random()}


def run(case: dict[str, Any]) -> None:
    """Change a copy of a model, load it, and predict."""
    with tempfile.TemporaryDirectory() as around:
        folder = shutil.copytree(saved(case["model"]), Path(around) / "model")
        file = folder / case["part"]
        before = file.read_bytes()
        file.write_bytes(changed(before, case))
        if case["sealed"]:
            reseal_any(folder)
        kept = {path.name: path.read_bytes() for path in folder.iterdir()}
        predict(folder)
        assert [path.name for path in Path(around).iterdir()] == ["model"], "loading wrote beside the folder"
        assert kept == {path.name: path.read_bytes() for path in folder.iterdir()}, "loading changed the folder"
        assert case["sealed"] or _same(before, file.read_bytes()), "a changed file was read without a right checksum"


def changed(content: bytes, case: dict[str, Any]) -> bytes:
    """The changed content of a file: JSON by its values, safetensors by its header, skops by a member."""
    if "damage" in case:
        if content[:2] != b"PK":
            return damage(content, case["damage"])
        return _in_archive(content, case["member"], lambda data, _: damage(data, case["damage"]))
    if case["part"] == "weights.safetensors":
        size = struct.unpack("<Q", content[:8])[0]
        header = json.dumps(edited(json.loads(content[8 : 8 + size]), case["edits"])).encode()
        return struct.pack("<Q", len(header)) + header + content[8 + size :]
    if case["part"] == "experts.skops":
        return _in_archive(content, None, lambda data, _: json.dumps(edited(json.loads(data), case["edits"])).encode())
    return json.dumps(edited(json.loads(content), case["edits"])).encode()


def _in_archive(content: bytes, member: float | None, change: Callable[[bytes, str], bytes]) -> bytes:
    """Change one file of a zip archive, by its share of their number; None: `schema.json`."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    chosen = "schema.json" if member is None else list(files)[int(member * len(files))]
    return packed({**files, chosen: change(files[chosen], chosen)})


def reseal_any(folder: Path) -> None:
    """Seal a changed model again; a description that is no mapping any more cannot be sealed, and stays."""
    described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if isinstance(described, dict):
        reseal(folder)


def _same(first: bytes, second: bytes) -> bool:
    if hashlib.sha256(first).digest() == hashlib.sha256(second).digest():
        return True
    try:
        return bool(json.loads(first) == json.loads(second))
    except ValueError:
        return False


def predict(folder: Path) -> None:
    """Load a model and use it on what it was trained on; every number must be finite."""
    import pandas as pd

    from consilience import load

    model, X = load(folder), inputs()
    kind = type(model).__name__
    if kind == "SingleEncoder":
        outputs = {"mean": model.encode(X["a"])[0], "variance": model.encode(X["a"])[1]}
    elif kind == "MultimodalVAE":
        given = {name: X[name] for name in ("a", "b")}
        outputs = {"mean": model.encode(given)[0], **model.sample(3), **model.generate(["b"], given={"a": X["a"]})}
    elif kind == "BayesFusion":
        given = {name: X[name] for name in ("a", "b")} if hasattr(model, "experts_") else opinions()
        outputs = {"probabilities": model.predict_proba(given), "trust": model.trust(given)}
        assert set(model.predict(given)) <= set(model.classes_)
    else:
        columns = getattr(model, "columns", None)
        frame = pd.DataFrame({"a0": X["a"][:, 0], "a1": X["a"][:, 1], "colour": X["text"]})
        given = frame if columns else {name: X[name] for name in model.modalities_ if name in X}
        if kind == "FusionClassifier":
            outputs = {"probabilities": model.predict_proba(given)}
            assert set(model.predict(given)) <= set(model.classes_)
        else:
            outputs = {"numbers": model.predict(given), "ends": model.predict_interval(given, 0.5, "normalised")}
        outputs["contributions"] = model.explain(given).contributions.values
    for name, values in outputs.items():
        assert np.isfinite(np.asarray(values, dtype=float)).all(), f"{name} are not finite"
    if "probabilities" in outputs:
        np.testing.assert_allclose(outputs["probabilities"].sum(axis=1), 1, rtol=1e-4)


def valid() -> list[dict[str, Any]]:
    """Every model as it was saved."""
    return [{"model": name, "part": PARTS[0], "sealed": False, "edits": [], "member": 0.0} for name in MODELS]


register(Fuzzer("saved models", "models", draw, run, seconds=60, examples=60, valid=valid))
