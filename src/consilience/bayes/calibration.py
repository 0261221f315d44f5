"""Calibration of experts' logits: by a temperature, also a bias per class, or a mixture with the prior.

The mixture is for experts that are sometimes wrong and certain.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, name_rows

# 1 / T lies within these factors of the spread of an expert's logits: beyond, softmax is flat or certain.
_MIN_FACTOR, _MAX_FACTOR = 1e-3, 1e3
_ITERATIONS = 100
# The logarithm of the smallest positive float64, which replaces ln 0 where no probability of 0 was seen in fitting.
MIN_LOG = -745.0
_LOG_BOUND = 15.0  # of the mixture's parameters, on the log scale

Values = TypeVar("Values", np.ndarray, Tensor)


def fit_temperature(
    opinions: np.ndarray,
    y: np.ndarray,
    present: np.ndarray | None = None,
    *,
    weight: np.ndarray | None = None,
    smoothing: float = 1.0,
) -> np.ndarray:
    """Fit the temperature of each expert, at which softmax(z / T) has the smallest log-loss.

    The loss is convex in 1/T; all experts are solved at once. Guo et al. 2017, On Calibration of Modern Neural
    Networks.

    Args:
        opinions: Finite logits `[n, modality, class]`.
        y: Class indices `[n]`.
        present: `[n, modality]`.
        weight: Sample weights `[n]`.
        smoothing: How many of the labels count as drawn at random, so that an expert that was never wrong does not
            become certain.

    Returns:
        Temperatures `[modality]`; 1 for an expert that is never present.

    >>> z = np.array([[[0.0, 4.0]], [[4.0, 0.0]], [[4.0, 0.0]], [[4.0, 0.0]]])
    >>> fit_temperature(z, np.array([1, 0, 0, 1]), smoothing=0).round(3)  # right three times in four: odds of 3
    array([3.641])
    """
    z, target, counted = _read(opinions, y, present, weight, smoothing)
    spread = np.sqrt((counted[:, :, None] * z**2).sum(axis=(0, 2)) / _positive(counted.sum(axis=0)))
    spread = _positive(spread)
    z = z / spread[:, None]
    wanted = (counted * (target * z).sum(axis=2)).sum(axis=0)

    def slope(beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivative of each expert's loss by β = 1 / T: `[modality]`."""
        p = _softmax(beta[:, None] * z)
        mean = (p * z).sum(axis=2)
        variance = (p * z**2).sum(axis=2) - mean**2
        return (counted * mean).sum(axis=0) - wanted, (counted * variance).sum(axis=0)

    low, high = np.full(len(spread), _MIN_FACTOR), np.full(len(spread), _MAX_FACTOR)
    beta = np.ones(len(spread))
    for _ in range(_ITERATIONS):
        first, second = slope(beta)
        low, high = np.where(first < 0, beta, low), np.where(first > 0, beta, high)
        newton = beta - first / _positive(second)
        # The slope rises with β: where a Newton step leaves the bracket, halve it (on the log scale) instead.
        step = np.where((newton > low) & (newton < high) & (second > 0), newton, np.sqrt(low * high))
        step = np.where(first == 0, beta, step)
        done = np.abs(step - beta) <= 1e-13 * beta
        beta = step
        if done.all():
            break
    return np.where(counted.any(axis=0), spread / beta, 1.0)


