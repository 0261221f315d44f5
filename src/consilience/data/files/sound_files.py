"""Recordings: the wav files of a folder or of a zip archive, as whole numbers."""

from __future__ import annotations

import io
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError


def read_recordings(path: Path) -> dict[str, tuple[np.ndarray, int]]:
    """Every wav below a folder or in a zip archive, by name without folder and ending: samples `[n]` int16, and rate.

    In the order of their names, so that the result does not depend on how a folder or an archive is laid out.
    """
    return {Path(name).stem: _read_wav(name, data) for name, data in sorted(_files(path), key=lambda one: one[0])}


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in path.rglob("*.wav"):
            yield file.name, file.read_bytes()
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                # macOS leaves a shadow file beside each real one.
                if name.lower().endswith(".wav") and not name.startswith("__MACOSX"):
                    yield name.rsplit("/", 1)[-1], archive.read(name)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path.name} is truncated or no zip archive: {error}") from error


def _read_wav(name: str, data: bytes) -> tuple[np.ndarray, int]:
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InputError(f"{name} is truncated or no wav file: {error}") from error
    if (channels, width) != (1, 2):
        raise InputError(f"{name}: one channel of 16 bits is read, got {channels} channels of {8 * width} bits")
    return np.frombuffer(frames, dtype="<i2"), rate
