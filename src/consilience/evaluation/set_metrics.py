"""How good sets of classes and intervals of numbers are: how often they hold the truth, and how large they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.evaluation.metric_inputs import as_array, average, class_columns


def set_coverage(y: Any, sets: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The share of samples whose set holds the true class.

    Args:
        y: Labels `[n]`.
        sets: Booleans `[n, class]`, as `predict_set` returns them.
        classes: The labels of the columns; 0 … class−1 by default.
        weight: Sample weights `[n]`.

    Example:
        >>> set_coverage(["a", "b"], [[True, False], [True, False]], classes=["a", "b"])
        0.5
    """
    held = _read_sets(sets)
    column = class_columns(y, held.shape[1], classes)
    if len(column) != len(held):
        raise InputError(f"there are {len(column)} true labels but {len(held)} sets")
    return average(held[np.arange(len(held)), column], weight)


def mean_set_size(sets: Any, *, weight: Any = None) -> float:
    """The mean number of classes in a set.

    >>> mean_set_size([[True, True, False], [False, False, False]])
    1.0
    """
    return average(_read_sets(sets).sum(axis=1), weight)


def interval_coverage(y: Any, intervals: Any, *, weight: Any = None) -> float:
    """The share of numbers inside their interval, ends included; the mean over targets.

    Args:
        y: Numbers `[n]` or `[n, target]`.
        intervals: Lower and upper ends, `[n, 2]` or `[n, target, 2]`.
        weight: Sample weights `[n]`.

    Example:
        >>> interval_coverage([1.0, 5.0], [[0.0, 2.0], [0.0, 2.0]])
        0.5
    """
    true, ends = as_array(y).astype(np.float64), _read_intervals(intervals)
    if true.reshape(len(true), -1).shape != ends.shape[:2]:
        raise InputError(f"y has shape {list(true.shape)}, the intervals {list(as_array(intervals).shape)}")
    inside = (ends[..., 0] <= true.reshape(ends.shape[:2])) & (true.reshape(ends.shape[:2]) <= ends[..., 1])
    return average(inside.mean(axis=1), weight)


def mean_interval_width(intervals: Any, *, weight: Any = None) -> float:
    """The mean width of intervals `[n, 2]` or `[n, target, 2]`; infinite if one is.

    >>> mean_interval_width([[0.0, 2.0], [1.0, 2.0]])
    1.5
    """
    ends = _read_intervals(intervals)
    return average((ends[..., 1] - ends[..., 0]).mean(axis=1), weight)


def set_labels(sets: Any, classes: Any) -> list[list[Any]]:
    """Return the labels in each set, in the order of `classes`.

    >>> set_labels([[True, False], [True, True], [False, False]], ["cat", "dog"])
    [['cat'], ['cat', 'dog'], []]
    """
    held, labels = _read_sets(sets), as_array(classes)
    if held.shape[1] != len(labels):
        raise InputError(f"the sets have {held.shape[1]} columns, but there are {len(labels)} classes")
    ends = np.cumsum(held.sum(axis=1))[:-1]
    return [chosen.tolist() for chosen in np.split(labels[np.nonzero(held)[1]], ends)]


def _read_sets(sets: Any) -> np.ndarray:
    held = as_array(sets)
    if held.ndim != 2 or held.dtype.kind != "b" or not len(held):
        raise InputError(f"sets must be booleans of shape [n, class], got {held.dtype} of shape {list(held.shape)}")
    return held


def _read_intervals(intervals: Any) -> np.ndarray:
    ends = as_array(intervals).astype(np.float64)
    if ends.ndim not in (2, 3) or ends.shape[-1] != 2 or not len(ends):
        raise InputError(f"intervals must have shape [n, 2] or [n, target, 2], got {list(ends.shape)}")
    return ends.reshape(len(ends), -1, 2)
