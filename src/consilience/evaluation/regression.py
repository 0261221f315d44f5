"""How good predicted numbers are: squared and absolute error, correlation, and the accuracies CMU-MOSI reports."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.evaluation.metric_inputs import average, read_numbers, read_weight

Zeros = Literal["positive", "excluded"]


def mse(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean squared error; y, prediction: `[n]` or `[n, target]` (averaged over targets). Smaller is better.

    >>> mse([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    true, predicted = read_numbers(y, prediction)
    return average(((predicted - true) ** 2).mean(axis=1), weight)


def mae(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean absolute error; y, prediction: `[n]` or `[n, target]` (averaged over targets). Smaller is better.

    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    true, predicted = read_numbers(y, prediction)
    return average(np.abs(predicted - true).mean(axis=1), weight)


def pearson(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """Pearson's correlation, averaged over targets: range −1 … 1, larger is better.

    With a constant the correlation does not exist and is nan: 0 would read as "measured, and none found". The same
    holds for fewer than two samples, and for the mean if any target is constant.

    >>> round(pearson([1.0, 2.0, 3.0], [2.0, 4.0, 5.0]), 4)
    0.982
    >>> pearson([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    nan
    """
    true, predicted = read_numbers(y, prediction)
    each = read_weight(weight, len(true))
    return float(np.mean((_unit(true, each) * _unit(predicted, each)).sum(axis=0).clip(-1.0, 1.0)))


def acc7(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """Seven-class accuracy of sentiment on −3 … 3: both sides rounded to whole numbers and clipped. `[n]`.

    >>> acc7([2.6, -1.0, 0.2], [9.0, -1.4, 0.7])
    0.6666666666666666
    """
    true, predicted = _one_target("acc7", y, prediction)
    return average(true.round().clip(-3, 3) == predicted.round().clip(-3, 3), weight)


def acc2(y: Any, prediction: Any, *, zeros: Zeros = "positive", weight: Any = None) -> float:
    """Two-class accuracy of sentiment: is its sign right? `[n]`.

    The literature has two conventions for neutral samples, whose target is 0. `zeros="positive"` is negative against
    non-negative (Zadeh et al., 2017), the default because it judges every sample, as the other metrics do.
    `zeros="excluded"` is negative against positive without the neutral samples (Tsai et al., Multimodal Transformer
    for Unaligned Multimodal Language Sequences, 2019), where a prediction of exactly 0 counts as negative; nan if
    every sample is neutral.

    >>> y, prediction = [-1.0, 0.0, 2.0], [-0.5, -0.1, 1.0]
    >>> acc2(y, prediction), acc2(y, prediction, zeros="excluded")
    (0.6666666666666666, 1.0)
    """
    if zeros not in get_args(Zeros):
        raise unknown_name("convention for zeros in acc2", zeros, get_args(Zeros))
    true, predicted = _one_target("acc2", y, prediction)
    if zeros == "positive":
        return average((true >= 0) == (predicted >= 0), weight)
    counted = np.where(true != 0, read_weight(weight, len(true)), 0.0)
    return average((true > 0) == (predicted > 0), counted) if counted.any() else float("nan")


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
