"""Damaged files of every format that the library reads: the content is read consistently, or the file is refused.

A sample of each format is written here, then its bytes, or those inside of its archive, are damaged.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import lzma
import pickle
import tempfile
import wave
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, damage_inside, draw_damage

N = 40


@dataclass(frozen=True)
class Format:
    """A format: the files of a valid sample by name, and what reads them from a folder and checks the result."""

    write: Callable[[], dict[str, bytes]]
    read: Callable[[Path], None]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _labels() -> np.ndarray:
    return np.arange(N) % 3


def _frame() -> Any:
    import polars as pl

    rng, y = _rng(), _labels()
    columns: dict[str, Any] = {f"a{place}": np.round(rng.normal(size=N) + y, 3) for place in range(3)}
    columns["b1"] = [None if row % 9 == 4 else row * 7 % 5 for row in range(N)]
    columns["b2"] = [("red", "green, or blue", 'say "x"')[label] for label in rng.integers(0, 3, N)]
    columns["text"] = [f"the {'cat sat' if label else 'dog'} number {row}" for row, label in enumerate(y)]
    columns["y"] = [f"class{label}" for label in y]
    columns["part"] = [("train", "train", "validation", "test")[row % 4] for row in range(N)]
    return pl.DataFrame(columns)


_COLUMNS: dict[str, Any] = {"a": ["a0", "a1", "a2"], "b": "b*"}


def _table(ending: str) -> Format:
    def write() -> dict[str, bytes]:
        stream = io.BytesIO()
        if ending == "parquet":
            _frame().write_parquet(stream)
        else:
            _frame().write_csv(stream, separator="\t" if "tsv" in ending else ",")
        content = stream.getvalue()
        return {f"data.{ending}": gzip.compress(content, mtime=0) if ending.endswith("gz") else content}

    def read(folder: Path) -> None:
        from consilience import load_data
        from consilience.data.loading import read_with_recipe

        path = folder / f"data.{ending}"
        check_set(load_data(path, target="y", modalities=_COLUMNS, fill="median"))
        check_set(
            load_data(
                path,
                target="y",
                modalities={**_COLUMNS, "text": "text"},
                kinds={"text": "text"},
                split="part",
                fill="zero",
            )
        )  # noqa: E501
        check_samples(read_with_recipe(_recipe("table"), path))

    return Format(write, read)


def _arrays() -> dict[str, np.ndarray]:
    rng, y = _rng(), _labels()
    return {
        "image": rng.normal(size=(N, 1, 4, 4)).astype(np.float32) + y[:, None, None, None],
        "sound": rng.normal(size=(N, 5, 2)),
        "sound_lengths": rng.integers(1, 6, N),
        "word": rng.integers(0, 9, size=(N, 2)).astype(np.int16),
        "y": np.array(["no", "yes", "perhaps"])[y],
        "split": np.array(["train", "train", "test", "validation"])[np.arange(N) % 4],
    }


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _npz(arrays: dict[str, np.ndarray], compressed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def _read_arrays(path: Path) -> None:
    from consilience import load_data
    from consilience.data.loading import read_with_recipe

    check_set(load_data(path))
    check_samples(read_with_recipe(_recipe("arrays"), path))


@cache
def _recipe(format: str) -> dict[str, Any]:
    """The recipe of an undamaged set."""
    from consilience import load_data

    with tempfile.TemporaryDirectory() as folder:
        if format == "arrays":
            path = Path(folder) / "data.npz"
            path.write_bytes(_npz(_arrays()))
            return load_data(path).recipe()
        _frame().write_parquet(Path(folder) / "data.parquet")
        return load_data(Path(folder) / "data.parquet", target="y", modalities=_COLUMNS, fill="median").recipe()


def _write_matlab(compressed: bool) -> dict[str, bytes]:
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


def _read_matlab(folder: Path) -> None:
    from consilience import load_data
    from consilience.data.files.matlab import read_new_views

    check_set(load_data(folder / "data.mat"))
    views, _ = read_new_views(folder / "data.mat")
    assert len({len(view) for view in views.values()}) == 1


def _write_pickle(protocol: int) -> dict[str, bytes]:
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


def _read_pickle(folder: Path) -> None:
    from consilience.data.files.array_pickles import read_sequences_pickle
    from consilience.data.sets.cmu_sequences import mosi_sequences

    assert isinstance(
        read_sequences_pickle(folder / "mosi_data.pkl"),
        dict | list | tuple | str | bytes | int | float | np.ndarray | np.generic | None,
    )  # noqa: E501
    check_set(mosi_sequences(folder))


def _write_r(pack: Callable[[bytes], bytes]) -> dict[str, bytes]:
    from r_files import factor, matrix, named, saved

    rng, parts = _rng(), {}
    for part, n in (("data.train", 12), ("data.test", 6)):
        names = ("mirna", "mrna", "protein") if part == "data.train" else ("mirna", "mrna")
        held = {name: matrix(rng.normal(size=(n, 3 + place))) for place, name in enumerate(names)}
        parts[part] = named({**held, "subtype": factor(np.array(["Basal", "Her2", "LumA"])[np.arange(n) % 3])})
    return {"breast.TCGA.rda": pack(saved({"breast.TCGA": named(parts)}))}


def _read_r(folder: Path) -> None:
    from consilience.data.files.r_data import read_r_data
    from consilience.data.sets.breast_tcga import breast_tcga

    assert isinstance(read_r_data(folder / "breast.TCGA.rda"), dict)
    check_set(breast_tcga(folder))


def _write_json_lines() -> dict[str, bytes]:
    lines = [json.dumps({"text": f"it is {row}", "label": "positive", "n": row}) for row in range(12)]
    return {"data.jsonl": "\n".join(lines).encode()}


def _read_json_lines(folder: Path) -> None:
    from consilience.data.files.json_lines import read_json_lines

    for item in read_json_lines(folder / "data.jsonl", ["text", "label"]):
        assert isinstance(item["text"], str)
        assert isinstance(item["label"], str)


def _write_picture(kind: str, mode: str) -> dict[str, bytes]:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(_rng().integers(0, 255, size=(12, 18, 3), dtype=np.uint8)).convert(mode).save(stream, kind)
    return {f"picture.{kind}": stream.getvalue()}


def _read_picture(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from consilience.data.files.media import load_images

        for crop in (False, True):
            images = load_images([folder / name, None], 8, parts=2, crop=crop)
            assert [image.shape for image in images] == [(2, 3, 8, 8)] * 2
            assert all(image.dtype == np.uint8 for image in images)

    return read


def _write_recordings(zipped: bool) -> dict[str, bytes]:
    from fuzz.mutations import packed

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


def _read_recordings(path: Path) -> None:
    from consilience.data.files.media import read_recordings

    for values, rate in read_recordings(path).values():
        assert values.dtype == np.int16
        assert values.ndim == 1
        assert rate >= 0


def _write_idx() -> dict[str, bytes]:
    header = bytes((0, 0, 8, 3)) + b"".join(size.to_bytes(4, "big") for size in (5, 4, 4))
    return {"images.gz": gzip.compress(header + bytes(range(80)), mtime=0)}


def _read_idx(folder: Path) -> None:
    from consilience.data.files.media import read_idx

    assert read_idx(folder / "images.gz", 3).ndim == 3


def _write_config() -> dict[str, bytes]:
    text = (
        "data: [digits]\nmethods: [late, concat]\nseeds: 3\nlevels: [0, 5.0]\ncorruption: [gaussian]\nepochs: 2\n"
        "out: runs/x\nreference: late\nencoder: [a=mlp]\njobs: 1\nlr: 1e-3\n"
    )
    return {"config.yaml": text.encode()}


def _read_config(folder: Path) -> None:
    from consilience.cli.main import parse

    command, chosen = parse(["compare", "--config", str(folder / "config.yaml")])
    assert command == "compare"
    assert chosen is not None


_PROTOCOL = """\
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


