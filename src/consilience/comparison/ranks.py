"""Methods over many data sets: mean ranks, and how far apart they must lie to tell methods apart (Demšar 2006)."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InputError


def mean_ranks(scores: np.ndarray, larger_is_better: bool = True) -> np.ndarray:
    """Each method's rank averaged over data sets, 1 is best: `[method]`.

    scores: `[set, method]`. Ties share the mean of their ranks; nan, a method that failed on a set, shares the worst.

    >>> mean_ranks(np.array([[0.9, 0.8, 0.8], [0.7, np.nan, 0.9]]))
    array([1.5 , 2.75, 1.75])
    """
    return _ranks(scores, larger_is_better).mean(axis=0)


def friedman(scores: np.ndarray, larger_is_better: bool = True) -> float:
    """p-value of Friedman's test that all methods are alike over data sets; scores `[set, method]`, 3 methods or more.

    Corrected for ties; nan is the worst. The p-value rests on χ², which wants about ten sets or more.

    >>> scores = np.array([[0.1, 0.2, 0.3]] * 10)
    >>> round(friedman(scores), 6)
    4.5e-05
    """
    from scipy.stats import friedmanchisquare

    ranks = _ranks(scores, larger_is_better)
    sets, methods = ranks.shape
    if sets < 2 or methods < 3:
        raise InputError(f"Friedman's test needs at least 2 sets and 3 methods, got {sets} and {methods}")
    if (ranks == ranks[:, :1]).all():  # every set is one tie: scipy would divide 0 by 0
        return 1.0
    return float(friedmanchisquare(*ranks.T).pvalue)


def critical_difference(methods: int, sets: int, alpha: float = 0.05) -> float:
    """How far apart two mean ranks must lie for their methods to differ, by Nemenyi's test.

    CD = q √(k (k + 1) / 6N) for k methods on N sets (Demšar, Statistical Comparisons of Classifiers over Multiple Data
    Sets, 2006), where √2 q is the studentized range at infinite degrees of freedom.

    >>> round(critical_difference(methods=4, sets=14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    if methods < 2 or sets < 1 or not 0 < alpha < 1:
        raise InputError(
            "a critical difference needs at least 2 methods, 1 set and 0 < alpha < 1, "
            f"got {methods}, {sets} and {alpha}"
        )
    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * sets)))


def _ranks(scores: np.ndarray, larger_is_better: bool) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise InputError(f"ranks need scores of shape [set, method], got {list(scores.shape)}")
    worth = scores if larger_is_better else -scores
    worth = np.where(np.isnan(worth), -np.inf, worth)
    one, other = worth[:, :, None], worth[:, None, :]
    return (other > one).sum(axis=2) + ((other == one).sum(axis=2) + 1) / 2
