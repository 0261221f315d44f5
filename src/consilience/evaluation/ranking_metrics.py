"""How well probabilities or numbers rank samples: area under the ROC curve, average precision, concordance.

scikit-learn has the first two, and the tests compare with it. These functions compute a metric for many weightings of
the samples at once, from one sorting of them, which is what a bootstrap needs (`Metric.resample`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from consilience.core.settings import checked
from consilience.evaluation.metric_inputs import read_numbers, read_probabilities, read_weight

# From weights `[resample, n]` to values `[resample]`.
Resampler = Callable[[np.ndarray], np.ndarray]


@checked
def auroc(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The area under the ROC curve: range 0 … 1, ½ is chance, larger is better.

    It is the probability that a sample of a class has a larger probability of it than a sample of another class, ties
    counted half. Of two classes it is that of the second; of more, the mean over the classes, each against the rest. A
    class without samples, or with all of them, does not count; nan if none counts.

    >>> auroc([0, 0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
    0.75
    """
    return _once(_resample_areas(*read_probabilities(y, probabilities, classes)), weight, len(y))


@checked
def average_precision(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The average precision Σ_k (R_k − R_{k−1}) P_k over thresholds: range 0 … 1, larger is better.

    P_k and R_k are precision and recall at the k-th threshold. Of two classes it is that of the second; of more, the
    mean over the classes that have samples. A classifier that knows nothing has the share of the class.

    >>> round(average_precision([0, 0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]]), 4)
    0.8333
    """
    return _once(_resample_precisions(*read_probabilities(y, probabilities, classes)), weight, len(y))


@checked
def concordance(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The concordance index of numbers `[n]` or `[n, target]`: range 0 … 1, ½ is chance, larger is better.

    It is the share of pairs with different targets whose predictions are in the same order, ties of the predictions
    counted half (Harrell's index without censoring); the mean over targets. nan if all targets are equal.

    >>> concordance([1.0, 2.0, 4.0], [0.1, 0.5, 0.3])
    0.6666666666666666
    """
    return _once(resample_concordance(y, prediction), weight, len(y))


def resample_auroc(y: Any, probabilities: Any) -> Resampler:
    """Return the function that computes `auroc` for many weightings of these samples."""
    return _resample_areas(*read_probabilities(y, probabilities))


def resample_average_precision(y: Any, probabilities: Any) -> Resampler:
    """Return the function that computes `average_precision` for many weightings of these samples."""
    return _resample_precisions(*read_probabilities(y, probabilities))


def resample_concordance(y: Any, prediction: Any) -> Resampler:
    """Return the function that computes `concordance` for many weightings of these samples."""
    true, predicted = read_numbers(y, prediction)

    def value(weights: np.ndarray) -> np.ndarray:
        return np.mean([_concordant_share(a, b, weights) for a, b in zip(true.T, predicted.T)], axis=0)

    return value


def _once(resampler: Resampler, weight: Any, n: int) -> float:
    return float(resampler(read_weight(weight, n)[None])[0])


def _resample_areas(column: np.ndarray, table: np.ndarray) -> Resampler:
    def of_class(score: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
        order, first, behind = _ties(score)
        drawn, hit = weights[:, order], positive[order]
        others = _running_sums(drawn * ~hit)
        smaller = (others[:, first] + others[:, behind]) / 2  # ties count half
        return _quotient((drawn * hit * smaller).sum(axis=1), (drawn @ hit) * others[:, -1])

    return _mean_over_classes(column, table, of_class)


def _resample_precisions(column: np.ndarray, table: np.ndarray) -> Resampler:
    def of_class(score: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
        order, _, behind = _ties(-score)
        drawn, hit = weights[:, order], positive[order]
        right, all_above = _running_sums(drawn * hit)[:, behind], _running_sums(drawn)[:, behind]
        precision = _quotient(right, all_above, otherwise=0.0)
        return _quotient((drawn * hit * precision).sum(axis=1), drawn @ hit)

    return _mean_over_classes(column, table, of_class)


def _mean_over_classes(column: np.ndarray, table: np.ndarray, of_class: Callable[..., np.ndarray]) -> Resampler:
    judged = (1,) if table.shape[1] == 2 else tuple(range(table.shape[1]))

    def value(weights: np.ndarray) -> np.ndarray:
        found = np.stack([of_class(table[:, place], column == place, weights) for place in judged])
        counted = np.isfinite(found)
        return _quotient(np.where(counted, found, 0.0).sum(axis=0), counted.sum(axis=0))

    return value


def _concordant_share(y: np.ndarray, prediction: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The share of concordant pairs `[resample]` of y and predictions `[n]`.

    Samples are sorted by y, and pairs are counted while blocks of 1, 2, 4, … neighbours are merged, as in a merge sort:
    each pair is in two halves of one block once. In a group of equal y, larger predictions come first, so that only
    pairs of equal y and equal prediction are counted there; they are taken off again.
    """
    order = np.lexsort((-prediction, y))
    drawn = weights[:, order]
    score = np.unique(prediction, return_inverse=True)[1].reshape(-1)[order]
    concordant = np.zeros(len(weights))
    for merged, left, start, first, behind in _merges(score):
        mine = drawn[:, merged]
        sums = _running_sums(mine * left)
        smaller = (sums[:, first] + sums[:, behind]) / 2 - sums[:, start]
        concordant += (mine * ~left * smaller).sum(axis=1)
    group = np.unique(y, return_inverse=True)[1].reshape(-1)[order]
    same = np.unique(np.stack([group, score]), axis=1, return_inverse=True)[1].reshape(-1)
    concordant -= _pairs_within(same, drawn) / 2
    return _quotient(concordant, drawn.sum(axis=1) ** 2 / 2 - (drawn**2).sum(axis=1) / 2 - _pairs_within(group, drawn))


def _merges(score: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """For each size of blocks: positions sorted by block and score, which are in the left half, and where the block,
    and the group of equal scores in it, begin; and the place behind that group."""
    place, size = np.arange(len(score)), 1
    while size < len(score):
        block = place // (2 * size)
        merged = np.lexsort((score, block))
        start = np.searchsorted(block[merged], block[merged], side="left")
        key = block[merged] * (score.max() + 1) + score[merged]
        first, behind = (np.searchsorted(key, key, side=side) for side in ("left", "right"))
        yield merged, (merged // size) % 2 == 0, start, first, behind
        size *= 2


def _pairs_within(group: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ w_i w_j over pairs of one group: groups `[n]`, weights `[resample, n]` → `[resample]`."""
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    totals = np.add.reduceat(weights[:, order], begins, axis=1)
    return ((totals**2).sum(axis=1) - (weights**2).sum(axis=1)) / 2


def _ties(score: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order of scores, and for each in that order the first place of its group of equal scores, and the one behind
    the group."""
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    return order, np.searchsorted(ranked, ranked, side="left"), np.searchsorted(ranked, ranked, side="right")


def _running_sums(weights: np.ndarray) -> np.ndarray:
    """The sums of what is before each place: `[resample, n]` → `[resample, n + 1]`."""
    return np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)


def _quotient(above: np.ndarray, below: np.ndarray, otherwise: float = np.nan) -> np.ndarray:
    return np.divide(above, below, out=np.full(np.shape(above), otherwise), where=below > 0)
