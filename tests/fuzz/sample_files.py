"""A valid sample of each format that the library reads, as bytes by the names of the files."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import wave
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.mutations import packed

N = 40
PROTOCOL = """\
title: Do noisy halves of a signal hurt concatenation more than late fusion?
paper: Somebody 2020, table 3
defaults:
  methods: [late, concat, bayes]
  reference: late
  corruption: [gaussian, missing]
  levels: [0, 5]
  seeds: 10
  training: {epochs: 20, lr: 1e-2}
  settings: {concat: {width: 8}}
  quick: {seeds: 2, training: {epochs: 2}}
parts:
  independent: {title: Independent modalities, data: gaussians, n: 300}
  dependent: {title: Dependent modalities, data: gaussians, n: 300, dependence: 0.5}
published:
  independent:
    clean: {late: 0.81, concat: [0.82, 0.79]}
    gaussian 5: {late: 0.72}
claims:
  - {says: 'Under noise, late fusion is better', part: independent, method: late, than: concat, at: gaussian 5}
sections:
  - {kind: areas, baseline: late}
notes:
  - The paper does not say how many samples it has.
  - {text: known}
texts: {known: Something known}
"""


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _labels() -> np.ndarray:
    return np.arange(N) % 3


def frame() -> Any:
    import polars as pl

    rng, y = _rng(), _labels()
    columns: dict[str, Any] = {f"a{place}": np.round(rng.normal(size=N) + y, 3) for place in range(3)}
    columns["b1"] = [None if row % 9 == 4 else row * 7 % 5 for row in range(N)]
    columns["b2"] = [("red", "green, or blue", 'say "x"')[label] for label in rng.integers(0, 3, N)]
    columns["text"] = [f"the {'cat sat' if label else 'dog'} number {row}" for row, label in enumerate(y)]
    columns["y"] = [f"class{label}" for label in y]
    columns["part"] = [("train", "train", "validation", "test")[row % 4] for row in range(N)]
    return pl.DataFrame(columns)


def arrays() -> dict[str, np.ndarray]:
    rng, y = _rng(), _labels()
    return {
        "image": rng.normal(size=(N, 1, 4, 4)).astype(np.float32) + y[:, None, None, None],
        "sound": rng.normal(size=(N, 5, 2)),
        "sound_lengths": rng.integers(1, 6, N),
        "word": rng.integers(0, 9, size=(N, 2)).astype(np.int16),
        "y": np.array(["no", "yes", "perhaps"])[y],
        "split": np.array(["train", "train", "test", "validation"])[np.arange(N) % 4],
    }


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(arrays: dict[str, np.ndarray], compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def write_matlab(compressed: bool) -> dict[str, bytes]:
    from scipy.io import savemat

    rng, stream = _rng(), io.BytesIO()
    parts = {"train": 30, "test": 12}
    content: dict[str, Any] = {f"gt_{part}": np.arange(n)[:, None] % 3 for part, n in parts.items()}
    content |= {f"x{view}_{part}": rng.normal(size=(n, 2 + view)) for view in (1, 2) for part, n in parts.items()}
    content["x2_train"][:, 0] = 0
    savemat(
        stream, {**content, "name": "a name", "cells": np.array([[1, "x"]], dtype=object)}, do_compression=compressed
    )
    return {"data.mat": stream.getvalue()}


def write_pickle(protocol: int) -> dict[str, bytes]:
    rng = _rng()
    parts = {
        part: {
            "text": rng.normal(size=(n, 6, 3)).astype(np.float32),
            "vision": rng.normal(size=(n, 6, 2)),
            "audio": rng.normal(size=(n, 6, 2)),
            "labels": rng.uniform(-3, 3, size=(n, 1, 1)),
            "id": [[f"video{row}", 0.5, row] for row in range(n)],
        }
        for part, n in (("train", 8), ("valid", 4), ("test", 4))
    }
    return {"mosi_data.pkl": pickle.dumps(parts, protocol)}


def write_r(pack: Callable[[bytes], bytes]) -> dict[str, bytes]:
    from r_files import factor, matrix, named, saved

    rng, parts = _rng(), {}
    for part, n in (("data.train", 12), ("data.test", 6)):
        names = ("mirna", "mrna", "protein") if part == "data.train" else ("mirna", "mrna")
        held = {name: matrix(rng.normal(size=(n, 3 + place))) for place, name in enumerate(names)}
        parts[part] = named({**held, "subtype": factor(np.array(["Basal", "Her2", "LumA"])[np.arange(n) % 3])})
    return {"breast.TCGA.rda": pack(saved({"breast.TCGA": named(parts)}))}


def write_json_lines() -> dict[str, bytes]:
    lines = [json.dumps({"text": f"it is {row}", "label": "positive", "n": row}) for row in range(12)]
    return {"data.jsonl": "\n".join(lines).encode()}


def write_picture(kind: str, mode: str) -> dict[str, bytes]:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(_rng().integers(0, 255, size=(12, 18, 3), dtype=np.uint8)).convert(mode).save(stream, kind)
    return {f"picture.{kind}": stream.getvalue()}


def write_recordings(zipped: bool) -> dict[str, bytes]:
    files = {}
    for row in range(3):
        stream = io.BytesIO()
        with wave.open(stream, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(_rng().integers(-999, 999, 50 + row).astype("<i2").tobytes())
        files[f"{row}_jackson_{row}.wav"] = stream.getvalue()
    return {"recordings.zip": packed(files)} if zipped else files


def write_idx() -> dict[str, bytes]:
    header = bytes((0, 0, 8, 3)) + b"".join(size.to_bytes(4, "big") for size in (5, 4, 4))
    return {"images.gz": gzip.compress(header + bytes(range(80)), mtime=0)}


def write_config() -> dict[str, bytes]:
    text = (
        "data: [digits]\nmethods: [late, concat]\nseeds: 3\nlevels: [0, 5.0]\ncorruption: [gaussian]\nepochs: 2\n"
        "out: runs/x\nreference: late\nencoder: [a=mlp]\njobs: 1\nlr: 1e-3\n"
    )
    return {"config.yaml": text.encode()}


def write_vectors() -> dict[str, bytes]:
    lines = [
        " ".join([word, *(f"{number:.3f}" for number in _rng().normal(size=4))]) for word in ("the", "Cat", "DOG", "é")
    ]
    return {"vectors.txt": "\n".join(["4 4", *lines]).encode()}


def write_table(ending: str) -> dict[str, bytes]:
    stream = io.BytesIO()
    if ending == "parquet":
        frame().write_parquet(stream)
    else:
        frame().write_csv(stream, separator="\t" if "tsv" in ending else ",")
    content = stream.getvalue()
    return {f"data.{ending}": gzip.compress(content, mtime=0) if ending.endswith("gz") else content}


def write_opinions(ending: str) -> dict[str, bytes]:
    import polars as pl

    rng, y = _rng(), _labels()
    logits = {name: 2 * np.eye(3)[y] + rng.normal(size=(N, 3)) for name in ("image", "sound")}
    if ending == "npy":
        return {f"{name}.npy": npy(values) for name, values in logits.items()} | {"labels.npy": npy(y)}
    if ending == "npz":
        return {"both.npz": npz({**logits, "label": y})}
    files = {}
    frames = {
        name: pl.DataFrame({f"c{place}": values[:, place] for place in range(3)}) for name, values in logits.items()
    }
    for name, frame in {**frames, "labels": pl.DataFrame({"label": [f"c{label}" for label in y]})}.items():
        stream = io.BytesIO()
        frame.write_csv(stream) if ending == "csv" else frame.write_parquet(stream)
        files[f"{name}.{ending}"] = stream.getvalue()
    return files
