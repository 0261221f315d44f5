"""Damaged pictures, recordings and arrays that a table names: what is read is finite, the rest missing or refused."""

from __future__ import annotations

import base64
import io
import tempfile
import wave
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.files import check_samples, check_set
from fuzz.fuzzers import Fuzzer, register
from fuzz.mutations import damage, draw_damage

ROWS = 12


def _picture(row: int, mode: str, format: str) -> bytes:
    from PIL import Image

    rng, stream = np.random.default_rng(row), io.BytesIO()
    pixels = rng.integers(0, 2**16 if mode == "I;16" else 256, size=(9, 7), dtype=np.uint16 if mode == "I;16" else "u1")
    picture = Image.fromarray(pixels)
    (picture if mode == "I;16" else picture.convert(mode)).save(stream, format)
    return stream.getvalue()


def _array(row: int) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(row).normal(size=(3 + row % 3, 4)))
    return stream.getvalue()


def _wav(row: int) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1 + row % 2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.random.default_rng(row).integers(-999, 999, 600).astype("<i2").tobytes())
    return stream.getvalue()


def _flac(row: int) -> bytes:
    import soundfile

    stream = io.BytesIO()
    soundfile.write(stream, np.random.default_rng(row).uniform(-0.5, 0.5, 600), 8000, format="FLAC")
    return stream.getvalue()


def _dicom(row: int) -> bytes:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = f"1.2.3.{row}"
    file = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    file.Rows, file.Columns, file.SamplesPerPixel, file.PhotometricInterpretation = 9, 8, 1, "MONOCHROME2"
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 16, 12, 11, 0
    file.RescaleSlope, file.RescaleIntercept = 2, -1024
    file.PixelData = np.random.default_rng(row).integers(0, 4096, size=(9, 8), dtype=np.uint16).tobytes()
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


# Ending → what makes the file of a row, and the kind of the column.
WRITERS: dict[str, tuple[Callable[[int], bytes], str]] = {
    "png": (lambda row: _picture(row, "RGBA" if row % 2 else "P", "png"), "image"),
    "tif": (lambda row: _picture(row, "I;16", "tiff"), "image"),
    "jpg": (lambda row: _picture(row, "L", "jpeg"), "image"),
    "npy": (_array, "array"),
    "wav": (_wav, "sound"),
    "flac": (_flac, "sequence"),
    "dcm": (_dicom, "image"),
}


@cache
def _sample(ending: str) -> dict[str, bytes]:
    write, _ = WRITERS[ending]
    lines = ["file,y", *(f"{row}.{ending},{'ab'[row % 2]}" for row in range(ROWS))]
    return {"table.csv": "\n".join(lines).encode(), **{f"{row}.{ending}": write(row) for row in range(ROWS)}}


def _case(ending: str, files: dict[str, bytes]) -> dict[str, Any]:
    return {"ending": ending, "files": {name: base64.b64encode(content).decode() for name, content in files.items()}}


def draw(random: Random) -> dict[str, Any]:
    """Draw an ending, and damage one of its files or the table."""
    ending = random.choice(list(WRITERS))
    files = dict(_sample(ending))
    chosen = random.choice(list(files))
    files[chosen] = damage(files[chosen], draw_damage(random))
    return _case(ending, files)


def valid() -> list[dict[str, Any]]:
    """The sample of every ending."""
    return [_case(ending, _sample(ending)) for ending in WRITERS]


def run(case: dict[str, Any]) -> None:
    """Read the table with broken files as missing, its recipe with the same files, and refuse or read it as it is."""
    from consilience import load_data
    from consilience.data.loading import read_with_recipe

    options: dict[str, Any] = {"target": "y", "modalities": {"x": f"file:{WRITERS[case['ending']][1]}"}}
    if case["ending"] not in ("npy", "wav", "flac"):
        options["media"] = {"x": {"size": 6}}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case["files"].items():
            (Path(folder) / name).write_bytes(base64.b64decode(content))
        path = Path(folder) / "table.csv"
        data = load_data(path, **options, broken="missing")
        check_set(data)
        read = read_with_recipe(data.recipe(), path)
        check_samples(read)
        np.testing.assert_array_equal(read.present, data.samples.present)
        there = data.samples.present_in("x")
        np.testing.assert_array_equal(read["x"][there], data.samples["x"][there])
        if there.all():
            check_set(load_data(path, **options))


register(Fuzzer("media", "files", draw, run, examples=60, valid=valid))
