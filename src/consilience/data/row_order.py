"""Whether rows next to each other resemble each other beyond their class, as those of one recording do.

Then a held-out row is known from its neighbours, and whatever is learned from held-out rows drawn one by one is too
sure: how far to trust a model, and how probable its answers are. Rows are held out in blocks instead.
"""

from __future__ import annotations

import numpy as np

from consilience.core.samples import Samples
from consilience.data.folds import cut_into_blocks, fold_groups

# Where the mean autocorrelation of the modalities is at least this, rows are held out in blocks. Rows of hydraulic
# sensors, cycle after cycle, have .8 to .9; those of seven sets in no such order .3 at most.
SIMILAR = 0.5
# With fewer rows chance makes the autocorrelation of a table of few columns large.
_FEWEST = 60
_PAIRS, _FEATURES = 1000, 300  # that are looked at
_BLOCKS = (4, 6, 8, 12, 16, 24, 32)  # in each fold: as few as leave every class in the rest


def neighbour_correlation(samples: Samples, classes: np.ndarray) -> float:
    """Correlation of each row with the next, class means taken away; the mean over modalities of numbers.

    Args:
        samples: In the order of their index.
        classes: Class numbers `[n]`.

    Returns:
        About 0 where rows are in no order; NaN where no modality is made of numbers.

    Example:
        >>> drift = np.sin(np.arange(200) / 10)[:, None]
        >>> classes = np.arange(200) % 2
        >>> round(neighbour_correlation(Samples.of({"sensor": drift}), classes), 1)
        1.0
        >>> shuffled = np.random.default_rng(0).permutation(drift)
        >>> round(neighbour_correlation(Samples.of({"sensor": shuffled}), classes), 1)
        0.0
    """
    order = np.argsort(samples.index, kind="stable")
    starts = np.unique(np.linspace(0, len(order) - 2, min(_PAIRS, len(order) - 1)).astype(np.int64))
    rows, place = np.unique(np.concatenate([starts, starts + 1]), return_inverse=True)
    first, second = place[: len(starts)], place[len(starts) :]
    own = classes[order[rows]]
    found = []
    for name, modality in samples.modalities.items():
        if modality.kind in ("text", "tokens"):
            continue
        values = samples.read(name, order[rows]).reshape(len(rows), -1)
        values = values[:, :: -(-values.shape[1] // _FEATURES)].astype(np.float64)
        there = samples.present_in(name)[order[rows]]
        values = _without_class_means(values, own, there)
        both = there[first] & there[second]
        power = (values[first[both]] ** 2 + values[second[both]] ** 2).sum() / 2
        if power > 0:
            found.append(float((values[first[both]] * values[second[both]]).sum() / power))
    return float(np.mean(found)) if found else np.nan


def similar_blocks(samples: Samples, classes: np.ndarray, folds: int, seed: int) -> tuple[np.ndarray, float] | None:
    """Blocks of successive rows that are to be held out together, if rows next to each other resemble each other.

    Args:
        samples: Without groups and times, which would say what is held out.
        classes: Class numbers `[n]`.
        folds: Of the cross-fitting, in which whole blocks are held out.
        seed: Of the draw of the folds.

    Returns:
        Each row's block `[n]` and the autocorrelation; None where rows are in no such order, where there are too few of
        them, or where no blocks would leave every class in the rest of each fold.
    """
    if samples.group is not None or samples.time is not None or len(samples) < _FEWEST:
        return None
    correlation = neighbour_correlation(samples, classes)
    if not correlation >= SIMILAR:
        return None
    rank = np.argsort(np.argsort(samples.index, kind="stable"), kind="stable")
    for per_fold in _BLOCKS:
        if folds * per_fold > len(samples) // 2:
            break
        block_of = cut_into_blocks(rank, folds * per_fold)
        fold_of = fold_groups(block_of, classes, folds, seed)
        if all(len(np.unique(classes[fold_of != fold])) == len(np.unique(classes)) for fold in range(folds)):
            return block_of, correlation
    return None


def _without_class_means(values: np.ndarray, classes: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Standardised values `[n, feature]` less the mean of their class; 0 where the modality is missing."""
    if not there.any():
        return np.zeros_like(values)
    spread = values[there].std(axis=0)
    values = (values - values[there].mean(axis=0)) / np.where(spread > 0, spread, 1)
    for number in np.unique(classes[there]):
        own = there & (classes == number)
        values[own] -= values[own].mean(axis=0)
    values[~there] = 0
    return values
