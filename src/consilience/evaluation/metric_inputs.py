"""The inputs of metrics: labels, probabilities, numbers and weights, checked and turned into arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.modalities import to_numpy
from consilience.core.samples import check_weight
from consilience.core.targets import check_labels, label_positions

# Rounding in 32-bit softmaxes and in printed tables stays below this; unnormalised scores do not.
SUM_TOLERANCE = 1e-3


def as_array(values: Any) -> np.ndarray:
    """Any array, list or tensor (on any device, of any precision) as a NumPy array."""
    if hasattr(values, "detach") and values.is_floating_point():  # a tensor, recognised without importing torch
        values = values.detach().double()
    return to_numpy("values", values)


def read_labels(y: Any, prediction: Any) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted labels, both `[n]` and comparable with each other."""
    true, predicted = _labels("true labels", y), _labels("predicted labels", prediction)
    _same_rows(true, "predictions", predicted)
    _same_type(true, "predicted labels", predicted)
    return true, predicted


def read_probabilities(y: Any, probabilities: Any, classes: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """The true class of each sample as a column `[n]`, and probabilities `[n, class]` in float64."""
    given = as_array(probabilities)
    if given.ndim != 2 or given.shape[1] < 2 or given.dtype.kind not in "biuf":
        raise InputError(
            f"probabilities must be numbers of shape [n, class] with at least two classes, got {given.dtype} of shape "
            f"{list(given.shape)}"
        )
    table = given.astype(np.float64)
    broken = ~np.isfinite(table).all(axis=1)
    if broken.any():
        raise InputError(f"probabilities contain NaN or infinity ({name_rows(np.flatnonzero(broken))})")
    off = (table < 0).any(axis=1) | (np.abs(table.sum(axis=1) - 1) > SUM_TOLERANCE)
    if off.any():
        rows = np.flatnonzero(off)
        raise InputError(
            f"probabilities must be ≥ 0 and sum to one in every row, unlike {name_rows(rows)} (row {rows[0]} sums to "
            f"{table[rows[0]].sum():.6g}). Apply a softmax to logits first"
        )
    labels = _labels("true labels", y)
    _same_rows(labels, "probabilities", table)
    return _columns(labels, table.shape[1], classes), table


def class_columns(y: Any, columns: int, classes: Any = None) -> np.ndarray:
    """Which of so many columns belongs to each true label `[n]`; classes: as in `read_probabilities`."""
    return _columns(_labels("true labels", y), columns, classes)


def read_numbers(y: Any, prediction: Any) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted numbers, both `[n, target]` in float64."""
    true, predicted = _numbers("true targets", y), _numbers("predictions", prediction)
    if true.shape != predicted.shape:
        raise InputError(
            f"predictions must have one value per target, shape {list(true.shape)}, got {list(predicted.shape)}"
        )
    return true, predicted


def read_weight(weight: Any, n: int) -> np.ndarray:
    """Sample weights `[n]`; ones where none are given."""
    return np.ones(n) if weight is None else check_weight(as_array(weight), n)


def average(values: np.ndarray, weight: Any) -> float:
    """The weighted mean of one value a sample, `[n]`."""
    return float(np.average(values, weights=read_weight(weight, len(values))))


def _labels(what: str, values: Any) -> np.ndarray:
    try:
        return check_labels(as_array(values))
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def _numbers(what: str, values: Any) -> np.ndarray:
    given = as_array(values)
    if given.dtype.kind not in "biuf" or given.ndim not in (1, 2) or not len(given):
        raise InputError(
            f"{what} must be numbers of shape [n] or [n, target] with n ≥ 1, got {given.dtype} of shape "
            f"{list(given.shape)}"
        )
    numbers = given.astype(np.float64).reshape(len(given), -1)
    broken = ~np.isfinite(numbers).all(axis=1)
    if broken.any():
        raise InputError(f"{what} contain NaN or infinity ({name_rows(np.flatnonzero(broken))})")
    return numbers


def _columns(labels: np.ndarray, columns: int, classes: Any) -> np.ndarray:
    """Which column of the probabilities belongs to each label."""
    if classes is None:
        if labels.dtype.kind in "US":
            raise InputError(
                f"labels such as {labels[0]!r} do not identify a column of the probabilities: give classes, the labels "
                "in the order of the columns"
            )
        outside = (labels < 0) | (labels >= columns)
        if outside.any():
            rows = np.flatnonzero(outside)
            raise InputError(
                f"label {labels[rows[0]]} ({name_rows(rows)}) is no column of probabilities with {columns} classes: "
                f"without classes, labels are 0 … {columns - 1}"
            )
        return labels.astype(np.int64)
    known = _labels("classes", classes)
    if len(known) != columns or len(np.unique(known)) != columns:
        raise InputError(f"classes must be {columns} different labels, one per column, got {known.tolist()}")
    _same_type(labels, "classes", known)
    position = label_positions(labels, {label: number for number, label in enumerate(known.tolist())})
    if (position < 0).any():
        rows = np.flatnonzero(position < 0)
        raise InputError(
            f"label {labels[rows[0]].item()!r} ({name_rows(rows)}) is not among the classes {known.tolist()}: "
            "it has no probability"
        )
    return position


def _same_rows(labels: np.ndarray, what: str, others: np.ndarray) -> None:
    if len(labels) != len(others):
        raise InputError(f"there are {len(labels)} true labels but {len(others)} {what}")


def _same_type(labels: np.ndarray, what: str, others: np.ndarray) -> None:
    if (labels.dtype.kind in "US") != (others.dtype.kind in "US"):
        raise InputError(
            f"true labels such as {labels[0].item()!r} and {what} such as {others[0].item()!r} can never be equal: "
            "give both as text or both as numbers"
        )
