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
from consilience.data.named_sets import Files, register
from consilience.data.splits import PARTS, given_split

_SENSORS = ("CE", "CP", "SE", "TS1", "TS2", "TS3", "TS4", "VS1")
Component = Literal["cooler", "valve", "pump", "accumulator", "stable"]
_FILES = Files(
    folder="hydraulic",
    names=("cycles_1hz.npz",),
    what="UCI's hydraulic systems set at one sample a second",
    origin="UCI, Condition monitoring of hydraulic systems (its eight 1 Hz sensors and profile, as arrays of an npz)",
    licence="CC BY 4.0",
)
BLOCK = 45  # cycles


@register("hydraulic", description="A hydraulic rig's eight sensors over 2 205 cycles; what is worn?", files=_FILES)
def hydraulic(
    folder: Path, *, component: Component = "valve", block: PositiveInt = BLOCK, seed: NonNegativeInt = 0
) -> DataSet:
    """Each sensor's minute as a sequence `[60, 1]`; component: "cooler", "valve", "pump", "accumulator" or "stable".

    Cycles come in the order they were run, and neighbours are nearly alike: parts are drawn by blocks of `block`
    cycles, never cycle by cycle, or the test set would be known from training.
    """
    arrays = read_npz(folder / _FILES.names[0])
    missing = [name for name in (*_SENSORS, "profile") if name not in arrays]
    if missing:
        raise InputError(f"{_FILES.names[0]} lacks {', '.join(missing)}; it holds {', '.join(sorted(arrays))}")
    y = arrays["profile"][:, get_args(Component).index(component)].astype(np.int64)
    samples = Samples.of({name: arrays[name].astype(np.float32)[..., None] for name in _SENSORS}, y)
    words = draw_blocks(y, block, seed)
    return DataSet("hydraulic", samples, "classification", *given_split(words, y, "classification", seed=seed))


def draw_blocks(y: np.ndarray, block: int, seed: int) -> np.ndarray:
    """ "train", "validation" or "test" for every row `[n]`, blocks of rows together: about 60, 20 and 20 %.

    Blocks are dealt out class by class (a block's class is its most frequent one), so that every part sees each.
    """
    number = np.arange(len(y)) // int(block)
    classes, of_row = np.unique(y, return_inverse=True)
    counts = np.zeros((number[-1] + 1, len(classes)), dtype=int)
    np.add.at(counts, (number, of_row), 1)
    kind = counts.argmax(axis=1)
    random = np.random.default_rng([int(seed), 2])
    part_of = np.empty(len(counts), dtype="<U10")
    dealt = ("train", "test", "train", "validation", "train")  # five at a time, each class starting anew
    for one in range(len(classes)):
        blocks = random.permutation(np.flatnonzero(kind == one))
        part_of[blocks] = [dealt[place % len(dealt)] for place in range(len(blocks))]
    lacking = [part for part in PARTS if not (part_of == part).any()]
    if lacking:
        raise InputError(f"option block={block} leaves no cycles for {' and '.join(lacking)}: take smaller blocks")
    return part_of[number]
