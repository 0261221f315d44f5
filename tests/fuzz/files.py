"""Damaged files of every format that the library reads: the content is read consistently, or the file is refused.

A sample of each format is written, then its bytes, or those inside of its archive, are damaged.
"""

from __future__ import annotations

import base64
import contextlib
import io
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz import sample_files
from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, damage_inside, draw_damage


@dataclass(frozen=True)
class Format:
    """A format: the files of a valid sample by name, and what reads them from a folder and checks the result."""

    write: Callable[[], dict[str, bytes]]
    read: Callable[[Path], None]


_COLUMNS: dict[str, Any] = {"a": ["a0", "a1", "a2"], "b": "b*"}


def _table(ending: str) -> Format:
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
        )
        check_samples(read_with_recipe(_recipe("table"), path))

    return Format(lambda: sample_files.write_table(ending), read)


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
            path.write_bytes(sample_files.npz(sample_files.arrays()))
            return load_data(path).recipe()
        sample_files.frame().write_parquet(Path(folder) / "data.parquet")
        return load_data(Path(folder) / "data.parquet", target="y", modalities=_COLUMNS, fill="median").recipe()


def _read_stream(folder: Path) -> None:
    """Rows as they arrive are the same in whatever pieces, and in a CSV those of the file."""
    from consilience.core.errors import InputError
    from consilience.data.files.table_streams import stream_rows
    from consilience.data.loading import read_with_recipe, recipe_columns

    [path] = folder.iterdir()
    recipe = _recipe("table")
    read = recipe_columns(recipe).values()
    numbers = [column for encoding in read for column in encoding.numbers]
    strings = [column for encoding in read for column in encoding.string_columns]

    def rows(at_once: int) -> dict[str, np.ndarray]:
        with path.open("rb") as file:
            frames = list(stream_rows(lambda _: file.read(at_once), path.name, numbers, strings, ["text", "part"]))
        parts = [read_with_recipe(recipe, frame.drop("y", strict=False)) for frame in frames]
        for part in parts:
            check_samples(part)
        names = [name for name in _COLUMNS if all(name in part for part in parts)]
        return {name: np.concatenate([_seen(part, name) for part in parts]) for name in names}

    whole = rows(1 << 20)
    answers = [rows(99)]
    if path.suffix == ".csv":
        with contextlib.suppress(InputError):  # such as a target that is no label, which a stream does not read
            of_file = read_with_recipe(recipe, path)
            answers.append({name: _seen(of_file, name) for name in whole if name in of_file})
    for found in answers:
        assert found.keys() == whole.keys()
        for name, values in whole.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


def _seen(samples: Any, name: str) -> np.ndarray:
    """The values of a modality, NaN where it is missing."""
    return np.where(samples.present_in(name)[:, None], np.asarray(samples[name], float), np.nan)


def _read_matlab(folder: Path) -> None:
    from consilience import load_data
    from consilience.data.files.matlab import read_new_views

    check_set(load_data(folder / "data.mat"))
    views, _ = read_new_views(folder / "data.mat")
    assert len({len(view) for view in views.values()}) == 1


def _read_pickle(folder: Path) -> None:
    from consilience.data.files.array_pickles import read_sequences_pickle
    from consilience.data.sets.cmu_sequences import mosi_sequences

    assert isinstance(
        read_sequences_pickle(folder / "mosi_data.pkl"),
        dict | list | tuple | str | bytes | int | float | np.ndarray | np.generic | None,
    )
    check_set(mosi_sequences(folder))


def _read_r(folder: Path) -> None:
    from consilience.data.files.r_data import read_r_data
    from consilience.data.sets.breast_tcga import breast_tcga

    assert isinstance(read_r_data(folder / "breast.TCGA.rda"), dict)
    check_set(breast_tcga(folder))


def _read_json_lines(folder: Path) -> None:
    from consilience.data.files.json_lines import read_json_lines

    for item in read_json_lines(folder / "data.jsonl", ["text", "label"]):
        assert isinstance(item["text"], str)
        assert isinstance(item["label"], str)


