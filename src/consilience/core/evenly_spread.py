"""Rows spread evenly over samples, where some of them stand for all."""

from __future__ import annotations

import numpy as np


def evenly_spread(n: int, most: int) -> np.ndarray:
    """Return at most so many rows of n, the first and the last among them, in order.

    >>> evenly_spread(9, 3), evenly_spread(2, 3)
    (array([0, 4, 8]), array([0, 1]))
    """
    return np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))
