"""How good predicted numbers are: errors, share of variance explained, correlation, the accuracies CMU-MOSI reports.

As in `classification`, each metric also gives the terms that it sums over samples.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import Fraction, checked
from consilience.evaluation.metric_inputs import average, read_numbers, read_weight

Zeros = Literal["positive", "excluded"]


@checked
def mse(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean squared error of numbers `[n]` or `[n, target]` (mean over targets): smaller is better.

    >>> mse([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    return average(squared_error(y, prediction), weight)


@checked
def mae(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean absolute error of numbers `[n]` or `[n, target]` (mean over targets): smaller is better.

    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    return average(absolute_error(y, prediction), weight)


@checked
def mape(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean absolute error relative to the size of y, `[n]` or `[n, target]`: smaller is better, 0.1 is 10 %.

    As scikit-learn's, it divides by 2.2e-16 where y is 0, so it makes sense only for targets away from 0.

    >>> mape([1.0, 2.0], [1.0, 4.0])
    0.5
    """
    return average(relative_error(y, prediction), weight)


@checked
def pinball(y: Any, prediction: Any, *, quantile: Fraction = 0.5, weight: Any = None) -> float:
    """The pinball (quantile) loss of numbers `[n]` or `[n, target]` (mean over targets): smaller is better.

    For quantile q it is the mean of q·(y − p) where p is too low and of (1 − q)·(p − y) where it is too high; the
    prediction that minimises it is the quantile. For q = ½ it is half the mean absolute error.

    >>> pinball([1.0, 2.0], [0.0, 4.0], quantile=0.75)
    0.625
    """
    return average(quantile_loss(y, prediction, quantile), weight)