def _read_protocol(folder: Path) -> None:
    from consilience.reproduction.protocol import read_protocol

    protocol = read_protocol(folder / "protocol.yaml")
    assert protocol.parts or protocol.script
    assert isinstance(protocol.title, str)
    assert all(np.isfinite(figure.mean) for figure in protocol.published.values())


def _opinions(ending: str) -> Format:
    def write() -> dict[str, bytes]:
        import polars as pl

        rng, y = _rng(), _labels()
        logits = {name: 2 * np.eye(3)[y] + rng.normal(size=(N, 3)) for name in ("image", "sound")}
        if ending == "npy":
            return {f"{name}.npy": _npy(values) for name, values in logits.items()} | {"labels.npy": _npy(y)}
        if ending == "npz":
            return {"both.npz": _npz({**logits, "label": y})}
        files = {}
        frames = {
            name: pl.DataFrame({f"c{place}": values[:, place] for place in range(3)}) for name, values in logits.items()
        }  # noqa: E501
        for name, frame in {**frames, "labels": pl.DataFrame({"label": [f"c{label}" for label in y]})}.items():
            stream = io.BytesIO()
            frame.write_csv(stream) if ending == "csv" else frame.write_parquet(stream)
            files[f"{name}.{ending}"] = stream.getvalue()
        return files

    def read(folder: Path) -> None:
        words = ["both.npz", "--target", "label"]
        if ending != "npz":
            words = [f"image.{ending}", f"sound.{ending}", "--labels", f"labels.{ending}"]
        out = folder / "fused.npy"
        words = [str(folder / word) if "." in word else word for word in words]
        command_line(["fuse", *words, "--out", str(out)])
        if out.exists():
            fused = np.load(out)
            assert fused.ndim == 2
            assert not np.isnan(fused).any()
            np.testing.assert_allclose(
                fused.sum(axis=1) if (fused >= 0).all() else np.exp(fused).sum(axis=1), 1, rtol=1e-4
            )

    return Format(write, read)


