"""What may be said of a comparison: summaries over seeds, differences to a reference, and which are significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypedDict

import numpy as np

from consilience.comparison.bootstrap import Difference, paired_bootstrap, smallest_p
from consilience.comparison.ranks import critical_difference, friedman, mean_ranks
from consilience.core.errors import InputError

__all__ = [
    "Difference",
    "Row",
    "compare_to_reference",
    "critical_difference",
    "friedman",
    "holm",
    "mark_best",
    "mean_ranks",
    "paired_bootstrap",
    "reachable",
    "smallest_p",
    "too_few_seeds",
]


def holm(p: np.ndarray) -> np.ndarray:
    """p-values `[comparison]` adjusted for how many there are, by Holm's step-down procedure.

    The smallest of m is multiplied by m, the next by m − 1, and so on; none falls below a smaller one's, none exceeds
    1. nan, a comparison that could not be made, stays nan and does not count.

    >>> holm(np.array([0.01, 0.04, np.nan, 0.03]))
    array([0.03, 0.06,  nan, 0.06])
    """
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or (p < 0).any() or (p > 1).any():
        raise InputError(f"p-values must be one number between 0 and 1 a comparison, got {p.tolist()}")
    adjusted = np.full_like(p, np.nan)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # nan is sorted last
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def reachable(seeds: int, comparisons: int, alpha: float = 0.05) -> bool:
    """Whether any of so many comparisons could be significant after Holm's correction, if all seeds agreed.

    >>> reachable(5, 1), reachable(6, 1), reachable(6, 2)
    (False, True, False)
    """
    if comparisons < 1 or not 0 < alpha < 1:
        raise InputError(f"needed are at least one comparison and 0 < alpha < 1, got {comparisons} and {alpha}")
    return smallest_p(seeds) * comparisons <= alpha


def too_few_seeds(seeds: int, comparisons: int, alpha: float = 0.05) -> str | None:
    """The sentence that a reader must know where so few seeds cannot show a difference; None where they can.

    >>> too_few_seeds(5, 3)
    '5 seeds cannot reach significance here: with 3 comparisons the smallest possible p is 0.19, above 0.05. 7 seeds
    would do.'
    """
    if reachable(seeds, comparisons, alpha):
        return None
    least = min(1.0, smallest_p(seeds) * comparisons)
    enough = next(more for more in count(seeds + 1) if reachable(more, comparisons, alpha))
    return (
        f"{seeds} seed{'s' if seeds > 1 else ''} cannot reach significance here: with {comparisons} "
        f"comparison{'s' if comparisons > 1 else ''} the smallest possible p is {least:.2g}, above {alpha:g}. "
        f"{enough} seeds would do."
    )


class Row(TypedDict):
    """One method against the reference, as in `Findings.differences`; all nan where they share no seed."""

    method: str
    reference: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    significant: bool


def compare_to_reference(
    scores: Mapping[str, Mapping[int, np.ndarray]],
    reference: str,
    *,
    samples: Mapping[int, np.ndarray] | None = None,
    alpha: float = 0.05,
    resamples: int = 10_000,
    random_state: int = 0,
    confidence: float = 0.95,
) -> list[Row]:
    """Every method against the reference, on one set under one corruption at one level.

    scores: method → seed → each test sample's score `[sample]`, larger is better, such as whether it was classified
    correctly. A seed that failed is left out: two methods are compared on the seeds they share, and where there are
    none, as with a reference that failed throughout, the row is nan. samples: seed → who those samples are, `[sample]`
    (see `paired_bootstrap`). Differences are positive where the method is better than the reference. The p-values are
    corrected by Holm for the number of methods compared here.

    >>> rng = np.random.default_rng(0)
    >>> late = {seed: rng.random(500) < 0.7 for seed in range(8)}
    >>> concat = {seed: right | (rng.random(500) < 0.2) for seed, right in late.items()}
    >>> [row] = compare_to_reference({"late": late, "concat": concat}, "late")
    >>> row["method"], round(row["difference"], 2), row["p_holm"], row["significant"]
    ('concat', 0.06, 0.0078125, True)
    """
    others = [method for method in scores if method != reference]
    found = []
    for method in others:
        gains = _gains(scores, method, reference)
        if not gains:
            found.append(Difference(*[float("nan")] * 4))
            continue
        found.append(
            paired_bootstrap(
                list(gains.values()),
                None if samples is None else [samples[seed] for seed in gains],
                resamples=resamples,
                random_state=random_state,
                confidence=confidence,
            )
        )
    adjusted = holm(np.array([one.p for one in found]))
    return [
        Row(
            method=method,
            reference=reference,
            difference=one.difference,
            low=one.low,
            high=one.high,
            p=one.p,
            p_holm=float(p_holm),
            significant=bool(p_holm <= alpha),
        )
        for method, one, p_holm in zip(others, found, adjusted)
    ]


def mark_best(
    scores: Mapping[str, Mapping[int, np.ndarray]], reference: str, rows: Sequence[Row], *, alpha: float = 0.05
) -> str | None:
    """The best method by its mean over seeds, or None where the data do not single it out.

    It must be significantly better than the reference; the reference, where it is best, than the runner-up. scores,
    reference: as `compare_to_reference` took them · rows: as it returned them.

    >>> late, concat = {seed: np.array([0.0, 1.0]) for seed in range(8)}, {seed: np.ones(2) for seed in range(8)}
    >>> scores = {"late": late, "concat": concat}
    >>> mark_best(scores, "late", compare_to_reference(scores, "late"))
    'concat'
    """
    means = {method: np.mean([np.mean(one) for one in seeds.values()]) for method, seeds in scores.items() if seeds}
    if reference not in means or len(means) < 2:
        return None
    best, runner_up = sorted(means, key=lambda method: -means[method])[:2]
    rival, sign = (runner_up, -1) if best == reference else (best, 1)
    row = next(row for row in rows if row["method"] == rival)
    # On the seeds they share, the two may lie the other way round than on all that each has.
    sure = row["p_holm"] <= alpha and sign * row["difference"] > 0
    return best if sure else None


def _gains(scores: Mapping[str, Mapping[int, np.ndarray]], method: str, reference: str) -> dict[int, np.ndarray]:
    """The seeds both methods have → how much better the method is on each test sample `[sample]`."""
    gains = {}
    ours, theirs = scores[method], scores.get(reference, {})
    for seed in sorted(ours.keys() & theirs.keys()):
        one, other = (np.asarray(score[seed], dtype=np.float64) for score in (ours, theirs))
        if one.shape != other.shape:
            raise InputError(
                f"{method} and {reference} must be tested on the same samples, but with seed {seed} their scores "
                f"have shapes {list(one.shape)} and {list(other.shape)}"
            )
        gains[seed] = one - other
    return gains
