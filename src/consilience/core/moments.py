"""Mean, standard deviation and range of a modality over samples, read piece by piece.

Standardisation, the scale of a corruption and pretrained encoders all use `modality_moments`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.modalities import SCAN_BYTES, MappedRows, Modality
from consilience.core.samples import Samples


@dataclass
class Moments:
    """Weighted sums over values `[…, feature]`, relative to one of the values.

    Relative to such a shift no digits are lost to a large mean, and a constant has a standard deviation of exactly 0.

    Attributes:
        shift: One of the values `[feature]`; None if nothing was added.
        total: Sum of the weights.
        first: Weighted sum of the differences to the shift `[feature]`.
        second: Weighted sum of their squares `[feature]`.
        low: Smallest value `[feature]`.
        high: Largest value `[feature]`.
    """

    shift: np.ndarray | None = None
    total: float = 0.0
    first: np.ndarray | float = 0.0
    second: np.ndarray | float = 0.0
    low: np.ndarray | float = np.inf
    high: np.ndarray | float = -np.inf

    def add(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Add values `[n, feature]` with weights `[n]`.

        >>> moments = Moments()
        >>> moments.add(np.array([[1.0], [3.0], [9.0]]), np.array([1.0, 1.0, 0.0]))
        >>> [moment.item() for moment in moments.mean_and_std()]
        [2.0, 1.0]
        """
        if not weight.any():
            return
        values = np.asarray(values, dtype=np.float64)
        if self.shift is None:
            self.shift = values[weight.argmax()]
        self._widen(values[weight > 0].min(axis=0), values[weight > 0].max(axis=0))
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += weight.sum()
            self.first = self.first + weight @ (values - self.shift)
            self.second = self.second + weight @ (values - self.shift) ** 2

    def add_bytes(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Add all pixels of images of bytes `[n, channel, pixel]`, each image with its weight `[n]`.

        Sums within an image are of whole numbers: exact, and several times as fast.
        """
        values, weight = values[weight > 0], weight[weight > 0]
        if not values.size:
            return
        if self.shift is None:
            self.shift = values[0, :, 0].astype(np.float64)
        shift, pixels = self.shift.astype(np.int64), values.shape[2]
        self._widen(values.min(axis=(0, 2)).astype(np.float64), values.max(axis=(0, 2)).astype(np.float64))
        wide: Any = values.astype(np.int32 if pixels * 255**2 < 2**31 else np.int64)
        sums = wide.sum(axis=2, dtype=np.int64)
        squares = np.einsum("ncp,ncp->nc", wide, wide).astype(np.int64)
        self.total += pixels * weight.sum()
        self.first = self.first + weight @ (sums - pixels * shift)
        self.second = self.second + weight @ (squares - 2 * shift * sums + pixels * shift**2)

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation, `[feature]` each; an overflow gives infinity or NaN."""
        assert self.shift is not None
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.first / self.total
            std = np.sqrt(np.maximum(self.second / self.total - mean**2, 0.0))
        return self.shift + mean, std

    def _widen(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


def modality_moments(samples: Samples, name: str, weight: np.ndarray | None = None) -> Moments:
    """The moments of a modality over the samples that have it: per feature, or per channel of images.

    Args:
        samples: The set. Padding of sequences is not counted, and memory-mapped values are read in pieces.
        name: Of the modality.
        weight: Of each sample `[n]`; 1 by default.
    """
    modality = samples.modalities[name]
    moments = Moments()
    for rows, each in row_pieces(samples, name, weight):
        values = np.asarray(samples[name][rows])
        if is_byte_image(modality, values):
            moments.add_bytes(values.reshape(len(values), modality.shape[0], -1), each)
            continue
        values = values.astype(np.float64)
        if modality.kind == "image":
            values = values.reshape(len(values), modality.shape[0], -1).swapaxes(1, 2)  # [rows, pixel, channel]
        elif modality.kind == "vector":
            values = values[:, None]
        counted = np.repeat(each[:, None], values.shape[1], axis=1)
        if name in samples.lengths:
            counted *= np.arange(values.shape[1]) < samples.lengths[name][rows][:, None]
            values = np.where(counted[..., None] > 0, values, 0.0)  # padding may hold anything
        moments.add(values.reshape(-1, values.shape[-1]), counted.reshape(-1))
    return moments


def row_pieces(
    samples: Samples, name: str, weight: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows that have a modality, in pieces small enough to hold in memory, and the weight of each row.

    A value that several samples share, such as a recording that goes with many images, is in one row only, with the
    sum of their weights.
    """
    rows = np.flatnonzero(samples.present_in(name))
    each = np.ones(len(rows)) if weight is None else weight[rows]
    values = samples[name]
    if isinstance(values, MappedRows) and name not in samples.lengths:
        source, first, place = np.unique(values.rows[rows], return_index=True, return_inverse=True)
        if len(source) < len(rows):
            rows, each = rows[first], np.bincount(place, each)
    at_once = rows_at_once(samples.modalities[name])
    for start in range(0, len(rows), at_once):
        piece = slice(start, start + at_once)
        yield rows[piece], each[piece]


def rows_at_once(modality: Modality, size: int = SCAN_BYTES) -> int:
    """How many rows of a modality make up a piece of so many bytes."""
    return max(1, size // (8 * max(1, math.prod(modality.shape))))


def is_byte_image(modality: Modality, values: np.ndarray) -> bool:
    """Whether values are images of bytes, for which faster sums and tables exist."""
    return modality.kind == "image" and values.dtype == np.uint8