def command_line(words: list[str]) -> int:
    """Run a command in this process: it ends with 0, or with 2 and one line on standard error."""
    from consilience.cli.main import main
    from consilience.core.errors import InputError

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(words) or 0
    lines = said.getvalue().strip().splitlines()
    assert code in (0, 2), (code, lines[-1:])
    if code == 2:
        assert lines[-1].startswith("consilience: error: "), lines
        assert not any("Traceback" in line for line in lines)
        raise InputError(lines[-1])
    return code


def _write_vectors() -> dict[str, bytes]:
    lines = [
        " ".join([word, *(f"{number:.3f}" for number in _rng().normal(size=4))]) for word in ("the", "Cat", "DOG", "é")
    ]  # noqa: E501
    return {"vectors.txt": "\n".join(["4 4", *lines]).encode()}


def _read_vectors(folder: Path) -> None:
    from consilience.encoders.bag_of_words import read_vectors

    vectors, found = read_vectors(folder / "vectors.txt", ["the", "cat", "dog", "é", "absent"])
    assert np.isfinite(vectors).all()
    assert vectors.shape[0] == len(found) == 5
    assert not vectors[~found].any()


FORMATS: dict[str, Format] = {
    **{ending: _table(ending) for ending in ("csv", "tsv", "csv.gz", "parquet")},
    "npz": Format(lambda: {"data.npz": _npz(_arrays())}, lambda folder: _read_arrays(folder / "data.npz")),
    "npz-compressed": Format(
        lambda: {"data.npz": _npz(_arrays(), True)}, lambda folder: _read_arrays(folder / "data.npz")
    ),
    "npy": Format(
        lambda: {f"data/{name}.npy": _npy(array) for name, array in _arrays().items()},
        lambda folder: _read_arrays(folder / "data"),
    ),
    "mat": Format(lambda: _write_matlab(False), _read_matlab),
    "mat-compressed": Format(lambda: _write_matlab(True), _read_matlab),
    "pickle": Format(lambda: _write_pickle(4), _read_pickle),
    "pickle-2": Format(lambda: _write_pickle(2), _read_pickle),
    "rda": Format(lambda: _write_r(lzma.compress), _read_r),
    "rda-plain": Format(lambda: _write_r(bytes), _read_r),
    "jsonl": Format(_write_json_lines, _read_json_lines),
    "png": Format(lambda: _write_picture("png", "RGB"), _read_picture("picture.png")),
    "png-palette": Format(lambda: _write_picture("png", "P"), _read_picture("picture.png")),
    "jpeg": Format(lambda: _write_picture("jpeg", "RGB"), _read_picture("picture.jpeg")),
    "wav": Format(lambda: _write_recordings(False), _read_recordings),
    "wav-zip": Format(lambda: _write_recordings(True), lambda folder: _read_recordings(folder / "recordings.zip")),
    "idx": Format(_write_idx, _read_idx),
    "config": Format(_write_config, _read_config),
    "protocol": Format(lambda: {"protocol.yaml": _PROTOCOL.encode()}, _read_protocol),
    **{f"opinions-{ending}": _opinions(ending) for ending in ("npy", "npz", "csv", "parquet")},
    "vectors": Format(_write_vectors, _read_vectors),
}


@cache
def _sample(name: str) -> dict[str, bytes]:
    return FORMATS[name].write()


def draw(random: Random) -> dict[str, Any]:
    """Draw a format, damage one file of its sample, and return all files: the case does not depend on the writers."""
    name = random.choice(list(FORMATS))
    files = dict(_sample(name))
    chosen = random.choice(list(files))
    operations = draw_damage(random)
    inside = random.random()
    files[chosen] = (
        damage_inside(files[chosen], 2 * inside - 1, operations) if inside > 0.5 else damage(files[chosen], operations)
    )  # noqa: E501
    return {"format": name, "files": {file: base64.b64encode(content).decode() for file, content in files.items()}}


def run(case: dict[str, Any]) -> None:
    """Write the files of a case into a folder, and read them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case["files"].items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        FORMATS[case["format"]].read(Path(folder))


def check_set(data: Any) -> None:
    """Check that a data set is consistent: every sample in one part, and what `check_samples` asks."""
    check_samples(data.samples)
    assert sum(data.sizes.values()) == len(data.samples)
    assert data.samples.y is not None
    assert len(data.samples.y) == len(data.samples)


def check_samples(samples: Any) -> None:
    """Check that samples have one value per modality and row, finite where they are present, and finite targets."""
    for name in samples.names:
        values = np.asarray(samples[name])
        assert len(values) == len(samples), name
        there = samples.present_in(name)
        assert there.shape == (len(samples),), name
        if name in samples.lengths:  # what lies beyond the length of a sequence is never read
            steps = np.arange(values.shape[1]) < samples.lengths[name][:, None]
            assert (samples.lengths[name] <= values.shape[1]).all(), name
            there = there[:, None] & steps
        if values.dtype.kind == "f":
            assert np.isfinite(values[there]).all(), f"{name} is not finite"
    if samples.y is not None and samples.y.dtype.kind == "f":
        assert np.isfinite(samples.y).all(), "targets are not finite"


register(Fuzzer("files", "files", draw, run, examples=150))
