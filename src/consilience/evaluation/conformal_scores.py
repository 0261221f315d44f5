"""Conformal scores of classes and numbers, and the quantile that turns them into sets and intervals.

A score says how badly a value of the target fits a prediction. A set holds every class whose score is at most the
quantile of the scores of calibration samples (split conformal prediction; Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World, 2005). Whatever the score, the set then holds the true class with at least the probability
asked for, if calibration samples and new samples are exchangeable and the model was not fitted on them.

The library MAPIE offers the same scores. It is an oracle of the tests, but it does not serve here: it takes one array
or table as X, not modalities by name with masks, and it has one quantile for all samples, not one for each pattern of
present modalities.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.core.settings import Share, check_value

SetScore = Literal["aps", "raps", "lac"]
IntervalScore = Literal["absolute", "normalised"]
# RAPS adds this for each class ranked below the first.
RAPS_PENALTY, RAPS_FREE = 0.05, 1
# How fast the tie-breaker of APS turns with the log-probabilities. A larger factor would spread it better over 0 … 1
# for samples that are alike, but rounding errors of 32-bit outputs would change sets.
_TURNS = 16.0
_LOG_FLOOR = -700.0


def class_scores(log_p: np.ndarray, score: SetScore = "aps") -> np.ndarray:
    """Return the score of every class: the smaller, the better the class fits.

    - "lac": 1 − p_c (least ambiguous sets; Sadinle, Lei and Wasserman 2019). Smallest sets on average.
    - "aps": the probability of all classes that are more probable than c, plus u·p_c (adaptive sets; Romano, Sesia and
      Candès 2020). Sets grow with the difficulty of the sample.
    - "raps": APS, plus a penalty for every rank below the first, which avoids long tails of improbable classes
      (Angelopoulos, Bates, Malik and Jordan 2021).

    u, which the papers draw at random, is a function of the sample's own probabilities that is spread over 0 … 1. So a
    set does not depend on the batch and is the same each time, and the score is an ordinary function of the sample,
    for which the guarantee holds.

    Args:
        log_p: Log-probabilities `[n, class]`.
        score: Name of the score.

    Returns:
        Scores `[n, class]`.

    Example:
        >>> class_scores(np.log([[0.7, 0.2, 0.1]]), "lac").round(3).tolist()
        [[0.3, 0.8, 0.9]]
    """
    check_value("score", score, SetScore)
    p = np.exp(log_p)
    order = np.argsort(-log_p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(sorted_p, axis=1) - sorted_p
    before[:, 0] = 0.0
    if score == "lac":  # as a sum of the others: 1 − p would be 0 for every sample that is nearly certain
        after = np.zeros_like(sorted_p)
        after[:, :-1] = np.cumsum(sorted_p[:, :0:-1], axis=1)[:, ::-1]
        values = before + after
    else:
        values = before + tie_breaker(log_p)[:, None] * sorted_p
        if score == "raps":
            values = values + RAPS_PENALTY * np.maximum(np.arange(p.shape[1]) + 1 - RAPS_FREE, 0)
    scores = np.empty_like(values)
    np.put_along_axis(scores, order, values, axis=1)
    return scores


def tie_breaker(log_p: np.ndarray) -> np.ndarray:
    """Return u in 0 … 1 for each sample `[n]`, spread evenly, from its log-probabilities `[n, class]` alone."""
    column = np.arange(log_p.shape[1])
    # Of both signs: with two classes the sum then rises with the log-odds, and has no extremum where u would crowd.
    share = ((column + 1) * (math.sqrt(5) - 1) / 2 % 1 + 0.5) * np.where(column % 2, -1, 1)
    return (np.maximum(log_p, _LOG_FLOOR) @ share * _TURNS) % 1.0


def residual_scores(y: np.ndarray, prediction: np.ndarray, spread: np.ndarray | float = 1.0) -> np.ndarray:
    """Return |y − prediction| / spread, `[n, target]`: absolute residuals, or residuals in units of a spread.

    Args:
        y: True numbers `[n, target]`.
        prediction: Predicted numbers `[n, target]`.
        spread: Predicted spread `[n, target]`, above 0.

    Example:
        >>> residual_scores(np.array([[3.0]]), np.array([[1.0]]), np.array([[4.0]])).tolist()
        [[0.5]]
    """
    return np.abs(y - prediction) / spread


def conformal_quantile(scores: np.ndarray, coverage: float) -> np.ndarray:
    """Return the ⌈(n + 1) · coverage⌉-th smallest of n scores.

    Args:
        scores: `[n]` or `[n, target]`.
        coverage: Above 0 and below 1.

    Returns:
        The quantile, `[]` or `[target]`; infinity if there are fewer than `least_samples(coverage)`.

    Example:
        >>> float(conformal_quantile(np.arange(1.0, 20.0), 0.9))
        18.0
    """
    rank = _rank(len(scores), coverage)
    if rank > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


def weighed_quantiles(
    scores: np.ndarray, reliability: np.ndarray, coverage: float, new_reliability: np.ndarray
) -> np.ndarray:
    """Return a threshold for each new sample, larger where its modalities are less reliable.

    The permitted share of misses, 1 − coverage, is divided among samples in proportion to ρ²: the threshold of a new
    sample is the quantile of the scores at 1 − t·ρ². t is chosen by the rule of ⌈(n + 1) · coverage⌉, applied to the
    share of scores that are at least as large as a sample's own, divided by its ρ². As the shares come from the
    calibration samples alone, the coverage is exact up to a term of order 1/n. With equal ρ, this is
    `conformal_quantile`.

    Args:
        scores: Of calibration samples `[n]`.
        reliability: ρ of calibration samples `[n]`.
        coverage: Above 0 and below 1.
        new_reliability: ρ of new samples `[m]`.

    Returns:
        `[m]`; infinity where ρ is so small that nothing may be left out.

    Example:
        >>> weighed_quantiles(np.arange(1.0, 20.0), np.ones(19), 0.9, np.array([1.0, 0.7, 0.1])).tolist()
        [18.0, 19.0, inf]
    """
    # The power 2 was chosen among 1, 2 and 4 by what noise does to digits and mvsa; the guarantee holds for any.
    n, ordered = len(scores), np.sort(scores)
    share = 1 - np.searchsorted(ordered, scores, side="left") / n
    t = -conformal_quantile(-share / _bounded(reliability) ** 2, coverage)
    place = np.floor(np.round((n + 1) * (1 - t * _bounded(new_reliability) ** 2), 6)).astype(np.int64)
    return np.where(place >= n, np.inf, np.where(place < 0, -np.inf, ordered[place.clip(0, n - 1)]))


def _bounded(reliability: np.ndarray) -> np.ndarray:
    return np.clip(reliability, 1e-6, 1.0)


def least_samples(coverage: float) -> int:
    """Return the smallest number of calibration samples with a finite quantile: coverage / (1 − coverage), rounded up.

    >>> least_samples(0.9), least_samples(0.95), least_samples(0.99)
    (9, 19, 99)
    """
    coverage = check_coverage(coverage)
    return math.ceil(round(coverage / (1 - coverage), 6))


def own_samples(coverage: float) -> int:
    """Return how many calibration samples of its own a pattern needs for a quantile: 10 / (1 − coverage), rounded up.

    The coverage given n calibration samples varies with a standard deviation of √(coverage · (1 − coverage) / n): by
    0.03 with the 100 samples that a coverage of 0.9 needs.

    >>> own_samples(0.9), own_samples(0.99)
    (100, 1000)
    """
    coverage = check_coverage(coverage)
    return math.ceil(round(10 / (1 - coverage), 6))


def check_coverage(coverage: float) -> float:
    """Return a coverage, or raise an error if it is not above 0 and below 1."""
    try:
        return check_value("coverage", coverage, Share)
    except InputError as error:
        raise InputError(f"{error}. It is a share, such as 0.9") from None


def _rank(n: int, coverage: float) -> int:
    """⌈(n + 1) · coverage⌉, where rounding errors do not count: 10 · 0.9 is 9."""
    return math.ceil(round((n + 1) * check_coverage(coverage), 6))
