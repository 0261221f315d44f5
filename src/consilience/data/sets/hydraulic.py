"""`hydraulic`: UCI's condition monitoring of a hydraulic rig, eight sensors over cycles of a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeInt, PositiveInt
from consilience.data.dataset import DataSet
from consilience.data.files.arrays import read_npz
from consilience.data.named_sets import register, source_files
from consilience.data.split_rules import SplitRule
from consilience.data.splits import PARTS, given_split

_SENSORS = ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")
Component = Literal["cooler", "valve", "pump", "accumulator", "stable"]
_FILES = source_files("hydraulic", "cycles_1hz.npz")
BLOCK = 45  # cycles


@register("hydraulic", description="A hydraulic rig's eight sensors over 2 205 cycles; what is worn?", files=_FILES)
def hydraulic(
    folder: Path, *, component: Component = "valve", block: PositiveInt = BLOCK, seed: NonNegativeInt = 0
) -> DataSet:
    """A minute of each sensor as a sequence `[60, 1]`.

    Neighbouring cycles are nearly equal. So that the test set is not known from training, parts are drawn by blocks,
    and so are the folds of cross-fitting.

    Args:
        folder: Of the file.
        component: The one whose condition is predicted.
        block: The number of successive cycles in a block.
        seed: Of the draw.
    """
    arrays = read_npz(folder / _FILES.names[0], required=(*_SENSORS, "profile"))
    y = arrays["profile"][:, get_args(Component).index(component)].astype(np.int64)
    samples = Samples.of({name: arrays[name].astype(np.float32)[..., None] for name in _SENSORS}, y)
    part_of_row = draw_blocks(y, block, seed)
    split = given_split(part_of_row, y, "classification", seed=seed)
    numbers = np.arange(len(y)) // int(block)
    rule = SplitRule(group=numbers, column="block", labels=range(int(numbers[-1]) + 1))
    return DataSet("hydraulic", samples, "classification", *split, rule=rule)


def draw_blocks(y: np.ndarray, block: int, seed: int) -> np.ndarray:
    """ "train", "validation" or "test" for every row `[n]`, blocks of rows together: about 60, 20 and 20 %.

    Blocks are distributed class by class (the most frequent class of a block), so that every part has each class.
    """
    number = np.arange(len(y)) // int(block)
    classes, of_row = np.unique(y, return_inverse=True)
    counts = np.zeros((number[-1] + 1, len(classes)), dtype=int)
    np.add.at(counts, (number, of_row), 1)
    kind = counts.argmax(axis=1)
    random = np.random.default_rng([int(seed), 2])
    part_of = np.empty(len(counts), dtype="<U10")
    dealt = ("train", "test", "train", "validation", "train")  # for every five blocks of a class
    for label in range(len(classes)):
        blocks = random.permutation(np.flatnonzero(kind == label))
        part_of[blocks] = [dealt[place % len(dealt)] for place in range(len(blocks))]
    lacking = [part for part in PARTS if not (part_of == part).any()]
    if lacking:
        raise InputError(f"option block={block} leaves no cycles for {' and '.join(lacking)}: take smaller blocks")
    return part_of[number]
