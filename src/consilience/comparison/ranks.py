"""Methods over several data sets: mean ranks, Friedman's and Nemenyi's tests (Demšar 2006), and where each stands.

A set counts once. Its conditions share the data and the trained models, so ranks under each of them would not be
independent evidence: on every set the methods are ranked by their mean over all corruptions and levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from consilience.comparison.results import CLEAN, EVERYTHING, Findings, Standing
from consilience.comparison.summary import over_seeds
from consilience.core.errors import InputError

# What the methods are worth on one set: condition → method → score; nan for a method that failed.
Scores = dict[str, dict[str, float]]


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
    own, other = worth[:, :, None], worth[:, None, :]
    return (other > own).sum(axis=2) + ((other == own).sum(axis=2) + 1) / 2


def scores_of(findings: Findings, name: str) -> Scores:
    """Return the scores on one set: clean, under each corruption over its levels, and over all corruptions.

    The main metric, mean over seeds. A method that was skipped is in none of them.
    """
    import polars

    means = over_seeds(findings, findings.metric).filter(set=name).with_columns(polars.col("mean").fill_null(np.nan))
    spoilt = means.filter(polars.col("level") > 0)
    by_corruption = spoilt.group_by("corruption", "method", maintain_order=True).agg(polars.col("mean").mean())
    overall = by_corruption.group_by("method", maintain_order=True).agg(polars.col("mean").mean())
    clean = means.filter(level=0.0).group_by("method", maintain_order=True).agg(polars.col("mean").first())
    scores = {EVERYTHING: dict(overall.iter_rows()), CLEAN: dict(clean.iter_rows())}
    for (corruption,), rows in by_corruption.group_by("corruption", maintain_order=True):
        scores[str(corruption)] = dict(rows.select("method", "mean").iter_rows())
    lost = set(findings.failed.filter(set=name)["method"]) - set(means["method"])
    return {label: found | dict.fromkeys(sorted(lost), float("nan")) for label, found in scores.items() if found}


def mean_scores(several: Sequence[Scores]) -> Scores:
    """Return the mean over several tasks on one set, for the conditions and methods that all of them have.

    >>> mean_scores([{"clean": {"late": 0.5, "qmf": 0.5}}, {"clean": {"late": 1.0}}])
    {'clean': {'late': 0.75}}
    """
    return {
        label: {
            method: float(np.mean([scores[label][method] for scores in several]))
            for method in found
            if all(method in scores[label] for scores in several)
        }
        for label, found in several[0].items()
        if all(label in scores for scores in several)
    }


def standings(sets: Mapping[str, Scores], larger_is_better: bool) -> list[Standing]:
    """Return the standings over all corruptions, clean, and under each corruption.

    Under one corruption only the sets count that were tested with it. If there is only one corruption, it stands for
    all of them. There are no standings for fewer than 2 sets or 3 methods.
    """
    everywhere = dict.fromkeys(label for scores in sets.values() for label in scores)
    corruptions = [label for label in everywhere if label not in (EVERYTHING, CLEAN)]
    labels = [EVERYTHING, CLEAN, *corruptions] if len(corruptions) > 1 else [*corruptions, CLEAN]
    met = {label: [scores[label] for scores in sets.values() if label in scores] for label in labels}
    found = [_standing(label, scores, larger_is_better) for label, scores in met.items()]
    return [standing for standing in found if standing is not None]


def _standing(label: str, scores: Sequence[Mapping[str, float]], larger_is_better: bool) -> Standing | None:
    everyone = list(dict.fromkeys(method for found in scores for method in found))
    methods = [method for method in everyone if all(method in found for found in scores)]
    if len(scores) < 2 or len(methods) < 3:
        return None
    table = np.array([[found[method] for method in methods] for found in scores])
    ranks = mean_ranks(table, larger_is_better)
    order = np.argsort(ranks, kind="stable")
    return Standing(
        label,
        tuple(methods[place] for place in order),
        tuple(float(ranks[place]) for place in order),
        len(scores),
        critical_difference(len(methods), len(scores)),
        friedman(table, larger_is_better),
        tuple(method for method in everyone if method not in methods),
    )
