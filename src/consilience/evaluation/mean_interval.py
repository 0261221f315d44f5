"""How sure a mean over samples is, also where samples of one group are alike."""

from __future__ import annotations

import numpy as np


def half_width(values: np.ndarray, units: np.ndarray | None = None) -> np.ndarray:
    """Return half the width of the 95 % interval of a mean over samples.

    The samples of a unit, such as a group or a block in time, count as one draw: the interval is normal, with the
    spread of the units' sums. Its variance is what a bootstrap of units has, times U / (U − 1) for U units.

    Args:
        values: `[n, ...]`.
        units: To which unit each sample belongs `[n]`. None: each sample is its own.

    Returns:
        `[...]`; infinite for a single unit.

    Example:
        >>> single = half_width(np.array([0.0, 1.0, 1.0]))
        >>> twice = half_width(np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 2, 2]))
        >>> bool(np.isclose(single, twice))
        True
    """
    n, values = len(values), values.astype(np.float64)
    sums = values - values.mean(axis=0)
    if units is not None:
        different, unit_of = np.unique(units, return_inverse=True)
        each, sums = sums, np.zeros((len(different), *values.shape[1:]))
        np.add.at(sums, unit_of, each)
    if len(sums) < 2:
        return np.full(values.shape[1:], np.inf)
    return 1.96 * np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum(axis=0)) / n
