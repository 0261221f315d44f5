"""Which part of a sample is hit: a share of its features, a stretch of time, a block of area.

Regions are nested: for one sample, the region at a larger share contains the region at a smaller one. The expected
size is exactly the share, also where it is not a whole number of features, steps or pixels.
"""

from __future__ import annotations

import numpy as np

from consilience.corruption.corruptions import Level, Portion


def share_of(level: Level) -> Level:
    """The share of a level: 0 at level 0, 1 at level 10 and above."""
    return np.minimum(level / 10.0, 1.0)


def subset(portion: Portion, share: Level) -> np.ndarray:
    """Features of vectors, chosen at random: `[rows, feature]`."""
    (features,) = portion.modality.shape
    rank = portion.uniform((features,)).argsort(axis=1).argsort(axis=1)
    return rank < _count(share, np.full(len(rank), features), portion.uniform(part="size"))[:, None]


def stretch(portion: Portion, share: Level, lengths: np.ndarray, steps: int) -> np.ndarray:
    """A contiguous run of each sample's `lengths` `[rows]` steps: `[rows, steps]`."""
    return _run(share, lengths, steps, portion.uniform(part="size"), portion.uniform(part="place"))


def block(portion: Portion, share: Level) -> np.ndarray:
    """A rectangle of the image's area: `[rows, 1, height, width]`."""
    _, height, width = portion.modality.shape
    side = share**0.5
    tall, wide = (
        _run(
            side,
            np.full(len(portion.index), size),
            size,
            portion.uniform(part=f"size of {axis}"),
            portion.uniform(part=f"place of {axis}"),
        )
        for axis, size in (("height", height), ("width", width))
    )
    return tall[:, None, :, None] & wide[:, None, None, :]


def _count(share: Level, total: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """How many of `total` `[rows]`: rounded up or down by chance, so that the mean is share · total."""
    return np.minimum(np.floor(share * total + chance).astype(np.int64), total)


def _run(share: Level, total: np.ndarray, steps: int, size: np.ndarray, place: np.ndarray) -> np.ndarray:
    count = _count(share, total, size)
    # One step longer, a run starts at the same step or one before, so that it contains the shorter one.
    start = np.floor(place * (total - count + 1)).astype(np.int64)
    step = np.arange(steps)
    return (step >= start[:, None]) & (step < (start + count)[:, None])
