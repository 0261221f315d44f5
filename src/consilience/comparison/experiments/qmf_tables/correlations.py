"""Pearson's r between a method's weights and its experts' own losses: by seed, and who has the lower one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments.published import say_claim
from consilience.comparison.statistics import Row, compare_to_reference, holm
from consilience.evaluation.trust_verdict import signed
from consilience.report.wording import NOTHING, Scale

_APART = Scale(decimals=3)

HOW = (
    "r is Pearson's correlation between the weight that a modality gets and the loss of its own expert over the test "
    "samples, the mean over modalities; Theorem 2 asks for r ≤ 0. The paper does not say how it joins modalities, and "
    "prints |r|, which hides the sign that its theorem is about: ours keep it."
)


def correlations(comparison: Comparison, level: float) -> dict[str, dict[int, float]]:
    """Method → seed → r, the mean over modalities, on the one set and under the one corruption of a comparison.

    Methods without weights, or with static ones, are not among them.
    """
    import polars as pl

    findings = comparison.findings
    found = findings.diagnostics.filter(corruption=findings.corruptions[0], level=level).drop_nulls("r")
    table = found.group_by("method", "seed").agg(pl.col("r").mean()).sort("seed")
    return {
        method: dict(table.filter(method=method).select("seed", "r").iter_rows())
        for method in findings.methods
        if method in set(table["method"])
    }


def say_r(seeds: Mapping[int, float] | None) -> str:
    """Mean ± standard deviation over seeds.

    >>> say_r({0: -0.5, 1: -0.7})
    '−0.60 ± 0.14'
    """
    if not seeds:
        return NOTHING
    values = np.array(list(seeds.values()))
    return signed(float(values.mean())) + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")


@dataclass(frozen=True)
class Check:
    """A claim put to the test. says: in words, without a full stop · figures: what was found · row: its statistics."""

    says: str
    figures: str
    row: Row
    seeds: int


def follows_closer(says: str, comparison: Comparison, level: float, method: str, than: str) -> Check:
    """Whether the weights of one method fall more with the losses than another's: whether its r is lower."""
    found = correlations(comparison, level)
    pair = {name: found.get(name, {}) for name in (than, method)}
    scores = {name: {seed: np.array([-r]) for seed, r in seeds.items()} for name, seeds in pair.items()}
    [row] = compare_to_reference(scores, than)
    figures = f"r = {say_r(pair[method])} against {say_r(pair[than])}"
    if len(pair[method].keys() & pair[than].keys()) > 1:
        # Pairs of seeds may differ by far less than seeds do, and then two means look alike.
        apart, low, high = (_APART.number(0.0 - row[one]) for one in ("difference", "high", "low"))
        figures += f", apart by {apart} ({low} … {high})"
    return Check(says, figures, row, len(comparison.findings.seeds))


def verdicts_on(checks: Sequence[Check]) -> list[str]:
    """A sentence for each; p-values are corrected by Holm over all of them."""
    corrected = holm(np.array([check.row["p"] for check in checks]))
    return [
        say_claim(check.says, check.figures, check.row["difference"], float(p), check.seeds, len(checks))
        for check, p in zip(checks, corrected)
    ]