@checked
def r2(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The share of variance explained R², averaged over targets: at most 1, larger is better; 0 is the mean of y.

    As scikit-learn's, it is 0 for a constant target that is not met exactly, and 1 for one that is.

    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    0.5
    """
    true, predicted = read_numbers(y, prediction)
    each = read_weight(weight, len(true))
    heard = each > 0  # what has no weight must not decide the scale either
    terms = spread_terms(true[heard], predicted[heard])
    return float(explained_share(np.tensordot(each[heard] / each.max(), terms, axes=1)))


@checked
def pearson(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """Pearson's correlation, averaged over targets: range −1 … 1, larger is better.

    It is nan for constant values, for fewer than two samples, and if any target is constant. SciPy's and torchmetrics'
    take no weights.

    >>> round(pearson([1.0, 2.0, 3.0], [2.0, 4.0, 5.0]), 4)
    0.982
    >>> pearson([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    nan
    """
    true, predicted = read_numbers(y, prediction)
    each = read_weight(weight, len(true))
    return float(np.mean((_unit(true, each) * _unit(predicted, each)).sum(axis=0).clip(-1.0, 1.0)))


@checked
def acc7(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """Seven-class accuracy of sentiment on −3 … 3 `[n]`: both sides are rounded to whole numbers and clipped.

    >>> acc7([2.6, -1.0, 0.2], [9.0, -1.4, 0.7])
    0.6666666666666666
    """
    return average(same_seventh(y, prediction), weight)


@checked
def acc2(y: Any, prediction: Any, *, zeros: Zeros = "positive", weight: Any = None) -> float:
    """Two-class accuracy of sentiment `[n]`: whether the signs agree.

    The literature has two conventions for neutral samples, whose target is 0. `zeros="positive"` is negative against
    non-negative (Zadeh et al., 2017), the default because it counts every sample. `zeros="excluded"` is negative
    against positive without the neutral samples (Tsai et al., Multimodal Transformer for Unaligned Multimodal Language
    Sequences, 2019), where a prediction of exactly 0 counts as negative; nan if every sample is neutral.

    >>> y, prediction = [-1.0, 0.0, 2.0], [-0.5, -0.1, 1.0]
    >>> acc2(y, prediction), acc2(y, prediction, zeros="excluded")
    (0.6666666666666666, 1.0)
    """
    if zeros not in get_args(Zeros):
        raise unknown_name("convention for zeros in acc2", zeros, get_args(Zeros))
    if zeros == "positive":
        return average(same_sign(y, prediction), weight)
    right, counted = same_nonzero_sign(y, prediction).T
    counted = counted * read_weight(weight, len(counted))
    return average(right, counted) if counted.any() else float("nan")


def squared_error(y: Any, prediction: Any) -> np.ndarray:
    """The squared error of each sample `[n]`, mean over targets: the terms of `mse`."""
    true, predicted = read_numbers(y, prediction)
    return ((predicted - true) ** 2).mean(axis=1)


def absolute_error(y: Any, prediction: Any) -> np.ndarray:
    """The absolute error of each sample `[n]`, mean over targets: the terms of `mae`."""
    true, predicted = read_numbers(y, prediction)
    return np.abs(predicted - true).mean(axis=1)


def relative_error(y: Any, prediction: Any) -> np.ndarray:
    """The error of each sample relative to |y| `[n]`, mean over targets: the terms of `mape`."""
    true, predicted = read_numbers(y, prediction)
    return (np.abs(predicted - true) / np.maximum(np.abs(true), np.finfo(np.float64).eps)).mean(axis=1)


def quantile_loss(y: Any, prediction: Any, quantile: float = 0.5) -> np.ndarray:
    """The pinball loss of each sample `[n]`, mean over targets: the terms of `pinball`."""
    true, predicted = read_numbers(y, prediction)
    short = true - predicted
    return np.maximum(quantile * short, (quantile - 1) * short).mean(axis=1)


def spread_terms(y: Any, prediction: Any) -> np.ndarray:
    """`[n, 4, target]`: 1, y, y² and the squared error, of targets that are standardised first: the terms of `r2`."""
    true, predicted = read_numbers(y, prediction)
    largest = np.abs(true).max(axis=0, initial=0.0)
    true, predicted = within_range(true, largest), within_range(predicted, largest)
    scale = np.where(np.ptp(true, axis=0) > 0, true.std(axis=0), 1.0)
    z = (true - true[:1] - (true - true[:1]).mean(axis=0)) / scale
    with np.errstate(over="ignore"):
        return np.stack([np.ones_like(z), z, z * z, ((predicted - true) / scale) ** 2], axis=1)


def explained_share(sums: np.ndarray) -> np.ndarray:
    """R² from the sums of `spread_terms`, `[..., 4, target]`."""
    total, z, zz, error = np.moveaxis(sums, -2, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = zz - z * z / total
        share = 1 - error / np.where(spread > 1e-12 * total, spread, np.nan)  # of a constant only rounding is left
    share = np.where(np.isnan(share), np.where(error > 0, 0.0, 1.0), share)
    return np.where(total > 0, share, np.nan).mean(axis=-1)


def same_seventh(y: Any, prediction: Any) -> np.ndarray:
    """Whether each sample is in the right of seven classes `[n]`: the terms of `acc7`."""
    true, predicted = _one_target("acc7", y, prediction)
    return true.round().clip(-3, 3) == predicted.round().clip(-3, 3)


def same_sign(y: Any, prediction: Any) -> np.ndarray:
    """Whether each sign is right `[n]`, 0 being positive: the terms of `acc2`."""
    true, predicted = _one_target("acc2", y, prediction)
    return (true >= 0) == (predicted >= 0)


def same_nonzero_sign(y: Any, prediction: Any) -> np.ndarray:
    """`[n, 2]`: whether the signs agree, and whether the sample counts."""
    true, predicted = _one_target("acc2", y, prediction)
    return np.stack([((true > 0) == (predicted > 0)) & (true != 0), true != 0], axis=1).astype(np.float64)


def share_of_counted(sums: np.ndarray) -> np.ndarray:
    """The accuracy from the sums of `same_nonzero_sign`; nan where no sample counts."""
    return np.divide(sums[..., 0], sums[..., 1], out=np.full(sums.shape[:-1], np.nan), where=sums[..., 1] > 0)


def moments(y: Any, prediction: Any) -> np.ndarray:
    """`[n, 6, target]`: 1, x, y, x², y² and xy of numbers that are standardised first, so that no digits are lost."""
    pair = (within_range(values, np.abs(values).max(axis=0, initial=0.0)) for values in read_numbers(y, prediction))
    x, z = ((values - values.mean(axis=0)) / (values.std(axis=0) + 1e-300) for values in pair)
    return np.stack([np.ones_like(x), x, z, x * x, z * z, x * z], axis=1)


def from_moments(sums: np.ndarray) -> np.ndarray:
    """The correlation from the sums of `moments`, `[..., 6, target]`; nan for constant values."""
    total, x, z, xx, zz, xz = np.moveaxis(sums, -2, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        across, spread = (
            xz / total - x * z / total**2,
            (xx / total - (x / total) ** 2) * (zz / total - (z / total) ** 2),
        )
        r = across / np.sqrt(np.where(spread > 1e-24, spread, np.nan))  # of a constant only rounding is left
    return r.clip(-1.0, 1.0).mean(axis=-1)


def within_range(values: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Values times the power of two that brings `largest` near 1: no square of it overflows, and no digit changes."""
    with np.errstate(over="ignore"):  # what is larger still is infinitely wrong
        return np.ldexp(values, -np.frexp(largest)[1])


def _unit(values: np.ndarray, each: np.ndarray) -> np.ndarray:
    """Each column centred and divided by its length under the weights, √w folded in; nan for a constant column."""
    values = values[each > 0]
    each = each[each > 0] / each.sum()
    largest = np.abs(values).max(axis=0)
    values = values / np.where(largest > 0, largest, 1.0)  # so that no square overflows or vanishes
    centred = values - each @ values
    length = np.sqrt(each @ centred**2)
    # Rounding leaves a trace of spread in a column that is constant.
    spread = np.ptp(values, axis=0) > 1e-13
    return np.sqrt(each)[:, None] * centred / np.where(spread, length, np.nan)


def _one_target(name: str, y: Any, prediction: Any) -> tuple[np.ndarray, np.ndarray]:
    true, predicted = read_numbers(y, prediction)
    if true.shape[1] != 1:
        raise InputError(f"{name} judges one sentiment per sample, shape [n], got {true.shape[1]} targets")
    return true[:, 0], predicted[:, 0]
