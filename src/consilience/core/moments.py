"""Mean, spread and range of a modality's values over samples, read piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Moments:
    """Weighted sums over values `[…, feature]`, about a value that occurs.

    So they lose no digits to a large mean, and a constant has exactly none. shift: that value · total: the weights' sum
    · first, second: sums of differences to it and of their squares · low, high: the smallest and largest value; all
    `[feature]` but total. The shift is None as long as nothing was counted.
    """

    shift: np.ndarray | None = None
    total: float = 0.0
    first: np.ndarray | float = 0.0
    second: np.ndarray | float = 0.0
    low: np.ndarray | float = np.inf
    high: np.ndarray | float = -np.inf

    def add(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Count values `[n, feature]`, each with its weight `[n]`.

        >>> moments = Moments()
        >>> moments.add(np.array([[1.0], [3.0], [9.0]]), np.array([1.0, 1.0, 0.0]))
        >>> [one.item() for one in moments.mean_and_std()]
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
        """Count all pixels of images of bytes `[n, channel, pixel]`, each image with its weight `[n]`.

        The same sums, of whole numbers within an image: exact, and several times as fast.
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
        """`[feature]` each; what overflows is not finite."""
        assert self.shift is not None
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.first / self.total
            std = np.sqrt(np.maximum(self.second / self.total - mean**2, 0.0))
        return self.shift + mean, std

    def _widen(self, low: np.ndarray, high: np.ndarray) -> None:
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
