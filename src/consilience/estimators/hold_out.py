"""Which training samples an estimator holds out for early stopping."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.targets import TaskKind
from consilience.data.split_rules import SplitRule, pick
from consilience.data.splits import class_numbers, redraw_validation


def hold_out_rows(train: Samples, share: float, task: TaskKind, seed: int) -> np.ndarray:
    """Choose samples to hold out, booleans `[n]`: the same share of every class, but never all of a class.

    Whole groups or the latest samples, where samples have groups or times.
    """
    assert train.y is not None
    # Samples of weight 0 cannot be used for validation.
    rows = np.arange(len(train)) if train.weight is None else np.flatnonzero(train.weight)
    held = np.zeros(len(train), dtype=bool)
    count = round(share * len(rows))
    if count and (train.group is not None or train.time is not None):
        held[_whole(train, class_numbers(train.y, task), rows, count, seed)] = True
    elif count:
        parts = np.where(np.arange(len(rows)) < count, "validation", "train")
        held[rows] = redraw_validation(parts, train.y[rows], task, seed) == "validation"
    return held


def hold_out_unlabelled(train: Samples, share: float, seed: int) -> np.ndarray:
    """Choose samples to hold out at random, booleans `[n]`: whole groups, or the latest, where samples have them."""
    count = round(share * len(train))
    if not count or (train.group is None and train.time is None):
        return np.random.default_rng(seed).permutation(len(train)) < count
    held = np.zeros(len(train), dtype=bool)
    held[_whole(train, np.zeros(len(train), dtype=np.int64), np.arange(len(train)), count, seed)] = True
    return held


def _whole(train: Samples, classes: np.ndarray, rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    rule = SplitRule(group=train.group, time=train.time, column="the samples' group or time")
    try:
        return pick(rule, classes, rows, count, seed)
    except InputError as error:
        raise InputError(f"{error}. Or set validation=None, which holds no samples out") from None