def _read_picture(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from consilience.data.media.picture_folders import load_images

        for crop in (False, True):
            images = load_images([folder / name, None], 8, parts=2, crop=crop)
            assert [image.shape for image in images] == [(2, 3, 8, 8)] * 2
            assert all(image.dtype == np.uint8 for image in images)

    return read


def _read_recordings(path: Path) -> None:
    from consilience.data.media.recordings import read_recordings

    for values, rate in read_recordings(path).values():
        assert values.dtype == np.int16
        assert values.ndim == 1
        assert rate >= 0


def _read_idx(folder: Path) -> None:
    from consilience.data.files.idx import read_idx

    assert read_idx(folder / "images.gz", 3).ndim == 3


def _read_config(folder: Path) -> None:
    from consilience.cli.main import parse

    command, chosen = parse(["compare", "--config", str(folder / "config.yaml")])
    assert command == "compare"
    assert chosen is not None


def _read_protocol(folder: Path) -> None:
    from consilience.reproduction.protocol import read_protocol

    protocol = read_protocol(folder / "protocol.yaml")
    assert protocol.parts or protocol.script
    assert isinstance(protocol.title, str)
    assert all(np.isfinite(figure.mean) for figure in protocol.published.values())


def _opinions(ending: str) -> Format:
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

    return Format(lambda: sample_files.write_opinions(ending), read)


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


def _read_vectors(folder: Path) -> None:
    from consilience.encoders.bag_of_words import read_vectors

    vectors, found = read_vectors(folder / "vectors.txt", ["the", "cat", "dog", "é", "absent"])
    assert np.isfinite(vectors).all()
    assert vectors.shape[0] == len(found) == 5
    assert not vectors[~found].any()


FORMATS: dict[str, Format] = {
    **{ending: _table(ending) for ending in ("csv", "tsv", "csv.gz", "parquet")},
    "stream-csv": Format(lambda: sample_files.write_table("csv"), _read_stream),
    "stream-json": Format(
        lambda: {"data.jsonl": sample_files.frame().write_ndjson().encode()},
        _read_stream,
    ),
    "npz": Format(
        lambda: {"data.npz": sample_files.npz(sample_files.arrays())}, lambda folder: _read_arrays(folder / "data.npz")
    ),
    "npz-compressed": Format(
        lambda: {"data.npz": sample_files.npz(sample_files.arrays(), True)},
        lambda folder: _read_arrays(folder / "data.npz"),
    ),
    "npy": Format(
        lambda: {f"data/{name}.npy": sample_files.npy(array) for name, array in sample_files.arrays().items()},
        lambda folder: _read_arrays(folder / "data"),
    ),
    "mat": Format(lambda: sample_files.write_matlab(False), _read_matlab),
    "mat-compressed": Format(lambda: sample_files.write_matlab(True), _read_matlab),
    "pickle": Format(lambda: sample_files.write_pickle(4), _read_pickle),
    "pickle-2": Format(lambda: sample_files.write_pickle(2), _read_pickle),
    "rda": Format(lambda: sample_files.write_r(lzma.compress), _read_r),
    "rda-plain": Format(lambda: sample_files.write_r(bytes), _read_r),
    "jsonl": Format(sample_files.write_json_lines, _read_json_lines),
    "png": Format(lambda: sample_files.write_picture("png", "RGB"), _read_picture("picture.png")),
    "png-palette": Format(lambda: sample_files.write_picture("png", "P"), _read_picture("picture.png")),
    "jpeg": Format(lambda: sample_files.write_picture("jpeg", "RGB"), _read_picture("picture.jpeg")),
    "wav": Format(lambda: sample_files.write_recordings(False), _read_recordings),
    "wav-zip": Format(
        lambda: sample_files.write_recordings(True), lambda folder: _read_recordings(folder / "recordings.zip")
    ),
    "idx": Format(sample_files.write_idx, _read_idx),
    "config": Format(sample_files.write_config, _read_config),
    "protocol": Format(lambda: {"protocol.yaml": sample_files.PROTOCOL.encode()}, _read_protocol),
    **{f"opinions-{ending}": _opinions(ending) for ending in ("npy", "npz", "csv", "parquet")},
    "vectors": Format(sample_files.write_vectors, _read_vectors),
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
    )
    return _case(name, files)


def _case(name: str, files: dict[str, bytes]) -> dict[str, Any]:
    return {"format": name, "files": {file: base64.b64encode(content).decode() for file, content in files.items()}}


def valid() -> list[dict[str, Any]]:
    """The sample of every format."""
    return [_case(name, _sample(name)) for name in FORMATS]


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


register(Fuzzer("files", "files", draw, run, examples=150, valid=valid))
