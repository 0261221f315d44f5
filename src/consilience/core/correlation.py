"""Pearson correlation between the weights of a modality and its own loss, with Fisher's confidence interval."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError, name_rows

# Relative spread that rounding to float32 gives to a constant.
ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Correlation(NamedTuple):
    """A correlation r, its confidence interval low … high, and the number of samples n.

    r is NaN if weights or losses are constant, or if there are fewer than two samples.
    """

    r: float
    low: float
    high: float
    n: int

    @property
    def defined(self) -> bool:
        """Whether r is not NaN."""
        return not math.isnan(self.r)

    @property
    def positive(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low > 0


def correlation(weights: Any, losses: Any, mask: Any = None, *, confidence: float = 0.95) -> Correlation:
    """Return Pearson's r of weights and losses with Fisher's interval tanh(atanh r ± z/√(n − 3)).

    Theorem 2 of Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data, requires r ≤ 0 for every
    modality. The interval is asymptotically exact for bivariate normal samples; with n ≤ 3 it is −1 … 1.

    Args:
        weights: NumPy or torch `[n]`.
        losses: NumPy or torch `[n]`.
        mask: Booleans `[n]`; values outside the mask are ignored and may be NaN.
        confidence: Between 0 and 1.

    >>> correlation([3.0, 1.0, 2.0, 0.5], [0.1, 2.0, 0.9, 1.7])
    Correlation(r=-0.94..., low=-0.99..., high=0.16..., n=4)
    >>> correlation([0.5, 0.5, 0.5], [0.1, 2.0, 0.9]).defined
    False
    """
    if not 0 < confidence < 1:
        raise InputError(f"correlation: confidence must be between 0 and 1, got {confidence!r}")
    x, y = _numbers(weights), _numbers(losses)
    seen = np.ones(x.shape, dtype=bool) if mask is None else _numbers(mask) != 0
    if x.ndim != 1 or not x.shape == y.shape == seen.shape:
        raise InputError(
            "correlation: weights, losses and mask must be one number per sample [n], got shapes "
            f"{list(x.shape)}, {list(y.shape)} and {list(seen.shape)}"
        )
    broken = seen & ~(np.isfinite(x) & np.isfinite(y))
    if broken.any():
        raise InputError(f"correlation: weights and losses must be finite, unlike {name_rows(np.flatnonzero(broken))}")
    x, y = x[seen], y[seen]
    n = len(x)
    if n < 2 or is_constant(x) or is_constant(y):
        return Correlation(math.nan, math.nan, math.nan, n)
    r = float(np.clip(_unit(x) @ _unit(y), -1.0, 1.0))
    return Correlation(r, *fisher_interval(r, n, confidence), n)


def fisher_interval(r: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Fisher's confidence interval of a correlation r of n samples.

    >>> [round(end, 3) for end in fisher_interval(-0.5, 28)]
    [-0.736, -0.156]
    """
    if math.isnan(r):
        return math.nan, math.nan
    if n <= 3:
        return -1.0, 1.0
    if abs(r) >= 1:
        return r, r
    reach = NormalDist().inv_cdf((1 + confidence) / 2) / math.sqrt(n - 3)
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)


def is_constant(values: np.ndarray) -> bool:
    """Return whether numbers `[n]` are equal up to rounding in float32.

    >>> is_constant(np.float32([1 / 3, 1 / 3])), is_constant(np.array([1.0, 1.001]))
    (True, False)
    """
    return bool(np.ptp(values) <= ROUNDING * np.abs(values).max()) if len(values) else True


def static_weights(weights: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return which modalities' weights `[n, modality]` depend only on which modalities are present, `[modality]`.

    Equal weights over the present modalities vary where modalities are missing, but do not depend on the values.

    >>> static_weights(np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]), np.array([[1, 1], [1, 0], [1, 1]], dtype=bool))
    array([ True,  True])
    """
    _, pattern, counts = np.unique(present, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(pattern.ravel(), kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ordered = np.where(present, weights, 0.0)[order]
    high, low = (end.reduceat(ordered, starts, axis=0) for end in (np.maximum, np.minimum))
    alike = high - low <= ROUNDING * np.maximum(np.abs(high), np.abs(low))
    seen_twice = (present[order][starts] & (counts > 1)[:, None]).any(axis=0)
    return alike.all(axis=0) & seen_twice


def _numbers(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):  # a tensor, recognised without importing torch; NumPy has no bfloat16
        values = values.detach().cpu().double()
    return np.asarray(values, dtype=np.float64)


def _unit(values: np.ndarray) -> np.ndarray:
    """Centre and scale to length 1; dividing by the largest value first avoids overflow and underflow."""
    centred = values - values.mean()
    centred /= np.abs(centred).max()
    return centred / np.linalg.norm(centred)