def fit_bias_temperature(
    opinions: np.ndarray, y: np.ndarray, present: Any = None, *, weight: Any = None, smoothing: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Fit temperatures `[modality]` and biases `[modality, class]` of softmax(z / T + b) with the smallest log-loss.

    Arguments as for `fit_temperature`. Biases sum to 0 over the classes.

    Alexandari et al. 2020, Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift
    Adaptation.
    """
    z, target, counted = _read(opinions, y, present, weight, smoothing)
    start = fit_temperature(opinions, y, present, weight=weight, smoothing=smoothing)
    temperature, bias = start.copy(), np.zeros((z.shape[1], z.shape[2]))
    for expert in np.flatnonzero(counted.any(axis=0)):
        rows = np.flatnonzero(counted[:, expert])
        own = counted[rows, expert] / counted[rows, expert].sum()
        beta, bias[expert] = _descend(z[rows, expert], target[rows, expert], own, 1 / start[expert])
        temperature[expert] = 1 / beta
    return temperature, bias


def fit_robust_temperature(
    opinions: np.ndarray,
    y: np.ndarray,
    prior: np.ndarray,
    present: np.ndarray | None = None,
    *,
    weight: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit temperatures and reliabilities `[modality]` at which ρ softmax(z / T) + (1 − ρ) π has the smallest log-loss.

    Arguments as for `fit_temperature`; prior: `[class]`. With probability 1 − ρ an opinion does not depend on the
    class, so that an expert's evidence is bounded. A temperature alone would have to discard an expert for a few
    certain mistakes. Two labels, one sound and one not, are added to those seen, so that 0 < ρ < 1.

    >>> z = np.tile([[[0.0, 20.0]]], (1000, 1, 1))
    >>> T, rho = fit_robust_temperature(z, np.array([1] * 980 + [0] * 20), np.array([0.5, 0.5]))
    >>> p = rho / (1 + np.exp(-20 / T)) + (1 - rho) / 2
    >>> p.round(2)  # right 98 times in 100
    array([0.98])
    """
    from scipy.optimize import minimize

    z, _, counted = _read(opinions, y, present, weight, 0.0)
    start = fit_temperature(opinions, y, present, weight=weight)
    temperature, reliability = start.copy(), np.ones(len(start))
    for expert in np.flatnonzero(counted.any(axis=0)):
        rows = np.flatnonzero(counted[:, expert])
        data = (z[rows, expert], np.asarray(y)[rows], counted[rows, expert], np.asarray(prior, dtype=np.float64))
        log_beta = -np.log(start[expert])
        bounds = [(log_beta - _LOG_BOUND, log_beta + _LOG_BOUND), (-_LOG_BOUND, _LOG_BOUND)]
        # Not convex: start once from an expert that is nearly always sound, once from one that is half the time.
        fits = [
            minimize(_mixture_loss, [log_beta, odds], args=data, jac=True, method="L-BFGS-B", bounds=bounds)
            for odds in (4.0, 0.0)
        ]
        best = min(fits, key=lambda fit: fit.fun).x
        temperature[expert], reliability[expert] = np.exp(-best[0]), 1 / (1 + np.exp(-best[1]))
    return temperature, reliability


def calibrate(opinions: Values, temperature: Values, bias: Values | None = None) -> Values:
    """Calibrate opinions `[n, modality, class]`: z / T + b, for arrays or tensors."""
    calibrated = opinions / temperature[:, None]
    return calibrated if bias is None else calibrated + bias


def _mixture_loss(
    x: np.ndarray, z: np.ndarray, y: np.ndarray, weight: np.ndarray, prior: np.ndarray
) -> tuple[float, np.ndarray]:
    """Loss and gradient by x, ln β and the log-odds of ρ, of one expert: z `[n, class]`, y and weight `[n]`."""
    beta, sound, unsound = np.exp(x[0]), 1 / (1 + np.exp(-x[1])), 1 / (1 + np.exp(x[1]))
    rows = np.arange(len(y))
    p = _softmax(beta * z)
    right = p[rows, y]
    mixed = np.maximum(sound * right + unsound * prior[y], 1e-300)
    value = -weight @ np.log(mixed) - np.log(sound) - np.log(unsound)
    by_beta = -weight @ (sound * right / mixed * (z[rows, y] - (p * z).sum(axis=1)))
    by_odds = -weight @ ((right - prior[y]) / mixed) * sound * unsound + sound - unsound
    return float(value), np.array([by_beta * beta, by_odds])


def _descend(z: np.ndarray, target: np.ndarray, weight: np.ndarray, beta: float) -> tuple[float, np.ndarray]:
    """Newton's method, damped, on the convex loss of one expert: z, target `[n, class]`, weight `[n]` → β, b `[class]`.

    The weights sum to 1.
    """
    classes = z.shape[1]
    scale = float(_positive(np.sqrt((weight @ z**2).sum())))
    x = np.zeros(classes + 1)  # β relative to the spread of z, then the biases
    x[0] = beta * scale
    z = z / scale

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        scores = x[0] * z + x[1:]
        total = np.logaddexp.reduce(scores, axis=1)
        return float(weight @ (total - (target * scores).sum(axis=1))), np.exp(scores - total[:, None])

    value, p = loss(x)
    for _ in range(_ITERATIONS):
        off = p - target
        gradient = np.concatenate([[weight @ (off * z).sum(axis=1)], weight @ off])
        pz = p * z
        mean = pz.sum(axis=1)
        hessian = np.empty((classes + 1, classes + 1))
        hessian[0, 0] = weight @ ((pz * z).sum(axis=1) - mean**2)
        hessian[0, 1:] = hessian[1:, 0] = weight @ (pz - p * mean[:, None])
        hessian[1:, 1:] = np.diag(weight @ p) - (weight[:, None] * p).T @ p
        # The loss is flat along equal biases: filling that direction in leaves the step without a part along it.
        hessian[1:, 1:] += 1.0
        step = np.linalg.solve(hessian + 1e-14 * np.eye(classes + 1), gradient)
        length = 1.0
        # β stays within its bounds: without smoothing, that of an expert that is always right would go to infinity.
        while length > 1e-10 and not _MIN_FACTOR <= x[0] - length * step[0] <= _MAX_FACTOR:
            length /= 2
        decrease = gradient @ step
        while length > 1e-10 and loss(x - length * step)[0] > value - 1e-4 * length * decrease:
            length /= 2
        if decrease < 1e-16 or length <= 1e-10:
            break
        x = x - length * step
        value, p = loss(x)
    return x[0] / scale, x[1:] - x[1:].mean()


def _read(
    opinions: np.ndarray, y: np.ndarray, present: np.ndarray | None, weight: np.ndarray | None, smoothing: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centred logits and smoothed targets `[n, modality, class]`, and how much each counts `[n, modality]`."""
    z = np.asarray(opinions, dtype=np.float64)
    if z.ndim != 3:
        raise InputError(f"calibration: opinions must have shape [n, modality, class], got {list(z.shape)}")
    labels = np.asarray(y)
    if labels.shape != z.shape[:1] or labels.dtype.kind not in "iu":
        raise InputError(
            f"calibration: y must be {len(z)} class indices, one a row of the opinions, got {labels.dtype} of shape "
            f"{list(labels.shape)}"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < z.shape[2]):
        rows = np.flatnonzero((labels < 0) | (labels >= z.shape[2]))
        raise InputError(
            f"calibration: label {labels[rows[0]]} ({name_rows(rows)}) is not a class: the opinions have classes 0 to "
            f"{z.shape[2] - 1}"
        )
    there = np.ones(z.shape[:2], dtype=bool) if present is None else np.asarray(present, dtype=bool)
    z = np.where(there[:, :, None], z, 0.0)
    broken = ~np.isfinite(z).all(axis=(1, 2))
    if broken.any():
        raise InputError(f"calibration: opinions must be finite where present ({name_rows(np.flatnonzero(broken))})")
    counted = there * (np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64))[:, None]
    random_share = np.minimum(smoothing / _positive(counted.sum(axis=0)), 1.0)
    one_hot = np.arange(z.shape[2]) == labels[:, None]
    target = (1 - random_share)[:, None] * one_hot[:, None, :] + random_share[:, None] / z.shape[2]
    return z - z.mean(axis=2, keepdims=True), target, counted


def _softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def _positive(values: np.ndarray) -> np.ndarray:
    """Values to divide by: 1 where they are 0."""
    return np.where(values > 0, values, 1.0)


def find_floor(log_p: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The value that replaces ln 0 of each expert: half of the smallest probability it gave to any class: `[modality]`.

    A random forest gives 0 when no tree voted for a class, which means that the class is rare, not impossible.
    """
    floor = np.full(log_p.shape[1], MIN_LOG)
    for expert in range(log_p.shape[1]):
        own = log_p[present[:, expert], expert]
        if np.isneginf(own).any() and np.isfinite(own).any():
            floor[expert] = max(own[np.isfinite(own)].min() - math.log(2), MIN_LOG)
    return floor


def precise_dtype(values: Tensor) -> torch.dtype:
    """float64, or float32 on a device that has no float64."""
    return torch.float32 if values.device.type == "mps" else torch.float64
