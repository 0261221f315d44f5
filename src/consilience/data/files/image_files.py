"""Pictures in files, as images of one size: in memory where they are few, else read from their files when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Values

IN_MEMORY_BYTES = 2**30


def load_images(paths: Sequence[Path | None], size: int, *, parts: int = 1, crop: bool = False) -> list[Values]:
    """For each of the `parts` side by side in every picture, images `[n, 3, size, size]` of bytes.

    Together below a gigabyte they are read now; above it, batch by batch whenever they are needed. Where there is no
    path the image is black. crop: take the middle square of a part; otherwise it is squeezed into a square.
    """
    shape = (len(paths), parts, 3, size, size)
    if np.prod(shape, dtype=np.int64) > IN_MEMORY_BYTES:
        everyone = np.arange(len(paths))
        return [MappedRows(ImageFiles(paths, size, part, parts, crop), everyone) for part in range(parts)]
    images = np.empty(shape, dtype=np.uint8)
    for row, path in enumerate(paths):
        images[row] = read_image(path, size, parts, crop)
    return [images[:, part] for part in range(parts)]


class ImageFiles:
    """One part of each of many pictures, read when it is asked for: `[n, 3, size, size]` of bytes."""

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

    A JPEG is decoded no larger than it takes.
    """
    from PIL import Image, ImageOps

    if path is None:
        return np.zeros((parts, 3, size, size), dtype=np.uint8)
    try:
        with Image.open(path) as file:
            file.draft("RGB", (parts * size, size))
            picture = file.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is truncated or not a picture: {error}. Get it again, or leave it out") from error
    width, height = picture.width // parts, picture.height
    if not width:
        raise InputError(f"{path} is {picture.width} pixels wide: there are no {parts} parts side by side")
    images = np.empty((parts, size, size, 3), dtype=np.uint8)
    for part in range(parts):
        one = picture.crop((part * width, 0, (part + 1) * width, height))
        square = ImageOps.fit if crop else Image.Image.resize
        images[part] = np.asarray(square(one, (size, size), Image.Resampling.BICUBIC))
    return images.transpose(0, 3, 1, 2)
