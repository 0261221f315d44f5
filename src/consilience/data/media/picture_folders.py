"""Colour pictures of named data sets: files → squares of one size, in memory or read batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Values
from consilience.data.files.damaged_files import reading_as
from consilience.data.media.pictures import FORMATS, check_pixels

# Pictures that take more bytes than this stay on disk, and each batch reads its own.
IN_MEMORY_BYTES = 2**30


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
    with damaged, Image.open(path, formats=FORMATS) as file:
        check_pixels(path, file.width, file.height)
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
