"""Mean, standard deviation and range of the values of a modality, computed piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


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
