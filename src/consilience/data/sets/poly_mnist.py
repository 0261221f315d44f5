"""`poly-mnist`: one digit on five backgrounds, after Sutter et al. 2021, Generalized Multimodal ELBO (PolyMNIST).

Their backgrounds are cropped from five photographs; here they are five generated textures, so that only MNIST is
needed:

1. Backgrounds: five pictures of 128×128, each a texture between two colours, the same for every seed.
2. Digits: a sample is five different MNIST images of its digit, one for each modality. Every image is used once in each
   modality, training images in the training part only.
3. A picture: 28×28 pixels of the background from a place drawn with the seed, inverted where the digit has ink.

A picture is made when it is read: 70 000 samples take 60 MB instead of 820.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Samples
from consilience.core.settings import Interval, NonNegativeInt, check_value
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.sets.mnist import FILES as MNIST
from consilience.data.sets.mnist import read_parts
from consilience.data.splits import given_split

_FILES = replace(MNIST, what="PolyMNIST's digits, MNIST,")
_CANVAS, _SIDE = 128, 28
_TURN = 2 * np.pi
# Two colours a background, in every channel on the same side of middle grey: a digit, their complement, stays legible.
_COLOURS = {
    "clouds": ((20, 40, 90), (90, 100, 60)),
    "stripes": ((200, 60, 30), (250, 95, 80)),
    "checks": ((40, 180, 60), (90, 250, 20)),
    "blobs": ((230, 190, 160), (180, 240, 255)),
    "gradients": ((70, 20, 170), (15, 80, 240)),
}
BACKGROUNDS = tuple(_COLOURS)


@register("poly-mnist", description="MNIST's digits on five generated backgrounds, five images a sample", files=_FILES)
def poly_mnist(folder: Path, *, n: Annotated[int, Interval(20)] | None = None, seed: NonNegativeInt = 0) -> DataSet:
    """Five images of bytes `[3, 28, 28]`, named for their backgrounds; MNIST's own training and test part.

    Args:
        folder: Of the files of MNIST.
        n: The number of samples, the same share of both parts; None for all 70 000.
        seed: Of the groups of images, the places on the backgrounds and the validation part.
    """
    images, digits, part_of_row = read_parts(folder)
    rows = np.empty((len(digits), len(BACKGROUNDS)), dtype=np.int64)
    bits = np.random.PCG64(seed)
    for part in ("train", "test"):
        here = np.flatnonzero(part_of_row == part)
        rows[here] = here[group(digits[here], len(BACKGROUNDS), bits)]
    corners = (bits.random_raw(2 * rows.size) % np.uint64(_CANVAS - _SIDE + 1)).astype(np.int64)
    corners = corners.reshape(*rows.shape, 2)
    if n is not None:
        kept = _first(part_of_row, n)
        rows, corners, digits, part_of_row = rows[kept], corners[kept], digits[kept], part_of_row[kept]
    everything = np.arange(len(digits))
    values = {
        name: MappedRows(Pictures(background, images, rows[:, place], corners[:, place]), everything)
        for place, (name, background) in enumerate(draw_backgrounds().items())
    }
    split = given_split(part_of_row, digits, "classification", seed=seed)
    return DataSet("poly-mnist", Samples.of(values, digits), "classification", *split)


class Pictures:
    """Digits on places of one background, made when they are read: `[n, 3, 28, 28]` of bytes.

    Args:
        background: `[3, height, width]`.
        digits: All images `[image, 28, 28]`.
        rows: Which image `[n]`.
        corners: The upper left corner on the background `[n, 2]`.
    """

    def __init__(self, background: np.ndarray, digits: np.ndarray, rows: np.ndarray, corners: np.ndarray):
        self.background, self.digits, self.rows, self.corners = background, digits, rows, corners
        self.shape = (len(rows), len(background), *digits.shape[1:])
        self.dtype, self.ndim = np.dtype(np.uint8), 4

    def __getitem__(self, key: Any) -> np.ndarray:
        ink = self.digits[self.rows[key]].astype(np.uint16)[..., None, :, :]
        places = np.lib.stride_tricks.sliding_window_view(self.background, ink.shape[-2:], axis=(1, 2))
        top, left = np.moveaxis(self.corners[key], -1, 0)
        ground = places.transpose(1, 2, 0, 3, 4)[top, left].astype(np.uint16)
        # Whole numbers of at most 255² + 127, which 16 bits hold: rounded, and the same on every machine.
        return ((ground * (255 - ink) + (255 - ground) * ink + 127) // 255).astype(np.uint8)


def group(digits: np.ndarray, size: int, bits: np.random.PCG64) -> np.ndarray:
    """For every image, `size` different images of the same digit: rows `[image, size]`, in each column every row once.

    A digit's images are put into an order and every column starts further along it. The order is made from the raw
    stream of PCG64, which numpy promises never to change.
    """
    rows = np.empty((len(digits), size), dtype=np.int64)
    for digit in np.unique(digits):
        images = np.flatnonzero(digits == digit)
        if len(images) < size:
            raise InputError(f"poly-mnist: a sample takes {size} images of a digit; there are {len(images)} of {digit}")
        order = images[np.argsort(bits.random_raw(len(images)), kind="stable")]
        for column in range(size):
            rows[order, column] = np.roll(order, -column * (len(images) // size))
    return rows


def draw_backgrounds() -> dict[str, np.ndarray]:
    """The five backgrounds by name: `[3, 128, 128]` of bytes."""
    down, right = np.mgrid[:_CANVAS, :_CANVAS] / _CANVAS
    # Places and waves are sequences that fill an interval evenly; nothing is drawn, so there is no seed.
    step = np.arange(1, 25)
    first, second, third = (step * root % 1 for root in (np.sqrt(2), np.sqrt(3), np.sqrt(5)))
    waves = np.cos(
        _TURN * (np.multiply.outer(12 * (first - 0.5), down) + np.multiply.outer(12 * (second - 0.5), right))
        + _TURN * third[:, None, None]
    )
    squared = (down - first[:, None, None]) ** 2 + (right - second[:, None, None]) ** 2
    textures = {
        "clouds": 0.5 + waves.mean(axis=0) * 2,
        "stripes": 0.5 + 0.5 * np.sin(_TURN * (9 * right + 5 * down + 0.5 * np.sin(_TURN * down))),
        "checks": np.floor(16 * (right + 0.25 * down)) + np.floor(16 * (down - 0.25 * right)),
        "blobs": np.exp(-squared / (0.03 + 0.05 * third[:, None, None]) ** 2).sum(axis=0),
        "gradients": np.abs((2.5 * down + 1.5 * right) % 2 - 1),
    }
    textures["checks"] %= 2
    drawn = {}
    for name, (start, end) in _COLOURS.items():
        share = textures[name].clip(0, 1)
        colours = np.multiply.outer(np.array(start), 1 - share) + np.multiply.outer(np.array(end), share)
        drawn[name] = np.rint(colours).astype(np.uint8)
    return drawn


def _first(part_of_row: np.ndarray, n: int) -> np.ndarray:
    """The first rows of train and of test, `n` together, in the parts' proportion."""
    check_value("n", n, Annotated[int, Interval(20, len(part_of_row))])
    train, test = np.flatnonzero(part_of_row == "train"), np.flatnonzero(part_of_row == "test")
    tested = max(1, round(n * len(test) / len(part_of_row)))
    return np.concatenate([train[: int(n) - tested], test[:tested]])
