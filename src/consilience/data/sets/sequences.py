"""`sequences`: two aligned time series of varying length; each knows half of the class."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from consilience.core.samples import Samples
from consilience.core.settings import Interval, NonNegativeFloat, NonNegativeInt
from consilience.data.dataset import DataSet
from consilience.data.named_sets import register
from consilience.data.splits import draw_split

_SHORTEST = 12


@register("sequences", description="Two aligned time series of varying length, generated; each knows half of the class")
def sequences(
    *,
    n: Annotated[int, Interval(20)] = 1200,
    longest: Annotated[int, Interval(_SHORTEST)] = 24,
    noise: NonNegativeFloat = 0.8,
    seed: NonNegativeInt = 0,
) -> DataSet:
    """An event happens at one moment and is seen in both streams: as a swing of motion and a chirp of sound.

    Four classes, `left-low`, `left-high`, `right-low`, `right-high`: motion `[time, 3]` says left or right by which of
    two channels leads, sound `[time, 2]` says low or high by the chirp's pitch. One stream alone is right about half
    of the time, against a quarter by chance.
    """
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 4)
    right, high = y // 2, y % 2
    lengths = rng.integers(_SHORTEST, longest + 1, size=n)
    time = np.arange(longest)
    event = rng.uniform(0.35, 0.65, size=n) * lengths
    phase = rng.uniform(0, 2 * np.pi, size=n)
    since = time - event[:, None]  # [n, time]

    lead = 2.0 * np.where(right == 1, 1, -1)[:, None]
    motion = np.stack([_bump(since + lead), _bump(since - lead), np.tanh(since / 4)], axis=2)
    pitch = np.where(high == 1, 2.2, 1.0)[:, None]
    swing = pitch * since + phase[:, None]
    sound = np.stack([_bump(since / 2) * np.sin(swing), _bump(since / 2) * np.cos(swing)], axis=2)

    inside = (time < lengths[:, None])[..., None]
    values = {
        name: (np.where(inside, clean + noise * rng.normal(size=clean.shape), 0.0)).astype(np.float32)
        for name, clean in (("motion", 2 * motion), ("sound", 2 * sound))
    }
    labels = np.array(["left-low", "left-high", "right-low", "right-high"])[y]
    samples = Samples.of(values, labels, lengths={"motion": lengths, "sound": lengths})
    split = draw_split(labels, "classification", seed=seed, validation=0.2, test=0.2)
    return DataSet("sequences", samples, "classification", *split)


def _bump(since: np.ndarray) -> np.ndarray:
    return np.exp(-((since / 2) ** 2))
