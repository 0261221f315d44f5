"""`mnist`: the handwritten digits of LeCun, Cortes and Burges, whole or cut into parts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.files.idx import read_idx
from consilience.data.named_sets import register, source_files
from consilience.data.sets.digits import cut_quadrants
from consilience.data.splits import given_split

_NAMES = {
    part: (f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz")
    for part, stem in (("train", "train"), ("test", "t10k"))
}
FILES = source_files("mnist", *_NAMES["train"], *_NAMES["test"])


@register("mnist", description="70 000 handwritten digits, 28×28, whole, in halves or in quadrants", files=FILES)
def mnist(
    folder: Path, *, parts: Literal["whole", "halves", "quadrants"] = "whole", seed: NonNegativeInt = 0
) -> DataSet:
    """Images of bytes, `[1, 28, 28]` and less for parts="halves" (left, right) or "quadrants"; the official test part.

    Validation is drawn from the 60 000 training images.
    """
    cuts = {"whole": lambda x: {"image": x}, "halves": _cut_halves, "quadrants": cut_quadrants}
    images, y, part_of_row = read_parts(folder)
    values = cuts[parts](images[:, None])
    samples = Samples.of({name: np.ascontiguousarray(value) for name, value in values.items()}, y)
    split = given_split(part_of_row, y, "classification", seed=seed)
    return DataSet("mnist", samples, "classification", *split)


def read_parts(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The files as they are: images `[n, 28, 28]` of bytes, digits `[n]`, "train" or "test" `[n]`."""
    images, labels, part_of_row = [], [], []
    for part, (image_file, label_file) in _NAMES.items():
        image, label = read_idx(folder / image_file, 3), read_idx(folder / label_file, 1)
        if len(image) != len(label):
            raise InputError(f"{image_file} has {len(image)} images, {label_file} {len(label)} labels")
        images.append(image)
        labels.append(label)
        part_of_row.append(np.full(len(label), part))
    return np.concatenate(images), np.concatenate(labels).astype(np.int64), np.concatenate(part_of_row)


def _cut_halves(images: np.ndarray) -> dict[str, np.ndarray]:
    middle = images.shape[-1] // 2
    return {"left": images[..., :middle], "right": images[..., middle:]}
