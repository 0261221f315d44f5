"""Pearson's correlation between a modality's weights and its own loss, with Fisher's confidence interval."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError, name_rows

# Of numbers that stand for one constant, rounding makes a spread of about this share of their size, in float32.
ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Correlation(NamedTuple):
    """r, its confidence interval low … high, and the number of samples n it was measured on.

    r is nan where it does not exist: weights or losses are constant, or there are fewer than two samples.
    """

    r: float
    low: float
    high: float
    n: int

    @property
    def defined(self) -> bool:
        """Whether there is a correlation at all: constant weights have none."""
        return not math.isnan(self.r)

    @property
    def positive(self) -> bool:
        """Whether the whole interval lies above 0, so that chance is no explanation."""
        return self.low > 0


def correlation(weights: Any, losses: Any, mask: Any = None, *, confidence: float = 0.95) -> Correlation:
    """Pearson's r(weights, losses) `[n]` over the samples in mask, with Fisher's interval tanh(atanh r ± z/√(n − 3)).

    Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data, theorem 2, want r ≤ 0 for every modality.
    The interval is exact in the limit for bivariate normal samples; with three samples or fewer it is −1 … 1.
    NumPy or torch; what is outside the mask is never read, so it may be nan.

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
            "correlation: weights, losses and mask must be one number a sample [n], got shapes "
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
    """Fisher's confidence interval of a correlation r measured on n samples.

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
    """Whether numbers `[n]` are one number but for rounding in 32 bits.

    >>> is_constant(np.float32([1 / 3, 1 / 3])), is_constant(np.array([1.0, 1.001]))
    (True, False)
    """
    return bool(np.ptp(values) <= ROUNDING * np.abs(values).max()) if len(values) else True


def static_weights(weights: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Which modalities' weights `[n, modality]` depend on nothing but who is present: booleans `[modality]`.

    Equal weights over what is present are not constant where modalities are missing, and yet nothing that the method
    has learned of a sample moves them.

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
    """Centred and of length 1; divided by the largest first, so that no square overflows or vanishes."""
    centred = values - values.mean()
    centred /= np.abs(centred).max()
    return centred / np.linalg.norm(centred)
