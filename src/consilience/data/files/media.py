"""Images and sound in files: pictures, recordings (wav), and the images of MNIST (idx)."""

from __future__ import annotations

import gzip
import io
import math
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Values
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.size_limits import read_limited, zip_members

# Pictures that take more bytes than this stay on disk, and each batch reads its own.
IN_MEMORY_BYTES = 2**30
# Formats that Pillow reads itself; for others, such as EPS, it starts programs.
_PICTURES = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_MOST_PIXELS = 89_000_000  # Pillow itself warns of more than 89 478 485
_IDX_BYTES = 0x08  # the only element type that MNIST uses


def load_images(paths: Sequence[Path | None], size: int, *, parts: int = 1, crop: bool = False) -> list[Values]:
    """Images `[n, 3, size, size]` of bytes for each of the `parts` side by side in every picture.

    Below a gigabyte in all they are read now, otherwise whenever a batch needs them.

    Args:
        paths: The files; the image of None is black.
        size: Pixels of a side.
        parts: How many images lie side by side in a picture.
        crop: Cut the middle square of a part; otherwise the part is stretched into a square.
    """
    shape = (len(paths), parts, 3, size, size)
    if np.prod(shape, dtype=np.int64) > IN_MEMORY_BYTES:
        rows = np.arange(len(paths))
        return [MappedRows(ImageFiles(paths, size, part, parts, crop), rows) for part in range(parts)]
    images = np.empty(shape, dtype=np.uint8)
    for row, path in enumerate(paths):
        images[row] = read_image(path, size, parts, crop)
    return [images[:, part] for part in range(parts)]


class ImageFiles:
    """One part of each of many pictures, read when it is indexed: `[n, 3, size, size]` of bytes."""

    def __init__(self, paths: Sequence[Path | None], size: int, part: int = 0, parts: int = 1, crop: bool = False):
        self.paths, self.size, self.part, self.parts, self.crop = tuple(paths), size, part, parts, crop
        self.shape = (len(self.paths), 3, size, size)
        self.dtype, self.ndim = np.dtype(np.uint8), 4

    def __getitem__(self, key: Any) -> np.ndarray:
        rows = np.arange(len(self.paths))[key]
        images = np.empty((rows.size, *self.shape[1:]), dtype=np.uint8)
        for place, row in enumerate(rows.flat):
            images[place] = read_image(self.paths[row], self.size, self.parts, self.crop)[self.part]
        return images.reshape(*rows.shape, *self.shape[1:])


def read_image(path: Path | None, size: int, parts: int = 1, crop: bool = False) -> np.ndarray:
    """The `parts` of a picture side by side, in colour, resized (bicubic): `[parts, 3, size, size]` of bytes.

    A JPEG is decoded no larger than needed.
    """
    from PIL import Image, ImageOps

    if path is None:
        return np.zeros((parts, 3, size, size), dtype=np.uint8)
    damaged = reading_as(str(path), "a picture", "Get it again, or leave it out")
    with damaged, Image.open(path, formats=_PICTURES) as file:
        if file.width * file.height > _MOST_PIXELS:
            raise InputError(
                f"{path} has {file.width}×{file.height} pixels, more than {_MOST_PIXELS}: make it smaller, or leave it "
                "out"
            )
        file.draft("RGB", (parts * size, size))
        picture = file.convert("RGB")
    width, height = picture.width // parts, picture.height
    if not width:
        raise InputError(f"{path} is {picture.width} pixels wide: there are no {parts} parts side by side")
    images = np.empty((parts, size, size, 3), dtype=np.uint8)
    for part in range(parts):
        box = picture.crop((part * width, 0, (part + 1) * width, height))
        square = ImageOps.fit if crop else Image.Image.resize
        images[part] = np.asarray(square(box, (size, size), Image.Resampling.BICUBIC))
    return images.transpose(0, 3, 1, 2)


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
    with reading_as(name, "a wav file"), wave.open(io.BytesIO(data)) as file:
        channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
        frames = file.readframes(file.getnframes())
        if rate <= 0 or len(frames) != file.getnframes() * channels * width:
            raise ValueError(f"it has {len(frames)} bytes of {file.getnframes()} frames, {rate} a second")
    if (channels, width) != (1, 2):
        raise InputError(f"{name}: one channel of 16 bits is read, got {channels} channels of {8 * width} bits")
    return np.frombuffer(frames, dtype="<i2"), rate


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The array of a gzipped idx file of unsigned bytes with this many dimensions, as MNIST is published."""
    with reading_as(path, "a gzip file"), gzip.open(path) as file:
        content = read_limited(file, path.name, path.stat().st_size)
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, _IDX_BYTES, dimensions)) or len(content) < start:
        raise InputError(
            f"{path.name} is not an idx file of bytes with {dimensions} dimensions: it starts with {content[:4].hex()}"
        )
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist()
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path.name} should hold {'×'.join(map(str, shape))} bytes and holds {len(content) - start}. Get it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
