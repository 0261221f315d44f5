"""Recordings of named data sets: the wav files of a folder or a zip archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from consilience.core.errors import InputError
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.size_limits import zip_members
from consilience.data.media.sound import read_wav


def read_recordings(path: Path) -> dict[str, tuple[np.ndarray, int]]:
    """Every wav file of a folder or a zip archive: its name without folder and ending → samples `[n]` int16, and rate.

    They are sorted by name, so that the result does not depend on the order of files in a folder or archive.
    """
    return {Path(name).stem: _read_wav(name, data) for name, data in sorted(_wav_files(path), key=lambda file: file[0])}


def _wav_files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in path.rglob("*.wav"):
            yield file.name, file.read_bytes()
        return
    with reading_as(path, "a zip archive"), ZipFile(path) as archive:
        for member in zip_members(archive, path.name, path.stat().st_size):
            # macOS leaves a shadow file beside each real one.
            if member.filename.lower().endswith(".wav") and not member.filename.startswith("__MACOSX"):
                yield member.filename.rsplit("/", 1)[-1], archive.read(member)


def _read_wav(name: str, data: bytes) -> tuple[np.ndarray, int]:
    with reading_as(name, "a wav file"):
        try:
            samples, rate = read_wav(data, name)
        except InputError as error:  # it does not name the file
            raise ValueError(str(error)) from error
    if samples.ndim > 1 or samples.dtype != np.int16:
        channels = 1 if samples.ndim == 1 else samples.shape[1]
        raise InputError(
            f"{name}: one channel of 16 bits is read, got {channels} channels of {8 * samples.dtype.itemsize} bits"
        )
    return samples, rate
