"""Hostile requests to `consilience serve`, through a client in this process.

An answer is right, or a refusal: a status from 400 to 499 with one line that names no file and no line of code. After
each request a usual one is answered as before. A table's rows are asked for once more in reverse order, and must get
the same predictions.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import polars as pl

from fuzz.fuzzers import REFUSED, Fuzzer, register
from fuzz.mutations import EDGES, WORDS, damage, draw_damage, draw_edits, edited

N = 60
QUICK: dict[str, Any] = {"epochs": 1, "device": "cpu", "verbose": 0, "random_state": 0}
KEY = "0123456789abcdef0123"
LIMITS: dict[str, Any] = {"max_rows": 40, "max_body": 0.25, "timeout": 600.0}
TOLERANCE = 1e-5
# What no answer may hold: places in files, and what Python says of its own errors.
_TELLS = re.compile(r"Traceback|\.py\b|/tmp/|/home/|/usr/|site-packages|line \d+, in|<[a-z_.]+ object at|0x[0-9a-f]{8}")
_ROW = {"vibration_0": 1.2, "vibration_1": -0.5, "temp_0": 20.5, "mode": "idle", "note": "a strange noise"}
_MOTION = [[0.1 * step, -0.2] for step in range(5)]
_HEADERS = ("content-length", "inference-header-content-length", "content-encoding", "content-type", "host")
_VALUES = (
    "",
    "0",
    "-1",
    "1",
    "7",
    "99999999999999999999",
    "gzip",
    "x" * 3000,
    "\xff",
    "text/html",
    "1e3",
    "evil.example",
)


def _table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    state = np.arange(N) % 3
    return pl.DataFrame(
        {
            **{f"vibration_{n}": rng.normal(size=N) + state for n in range(2)},
            "temp_0": 20 + rng.normal(size=N) - state,
            "mode": np.array(["idle", "run"])[rng.integers(2, size=N)],
            "note": np.array(["all fine", "a strange noise", "oil leaks"])[state],
            "state": np.array(["ok", "worn", "leak"])[state],
            "hours": 10.0 * state + rng.normal(size=N),
        }
    )


@cache
def client(keys: bool = False) -> Any:
    """A client of three models: machines (a table, classes, watched), hours (a number), arrays (a sequence, tokens)."""
    import consilience as cs
    from consilience.serving import ModelStore, ServingSettings
    from consilience.serving.api_keys import read_keys
    from serving.conftest import COLUMNS, Client

    folder = Path(_home().name)
    if not (folder / "arrays").exists():
        table, kinds = _table(), {"note": "text"}
        for name, target, other in (("machines", "state", "hours"), ("hours", "hours", "state")):
            table.drop(other).write_csv(folder / f"{name}.csv")
            data = cs.load_data(folder / f"{name}.csv", target=target, modalities=COLUMNS, kinds=kinds)
            made: Any = cs.FusionClassifier if target == "state" else cs.FusionRegressor
            method = "bayes" if target == "state" else "late"
            made(method, **QUICK).fit(data.train).calibrate(data.samples).save(folder / name)
        table.drop("state", "hours").write_csv(folder / "reference.csv")
        rng, y = np.random.default_rng(1), np.arange(N) % 2
        X = {
            "motion": rng.normal(size=(N, 5, 2)),
            "level": rng.normal(size=(N, 3)),
            "words": rng.integers(1, 9, (N, 4)),
        }
        cs.FusionClassifier("concat", kinds={"words": "tokens"}, **QUICK).fit(X, y).save(folder / "arrays")
        (folder / "keys.txt").write_text(f"ann {KEY}\nbob fedcba98765432100000 2020-01-31\n")
    folders = {name: folder / name for name in ("machines", "hours", "arrays")}
    store = ModelStore(folders, ServingSettings(**LIMITS), references={"machines": str(folder / "reference.csv")})
    known = read_keys(folder / "keys.txt") if keys else ()
    return Client(store, keys=lambda: known, hosts={"127.0.0.1"})


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="served-")


def bases() -> dict[str, dict[str, Any]]:
    """Valid requests, by what they are of."""
    post = {"method": "POST", "headers": {}}
    rows = {"rows": [_ROW, {"note": "oil leaks"}, {**_ROW, "mode": None, "temp_0": 3}]}
    motion = {"name": "motion", "shape": [2, 5, 2], "datatype": "FP64", "data": [*_MOTION, *_MOTION]}
    level = {"name": "level", "shape": [2, 3], "datatype": "FP32", "data": [0.5, 0.0, 1, 1.5, 0, -2]}
    words = {"name": "words", "shape": [2, 4], "datatype": "INT64", "data": [[1, 2, 3, 4], [5, 6, 7, 8]]}
    lengths = {"name": "motion.lengths", "shape": [2], "datatype": "INT64", "data": [5, 3]}
    note = {"name": "note", "shape": [2], "datatype": "BYTES", "data": ["all fine", ""]}
    asked = [{"name": "label", "parameters": {"binary_data": True}}, {"name": "probabilities"}]
    array = {"motion": _MOTION, "level": [0.5, 0.0, 1.0], "words": [1, 2, 3, 4]}
    return {
        "rows": {**post, "path": "/v1/models/machines/predict", "json": rows},
        "numbers": {**post, "path": "/v1/models/hours/predict", "json": rows},
        "arrays": {**post, "path": "/v1/models/arrays/predict", "json": {"rows": [array, {"level": [1, 2, 3]}]}},
        "tensors": {
            **post,
            "path": "/v2/models/arrays/infer",
            "json": {"id": "7", "inputs": [motion, level, words, lengths], "parameters": {"binary_data_output": False}},
        },
        "texts": {**post, "path": "/v2/models/machines/infer", "json": {"inputs": [note], "outputs": asked}},
        "binary": {
            **post,
            "path": "/v2/models/arrays/infer",
            "json": {
                "inputs": [
                    {"name": "level", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}},
                    {"name": "words", "shape": [2, 4], "datatype": "UINT8", "parameters": {"binary_data_size": 8}},
                ]
            },
            "content": base64.b64encode(struct.pack("<6f8B", *range(6), *range(1, 9))).decode(),
        },
        "strings": {
            **post,
            "path": "/v2/models/machines/infer",
            "json": {
                "inputs": [{"name": "note", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 18}}]
            },
            "content": base64.b64encode(b"\x04\0\0\0fine\x06\0\0\0leaks!").decode(),
        },
        **{
            path: {"method": "GET", "headers": {}, "path": path}
            for path in (
                "/v2",
                "/v2/models/machines",
                "/v1/models",
                "/metrics",
                "/v2/health/live",
                "/v2/models/hours/ready",
            )
        },
    }


def draw(random: Random) -> dict[str, Any]:
    """Draw a request, and what is changed in its JSON, its bytes, its headers and its address."""
    case: dict[str, Any] = {"base": random.choice(list(bases())), "keys": random.random() < 0.1}
    if random.random() < 0.7:
        case["edits"] = draw_edits(random, 3)
    if random.random() < 0.25:
        case["damage"] = draw_damage(random)
    if random.random() < 0.3:
        case["binary damage"] = draw_damage(random)
    if random.random() < 0.15:
        case["cell"] = [random.random(), random.choice(("NaN", "-Infinity", "1e999", "1" * 400, *WORDS))]
    if random.random() < 0.15:
        case["headers"] = {random.choice(_HEADERS): random.choice((*_VALUES, str(random.choice(EDGES))))}
    if random.random() < 0.1:
        case["path"] = draw_damage(random, 1)
    if random.random() < 0.1:
        case["method"] = random.choice(("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "POST", "X" * 300))
    if case["keys"]:
        case["key"] = random.choice((KEY, KEY[:-1], "fedcba98765432100000", "", "\xff" * 20, f"{KEY} {KEY}"))
    if random.random() < 0.05:
        case["repeated"] = random.choice((20, 41, 3000))
    return case


def request(case: dict[str, Any]) -> dict[str, Any]:
    """The request of a case, as the client takes it."""
    base = bases()[case["base"]]
    headers = dict(base["headers"])
    content = b""
    if "json" in base:
        value = edited(base["json"], case.get("edits", []))
        if "repeated" in case and isinstance(value.get("rows"), list):
            value["rows"] = value["rows"] * case["repeated"]
        text = json.dumps(value)
        if "cell" in case:  # something in place of a number, as a careless client writes it
            numbers = list(re.finditer(r"-?\d+\.\d+|\bnull\b|\d+", text))
            if numbers:
                found = numbers[min(int(case["cell"][0] * len(numbers)), len(numbers) - 1)]
                text = text[: found.start()] + case["cell"][1] + text[found.end() :]
        content = text.encode("utf-8", "surrogatepass")
        if "content" in base:
            headers["inference-header-content-length"] = str(len(content))
            binary = base64.b64decode(base["content"])
            content += damage(binary, case["binary damage"]) if "binary damage" in case else binary
    if "damage" in case:
        content = damage(content, case["damage"])
    path = base["path"]
    if "path" in case:
        path = "/" + damage(path.encode(), case["path"]).decode("latin-1").lstrip("/")
        path = "".join(letter if letter.isprintable() and letter.isascii() else "%00" for letter in path)
    if "key" in case:
        headers["x-api-key"] = case["key"]
    headers |= case.get("headers", {})
    encoded = {name: value.encode("latin-1", "replace") for name, value in headers.items()}
    return {"method": case.get("method", base["method"]), "path": path, "headers": encoded, "content": content}


def run(case: dict[str, Any]) -> str | None:
    """Ask, judge the answer, and ask for something usual."""
    asked = request(case)
    with suppress(httpx.InvalidURL, httpx.LocalProtocolError):  # what the client itself cannot send
        return _ask(case, asked)
    return REFUSED


def _ask(case: dict[str, Any], asked: dict[str, Any]) -> str | None:
    sent = {"headers": asked["headers"], "content": asked["content"]}
    answer = client(case["keys"]).ask(asked["method"], asked["path"], **sent)
    outcome = judge(answer, asked)
    check_usual(case["keys"])
    if outcome is None and case["base"] in ("rows", "numbers") and asked["path"].endswith("/predict"):
        check_reversed(case["keys"], asked, answer.json())
    return outcome


def judge(answer: Any, asked: dict[str, Any]) -> str | None:
    """Whether an answer is one that a server may give; returns "refused" for a refusal."""
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, f"{answer.status_code}: {answer.text[:300]}"
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
    assert answer.headers["x-content-type-options"] == "nosniff"
    if asked["method"] == "HEAD":
        return None if answer.status_code == 200 else REFUSED
    if answer.status_code != 200:
        said = answer.json()
        assert set(said) == {"error"}, said
        assert said["error"].strip()
        assert "\n" not in said["error"]
        assert len(said["error"]) < 1100
        assert not (told := _told(said["error"], asked)), f"{told!r} in {said['error']}"
        return REFUSED
    if answer.headers["content-type"].startswith("application/json"):
        check_numbers(json.loads(answer.text, parse_constant=_no_constant))
    return None


def _told(reason: str, asked: dict[str, Any]) -> str:
    """What a reason tells of files and code, unless it quotes the request."""
    sent = (asked["content"] + asked["path"].encode()).decode("latin-1")
    return next((found[0] for found in _TELLS.finditer(reason) if found[0] not in sent), "")


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no number in JSON")


def check_numbers(said: Any) -> None:
    """Check the predictions of an answer in JSON: shares sum to 1, and a label is a known one with the largest."""
    if not isinstance(said, dict):
        return
    for row in said.get("predictions", ()):
        if "probabilities" in row:
            shares = row["probabilities"]
            assert all(0 <= share <= 1 for share in shares.values()), shares
            assert math.isclose(sum(shares.values()), 1, abs_tol=1e-6), shares
            assert math.isclose(shares[str(row["label"])], max(shares.values()), abs_tol=1e-6), row
        else:
            assert row["value"] is not None, row
        if "trust" in row and any(row["trust"].values()):
            assert math.isclose(sum(row["trust"].values()), 1, abs_tol=1e-6), row
    for tensor in said.get("outputs", ()):
        if "data" in tensor:
            assert len(tensor["data"]) == math.prod(tensor["shape"]), tensor


def check_usual(keys: bool) -> None:
    """Check that a usual request is answered as the first time."""
    headers = {"x-api-key": KEY} if keys else {}
    found = client(keys).post("/v1/models/machines/predict", json={"rows": [_ROW]}, headers=headers)
    assert found.status_code == 200, found.text
    check_same(found.json()["predictions"], _usual(keys))


@cache
def _usual(keys: bool) -> Any:
    headers = {"x-api-key": KEY} if keys else {}
    answer = client(keys).post("/v1/models/machines/predict", json={"rows": [_ROW]}, headers=headers)
    return answer.json()["predictions"]


def check_reversed(keys: bool, asked: dict[str, Any], said: dict[str, Any]) -> None:
    """Check that the rows in the other order get the same predictions."""
    rows = json.loads(asked["content"])["rows"]
    assert len(said["predictions"]) == len(rows)
    turned = json.dumps({"rows": rows[::-1]}).encode("utf-8", "surrogatepass")
    answer = client(keys).ask(asked["method"], asked["path"], headers=asked["headers"], content=turned)
    assert answer.status_code == 200, answer.text
    check_same(answer.json()["predictions"][::-1], said["predictions"])


def check_same(found: Any, expected: Any) -> None:
    """Check that two answers agree, numbers to 1e-5."""
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            check_same(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            check_same(one, other)
    elif isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE), f"{found} is not {expected}"
    else:
        assert found == expected


def valid() -> list[dict[str, Any]]:
    """Every request as it is meant."""
    return [{"base": name, "keys": False} for name in bases()] + [{"base": "rows", "keys": True, "key": KEY}]


register(Fuzzer("served requests", "requests", draw, run, seconds=60, examples=100, valid=valid))
