"""From scores on several sets to where each method stands.

A set counts once. Its conditions share the data and the trained models, so ranks under each of them would be no
independent evidence: on every set the methods are ranked by their mean over all that went wrong there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from consilience.comparison.ranks import critical_difference, friedman, mean_ranks
from consilience.comparison.results import Findings
from consilience.report.rank_diagram import CLEAN, EVERYTHING, Standing
from consilience.report.seed_summary import over_seeds

# What the methods are worth on one set: condition → method → score; nan for a method that failed.
Scores = dict[str, dict[str, float]]


def scores_of(findings: Findings, name: str) -> Scores:
    """On one set of a comparison: clean, under each corruption over its levels, and over all corruptions.

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
    """Several tasks on one set, which are one set still: the mean over them, where all have a condition and a method.

    >>> mean_scores([{"clean": {"late": 0.5, "qmf": 0.5}}, {"clean": {"late": 1.0}}])
    {'clean': {'late': 0.75}}
    """
    return {
        label: {
            method: float(np.mean([one[label][method] for one in several]))
            for method in found
            if all(method in one[label] for one in several)
        }
        for label, found in several[0].items()
        if all(label in one for one in several)
    }


def standings(sets: Mapping[str, Scores], larger_is_better: bool) -> list[Standing]:
    """Over all corruptions first, then clean, then under each corruption; none where 2 sets or 3 methods are lacking.

    Under one corruption only the sets count that have met it. Where there is but one, it stands for all of them.
    """
    everywhere = dict.fromkeys(label for scores in sets.values() for label in scores)
    corruptions = [label for label in everywhere if label not in (EVERYTHING, CLEAN)]
    labels = [EVERYTHING, CLEAN, *corruptions] if len(corruptions) > 1 else [*corruptions, CLEAN]
    met = {label: [scores[label] for scores in sets.values() if label in scores] for label in labels}
    found = [_standing(label, scores, larger_is_better) for label, scores in met.items()]
    return [standing for standing in found if standing is not None]


def _standing(label: str, scores: Sequence[Mapping[str, float]], larger_is_better: bool) -> Standing | None:
    everyone = list(dict.fromkeys(method for one in scores for method in one))
    methods = [method for method in everyone if all(method in one for one in scores)]
    if len(scores) < 2 or len(methods) < 3:
        return None
    table = np.array([[one[method] for method in methods] for one in scores])
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
