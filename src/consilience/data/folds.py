"""Folds of samples: at random, by whole groups, or by blocks of successive samples; every class spread over the folds.

With groups or times, what is held out is not known from samples that are almost the same: those of the same patient, or
of the minute before.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Samples

# Samples ordered in time are held out in as few blocks per fold as leave every class in the rest, but at most so many.
_MOST_BLOCKS = 8


def fold_at_random(classes: np.ndarray, folds: int, seed: int | Sequence[int]) -> np.ndarray:
    """Each sample's fold `[n]`, every class spread evenly over the folds.

    Args:
        classes: Class numbers `[n]`; equal ones for a regression.
        folds: The number of folds.
        seed: Of the draw.

    >>> fold_at_random(np.array([0, 0, 1, 1]), 2, seed=0)
    array([0, 1, 0, 1])
    """
    shuffled = np.random.default_rng(seed).permutation(len(classes))
    shuffled = shuffled[np.argsort(classes[shuffled], kind="stable")]
    fold_of = np.empty(len(classes), dtype=np.int64)
    fold_of[shuffled] = np.arange(len(classes)) % folds
    return fold_of


def fold_groups(
    group: np.ndarray, classes: np.ndarray, folds: int, seed: int | Sequence[int] | None = None
) -> np.ndarray:
    """Each sample's fold `[n]`, samples of a group together; large groups first, each where its classes are few.

    Args:
        group: Labels of groups `[n]`.
        classes: Class numbers `[n]`.
        folds: The number of folds; with fewer groups, as many as groups.
        seed: Of the order of groups, in which large ones come early; sizes of folds are then evened out too. None: by
            size alone.

    >>> fold_groups(np.array(["a", "a", "b", "b", "c", "c"]), np.array([0, 1, 0, 1, 0, 1]), 2)
    array([0, 0, 1, 1, 0, 0])
    """
    counts, group_of = count_classes(group, classes)
    shares = counts / counts.sum(axis=0)
    sizes = counts.sum(axis=1)
    if seed is not None:
        shares = np.column_stack([shares, sizes / sizes.sum()])
        sizes = sizes * np.random.default_rng(seed).uniform(0.5, 1, len(sizes))
    held = np.zeros((min(folds, len(counts)), shares.shape[1]))
    empty = np.ones(len(held), dtype=bool)
    fold_of_group = np.empty(len(counts), dtype=np.int64)
    for number in np.argsort(-sizes, kind="stable"):
        fold = int(np.argmin(np.where(empty, -1.0, held @ shares[number])))
        fold_of_group[number], empty[fold] = fold, False
        held[fold] += shares[number]
    return fold_of_group[group_of]


def count_classes(group: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many samples of each class each group has `[group, class]`, and the number of each sample's group `[n]`."""
    names, group_of = np.unique(group, return_inverse=True)
    known, class_of = np.unique(classes, return_inverse=True)
    counts = np.zeros((len(names), len(known)))
    np.add.at(counts, (group_of, class_of), 1)
    return counts, group_of


def cut_into_blocks(time: np.ndarray, blocks: int) -> np.ndarray:
    """Each sample's block `[n]`, successive samples together, of about the same size; the same moment is not cut.

    >>> cut_into_blocks(np.array([3, 1, 2, 1, 9, 5]), 3)
    array([1, 0, 1, 0, 2, 2])
    """
    _, moment_of, counts = np.unique(time, return_inverse=True, return_counts=True)
    # A moment belongs to the block in which its middle sample lies.
    middle = np.cumsum(counts) - (counts + 1) / 2
    block_of = (middle * blocks / len(time)).astype(np.int64)
    return np.unique(block_of, return_inverse=True)[1][moment_of]


def fold_blocks(time: np.ndarray, classes: np.ndarray, folds: int) -> np.ndarray:
    """Each sample's fold `[n]`: blocks of successive samples, one per fold if that leaves every class in the rest.

    If samples come class by class, a single block per fold would hold out all of a class; there are then several.

    Args:
        time: Ranks in time `[n]`.
        classes: Class numbers `[n]`.
        folds: The number of folds.

    >>> fold_blocks(np.arange(6), np.array([0, 1, 0, 1, 0, 1]), 3)
    array([0, 0, 1, 1, 2, 2])
    >>> fold_blocks(np.arange(8), np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2)
    array([0, 0, 1, 1, 0, 0, 1, 1])
    """
    best, fewest = None, None
    for per_fold in range(1, _MOST_BLOCKS + 1):
        block_of = cut_into_blocks(time, folds * per_fold)
        if block_of.max() + 1 < folds:
            break
        fold_of = block_of if per_fold == 1 else fold_groups(block_of, classes, folds)
        lacking = sum(len(set(classes.tolist()) - set(classes[fold_of != fold].tolist())) for fold in range(folds))
        if fewest is None or lacking < fewest:
            best, fewest = fold_of, lacking
        if not lacking:
            break
    # Unequal numbers of samples at a moment may leave a block empty.
    return fold_groups(time, classes, folds) if best is None else best


def folds_as_groups(samples: Samples, fold_of: np.ndarray) -> np.ndarray | None:
    """Return the folds `[n]` as groups of a further cross-fitting, where samples have groups or times; else None.

    Args:
        samples: That were cross-fitted.
        fold_of: Their folds `[n]`, or those of some of them.
    """
    ordered = samples.group is not None or samples.time is not None
    return fold_of if ordered and len(np.unique(fold_of)) > 1 else None


def most_folds(samples: Samples, folds: int) -> int:
    """As many folds as are wanted, or as there are groups (moments in time), with a warning.

    Args:
        samples: Of which some are held out.
        folds: The number that is wanted.

    Raises:
        InputError: If all samples are of one group.
    """
    there, what = _count_units(samples)
    if there is None or there >= folds:
        return folds
    warnings.warn(
        f"cross-fitting in {there} folds instead of {folds}: the training samples have {there} {what}", stacklevel=2
    )
    return there


def _count_units(samples: Samples) -> tuple[int | None, str]:
    """How many groups or moments in time there are, None where samples have neither; and what they are called."""
    codes, what = (samples.group, "groups") if samples.time is None else (samples.time, "moments in time")
    if codes is None:
        return None, what
    there = len(np.unique(codes))
    if there < 2:
        raise InputError(
            f"cross-fitting holds out whole {what}, and the {len(samples)} training samples have {there}: give samples "
            "of more of them, or train without"
        )
    return there, what


def held_out_folds(samples: Samples, classes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Each sample's fold `[n]`, for cross-fitting: by groups or blocks in time where the samples have them.

    Args:
        samples: Of one part.
        classes: Their class numbers `[n]`; equal ones for a regression.
        folds: The number of folds, no more than `most_folds`.
        seed: Of the draw.
    """
    there, what = _count_units(samples)
    if there is None:
        return fold_at_random(classes, folds, seed)
    if there < folds:
        raise InputError(f"cross-fitting: {folds} folds need as many {what}, the training samples have {there}")
    if samples.time is not None:
        return fold_blocks(samples.time, classes, folds)
    assert samples.group is not None
    return fold_groups(samples.group, classes, folds, seed)
