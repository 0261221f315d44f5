"""Splits by groups, by time and in folds, beside the random split of single rows.

Samples of a group are never in two parts. With times, the latest samples are the test part and those before them the
validation part. With folds, seed s tests on fold s mod K of repeat s // K, so that K seeds test every row once; with
times the folds expand: each is tested by what came before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, show
from consilience.data.folds import count_classes, cut_into_blocks, fold_at_random, fold_groups

_STREAM = 3
# Draws of groups: the best of a few, so that seeds differ; more only while a class would be missing, or too many rows.
_DRAWS, _MOST_DRAWS = 4, 64


@dataclass(frozen=True, eq=False)
class SplitRule:
    """How the parts of a set are drawn.

    Attributes:
        group: The number of each sample's group `[n]`, or None.
        time: Each sample's rank in time `[n]`, or None.
        folds: How many folds, or None for parts of 70, 15 and 15 %.
        column: What groups or times are called in messages.
        labels: The name of each group, or of each moment.
    """

    group: np.ndarray | None = None
    time: np.ndarray | None = None
    folds: int | None = None
    column: str = ""
    labels: Sequence[object] = ()

    def __post_init__(self) -> None:
        if self.group is not None and self.time is not None:
            raise InputError("a split is by group or by time, not by both: leave one of them out")

    @property
    def varies(self) -> bool:
        """Whether another seed draws another test part."""
        return self.time is None or self.folds is not None

    def describe(self) -> dict[str, object]:
        """In JSON values: the column of groups or times, how many there are, and the folds."""
        described: dict[str, object] = {}
        for name, codes in (("group", self.group), ("time", self.time)):
            if codes is not None:
                described |= {name: self.column, f"{name}s": len(np.unique(codes))}
        return described | ({"folds": self.folds} if self.folds is not None else {})

    def name_of(self, row: int) -> str:
        """The group of a row in words, such as `patient 'p3'`."""
        assert self.group is not None
        return f"{self.column} {show(self.labels[int(self.group[row])])}"


def split_words(rule: Mapping[str, Any] | None) -> str:
    """How parts are drawn, in words, from `SplitRule.describe()`.

    >>> split_words({"group": "patient", "groups": 80, "folds": 5})
    'by whole groups of patient (80), in 5 folds: seed s is tested on fold s mod 5 of repeat s // 5'
    >>> split_words({"time": "date", "times": 900})
    'by date: the latest rows are the test part, those before them validation, for every seed'
    """
    rule = rule or {}
    folds = rule.get("folds")
    turn = f"in {folds} folds: seed s is tested on fold s mod {folds} of repeat s // {folds}"
    if "time" in rule:
        if folds is None:
            return f"by {rule['time']}: the latest rows are the test part, those before them validation, for every seed"
        latest = f"seed s is tested on block s mod {folds} from the end, and trained on the rows before it"
        return f"by {rule['time']}, in {folds} expanding folds: {latest}"
    if "group" in rule:
        whole = f"by whole groups of {rule['group']} ({rule['groups']})"
        return f"{whole}, {turn}" if folds is not None else f"{whole}, drawn anew for every seed"
    return turn if folds is not None else "drawn anew for every seed"


def draw_test(rule: SplitRule, classes: np.ndarray, seed: int, share: float) -> np.ndarray:
    """Which samples are the test part `[n]`, and which of the others are left out, as "test", "train" and "unused".

    Args:
        rule: With groups, times or folds.
        classes: Class numbers `[n]`.
        seed: Chooses the fold, or draws the groups.
        share: Of the test part without folds.
    """
    parts = np.full(len(classes), "train", dtype="<U10")
    if rule.folds is None:
        count = max(1, round(share * len(classes)))
        parts[pick(rule, classes, np.arange(len(classes)), count, seed, leave=2)] = "test"
        return parts
    if rule.time is not None:
        tested, later = _expanding_fold(rule.time, rule.folds, seed % rule.folds, rule.column)
        parts[later] = "unused"
        parts[tested] = "test"
        return parts
    repeat, fold = divmod(seed, rule.folds)
    fold_of = _fold(rule, classes, rule.folds, repeat)
    parts[fold_of == fold] = "test"
    return parts


def pick(
    rule: SplitRule, classes: np.ndarray, rows: np.ndarray, count: int, seed: int, *, leave: int = 1
) -> np.ndarray:
    """About `count` of the rows: whole groups at random, or the latest moments; as positions in the set.

    Args:
        rule: With groups or times.
        classes: Class numbers of the set `[n]`.
        rows: From which to pick.
        count: How many rows are wanted; at least one group or moment is picked.
        seed: Of the draw.
        leave: How many groups or moments must be left over.
    """
    if rule.time is not None:
        return rows[_latest(rule.time[rows], count, leave, rule.column)]
    assert rule.group is not None
    rng = np.random.default_rng([seed, _STREAM, leave])
    counts, group_of = count_classes(rule.group[rows], classes[rows])
    if len(counts) <= leave:
        raise InputError(
            f"the split by {rule.column or 'group'} needs at least {leave + 1} groups, there are {len(counts)}"
        )
    picked = _pick_groups(counts, count, leave, rng)
    if not len(picked):
        raise InputError(
            f"the split by {rule.column or 'group'}: each of the {len(counts)} groups is the only one with some class, "
            "so that none can be held out. Give samples of more groups, or leave the group out"
        )
    return rows[np.isin(group_of, picked)]


def _pick_groups(counts: np.ndarray, wanted: int, leave: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers of groups with about as many samples as wanted, without all groups of any class.

    Args:
        counts: `[group, class]`.
        wanted: Samples.
        leave: How many groups must be left over.
        rng: Of the draw.
    """
    carriers = (counts > 0).sum(axis=0)
    # The only group with some class must stay.
    free = np.flatnonzero(~((counts > 0) & (carriers == 1)).any(axis=1))
    if not len(free):
        return free
    best, lowest = free[:0], np.inf
    for draw in range(_MOST_DRAWS):
        order = rng.permutation(free)[: len(counts) - leave]
        reached = np.cumsum(counts[order].sum(axis=1))
        chosen = order[: int(np.argmin(np.abs(reached - wanted))) + 1]
        chosen = _without_lost(chosen, counts)
        held = counts[chosen].sum(axis=0)
        off = abs(held.sum() - wanted) / wanted
        uneven = np.abs(held - counts.sum(axis=0) * wanted / counts.sum()).sum() / wanted
        if off + uneven < lowest:
            best, lowest = chosen, off + uneven
        if draw + 1 >= _DRAWS and abs(counts[best].sum() - wanted) <= wanted / 2:
            break
    return best


