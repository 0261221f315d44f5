"""Pictures cut into parts: where they come from, at most how many of them, and who judges what is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from consilience.comparison.plan import Source
from consilience.core.samples import Samples
from consilience.data import DataSet

# How many pictures the judge learns from, and of how many components: more would make it hardly better.
JUDGED, COMPONENTS = 10_000, 50


@dataclass(frozen=True)
class Cut:
    """Pictures in parts. data, parts: a set, and what its pictures are cut into, None where they come in parts ·
    count: how many parts that is · binary: whether grey pixels are drawn to be black or white, once and for all.
    """

    name: str
    data: str
    parts: str | None = None
    count: int = 4
    binary: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many of the parts are given, the others being generated."""
        return tuple(range(1, self.count))

    @property
    def likelihood(self) -> str:
        """Of every part."""
        return "bernoulli" if self.binary else "gaussian"

    @property
    def source(self) -> Source:
        """The set as comparisons know it."""
        return Source.of(self.data, {"parts": self.parts})

    def load(self, seed: int) -> DataSet:
        """The pictures with the split of a seed."""
        data = self.source.load().resplit(seed)
        return replace(data, samples=binarised(data.samples)) if self.binary else data


CUTS = {
    one.name: one
    for one in (
        Cut("digits", "digits"),
        Cut("halves", "mnist", "halves", 2, binary=True),
        Cut("quadrants", "mnist", "quadrants", 4, binary=True),
    )
}


@dataclass(frozen=True)
class Pictures:
    """The three parts of a split, and a classifier that judges what is generated."""

    train: Samples
    validation: Samples
    test: Samples
    judge: Judge


@lru_cache(maxsize=1)  # the variants of a seed come one after the other
def prepare(cut: Cut, most: tuple[int, int, int] | None, seed: int) -> Pictures:
    """The pictures of a seed, at most so many of each part. The judge may learn from more than the models."""
    data = cut.load(seed)
    train, validation, test = (
        some_of(part, many, seed) for part, many in zip((data.train, data.validation, data.test), most or (None,) * 3)
    )
    return Pictures(train, validation, test, Judge(some_of(data.train, JUDGED, seed)))


def some_of(samples: Samples, most: int | None, seed: int) -> Samples:
    """At most so many, drawn at random."""
    if most is None or len(samples) <= most:
        return samples
    return samples[np.sort(np.random.default_rng(seed).permutation(len(samples))[:most])]


def binarised(samples: Samples) -> Samples:
    """Every pixel 1 with its byte / 255 for the probability, else 0; the same draw at every call."""
    rng = np.random.default_rng(0)
    return samples.replaced({name: draw_ink(np.asarray(samples[name]), rng) for name in samples.names})


def draw_ink(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Bytes as 0 or 1, drawn with byte / 255 for the probability of 1.

    >>> draw_ink(np.array([0, 255], dtype=np.uint8), np.random.default_rng(0)).tolist()
    [0, 1]
    """
    return (rng.integers(0, 255, pixels.shape, dtype=np.uint8) < pixels).astype(np.uint8)


class Judge:
    """A support vector machine on the pixels of all parts: does what is generated fit what is given?"""

    def __init__(self, train: Samples):
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import SVC

        self.names = train.names
        pixels = flat(train, self.names)
        seen = PCA(min(COMPONENTS, *pixels.shape), random_state=0)
        self._machine = make_pipeline(seen, SVC(gamma="scale", C=10.0)).fit(pixels, train.y)

    def predict(self, samples: Any) -> np.ndarray:
        """Labels `[n]` of a mapping with all parts."""
        return self._machine.predict(flat(samples, self.names))


def flat(samples: Any, names: Sequence[str]) -> np.ndarray:
    """The pixels of some parts in one row a sample: `[n, pixel]`."""
    return np.concatenate(
        [np.asarray(samples[name], dtype=np.float64).reshape(len(samples[name]), -1) for name in names], 1
    )


def joined(parts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Two halves or four quadrants, images `[n, 1, height, width]` or squares as vectors, as whole pictures.

    >>> joined({"left": np.zeros((3, 1, 4, 2)), "right": np.ones((3, 1, 4, 2))}).shape
    (3, 4, 4)
    """
    tiles = [one[:, 0] if one.ndim == 4 else one.reshape(len(one), isqrt(one.shape[1]), -1) for one in parts.values()]
    rows = [tiles[start : start + 2] for start in range(0, len(tiles), 2)]
    return np.concatenate([np.concatenate(row, axis=-1) for row in rows], axis=-2)