def _without_lost(chosen: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The chosen groups without those that are needed so that every class is left in another."""
    kept = list(chosen)
    left = counts.sum(axis=0) - counts[chosen].sum(axis=0)
    for number in chosen:
        if len(kept) > 1 and ((left == 0) & (counts[number] > 0)).any():
            kept.remove(number)
            left += counts[number]
    return np.array(kept, dtype=int)


def _latest(time: np.ndarray, count: int, leave: int, column: str) -> np.ndarray:
    """The positions of the latest samples, about `count`; those of a moment together."""
    moments, moment_of, sizes = np.unique(time, return_inverse=True, return_counts=True)
    if len(moments) <= leave:
        raise InputError(
            f"the split by time {column!r} needs at least {leave + 1} different times, there are {len(moments)}"
        )
    reached = np.cumsum(sizes[::-1])[: len(moments) - leave]
    taken = int(np.argmin(np.abs(reached - count))) + 1
    return np.flatnonzero(moment_of >= len(moments) - taken)


def _expanding_fold(time: np.ndarray, folds: int, fold: int, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The samples that a fold tests `[n]`, and those after them `[n]`; fold 0 tests the latest."""
    n = len(time)
    size = n // (folds + 1)
    # As many at the end of each, and what is left over at the beginning, as scikit-learn's TimeSeriesSplit.
    position = np.empty(n, dtype=np.int64)
    position[np.argsort(time, kind="stable")] = np.arange(n)
    _, moment_of = np.unique(time, return_inverse=True)
    first = np.full(moment_of.max() + 1, n)
    np.minimum.at(first, moment_of, position)
    from_end = (n - 1 - first[moment_of]) // max(1, size)  # samples of a moment count as its first one
    tested = from_end == fold
    before = from_end > fold
    if not size or not tested.any() or len(np.unique(time[before])) < 2:
        raise InputError(
            f"the {n} samples with {len(first)} different times in {column!r} do not make {folds} expanding folds, "
            "each with training and validation samples before it: take fewer folds"
        )
    return tested, from_end < fold


def _fold(rule: SplitRule, classes: np.ndarray, folds: int, repeat: int) -> np.ndarray:
    n = len(classes)
    names, counts = np.unique(classes, return_counts=True)
    if n < folds or (len(names) > 1 and counts.min() < 2):
        raise InputError(
            f"{folds} folds need at least as many samples, and 2 samples of every class, so that each is tested once "
            f"and learned from in the other folds: there are {n} samples, the smallest class has {counts.min()}"
        )
    if rule.group is None:
        return fold_at_random(classes, folds, [repeat, _STREAM])
    groups = len(np.unique(rule.group))
    if groups < folds + 1:
        raise InputError(
            f"{folds} folds by {rule.column or 'group'} need at least {folds + 1} groups, there are {groups}: take "
            "fewer folds"
        )
    fold_of = fold_groups(rule.group, classes, folds, [repeat, _STREAM])
    for number in names:
        there = np.flatnonzero(classes == number)
        if len(names) > 1 and len(np.unique(fold_of[there])) < 2:
            found = sorted({rule.name_of(int(row)) for row in there})
            raise InputError(
                f"{folds} folds by {rule.column}: all {len(there)} samples of a class are in one fold, since they are "
                f"of {', '.join(found[:3])}{' …' if len(found) > 3 else ''}. Give samples of more groups, drop the "
                "class, or leave the group out"
            )
    return fold_of


def blocks_for_bootstrap(rule: SplitRule) -> np.ndarray | None:
    """What is drawn at once when test samples are resampled `[n]`: the group, or the block in time; else None."""
    if rule.time is not None:
        return cut_into_blocks(rule.time, max(2, round(2 * len(rule.time) ** 0.5)))
    return rule.group
