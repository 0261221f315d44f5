"""What a paper claims, put to the test on finished comparisons: verdicts in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.significance import holm, reachable
from consilience.comparison.summary import summarise
from consilience.report.wording import Scale, say_list, say_metric, say_number, say_p
from consilience.reproduction.protocol import Claim

ALPHA = 0.05
_FEW = 5
# Each verdict, and how a count of such claims reads.
VERDICTS = {
    "Found": "found",
    "The opposite is found": "the opposite found of",
    "Not found": "not found",
    "Not decided": "not decided",
    "Not measured": "not measured",
}


def check_claims(claims: Sequence[Claim], comparisons: Mapping[str, Comparison]) -> list[str]:
    """Return a verdict for each claim whose methods were compared; p-values are corrected by Holm over all of them."""
    tests = []
    for claim in claims:
        comparison = comparisons.get(claim.part)
        if comparison is not None and {claim.method, claim.than} <= set(comparison.findings.methods):
            table = comparison.statistics(claim.than, [claim.method]).filter(level=claim.level)
            if claim.level:
                table = table.filter(corruption=claim.corruption)
            if len(table):  # the quick form may leave a condition out
                tests.append((claim, comparison, table.row(0, named=True)))
    corrected = holm(np.array([row["p"] for _, _, row in tests]))
    return [_verdict(claim, done, row, float(p), len(tests)) for (claim, done, row), p in zip(tests, corrected)]


def say_verdict(
    difference: float,
    p: float,
    seeds: int,
    claims: int,
    *,
    smallest: float = 0.0,
    interval: tuple[float, float] | None = None,
) -> str:
    """Return the verdict on a claim that a difference is above zero, by at least the smallest effect that counts.

    Args:
        difference: Positive where the claim is right.
        p: Of the difference against zero, corrected for that many claims.
        seeds: Number of seeds.
        claims: Number of claims.
        smallest: The smallest effect that counts. 0: every difference that is significant counts.
        interval: Of the difference, which decides if `smallest` is above 0: the claim is found if all of it lies at or
            above the smallest effect, not found if all of it lies below, and not decided otherwise.

    >>> say_verdict(0.1, 0.01, 10, 3), say_verdict(-0.1, 0.01, 10, 3), say_verdict(0.1, 0.3, 10, 3)
    ('Found', 'The opposite is found', 'Not found')
    >>> [say_verdict(0.1, 0.01, 10, 3, smallest=0.05, interval=ends) for ends in ((0.06, 0.14), (0.02, 0.18))]
    ['Found', 'Not decided']
    """
    if np.isnan(p):
        return "Not measured"
    if smallest > 0:
        low, high = (-np.inf, np.inf) if interval is None or np.isnan(interval).any() else interval
        if p <= ALPHA and low >= smallest:
            return "Found"
        if p <= ALPHA and high <= -smallest:
            return "The opposite is found"
        return "Not found" if high < smallest else "Not decided"
    if p <= ALPHA:
        return "Found" if difference > 0 else "The opposite is found"
    return "Not found" if reachable(seeds, claims, ALPHA) else "Not decided"


def say_claim(says: str, figures: str, verdict: str, p: float, seeds: int, smallest: str = "") -> str:
    """Return a claim, its verdict and the figures that it rests on; smallest: the smallest effect that counts, if any.

    >>> say_claim("Late fusion is best", "+0.2 points", "Not decided", 0.5, 3)
    'Late fusion is best. Not decided: +0.2 points, p = 0.5; 3 seeds are too few.'
    """
    why = ""
    if smallest:
        why = f"; the smallest effect that counts is {smallest}"
    elif verdict == "Not decided":
        why = f"; {say_number(seeds, 'seed')} are too few"
    return f"{says}. {verdict}: {figures}, {say_p(p)}{why}."


def in_short(claims: Sequence[str]) -> list[str]:
    """Return the verdicts themselves if they are few, else their counts and the first decided ones."""
    if len(claims) <= _FEW:
        return list(claims)
    counts = {verdict: sum(f" {verdict}:" in claim for claim in claims) for verdict in VERDICTS}
    counted = say_list(f"{words} {counts[verdict]}" for verdict, words in VERDICTS.items() if counts[verdict])
    decided = [claim for claim in claims if any(f" {verdict}:" in claim for verdict in tuple(VERDICTS)[:2])]
    return [f"Of {len(claims)} claims: {counted}. All are on the page.", *decided[:_FEW]]


def _verdict(claim: Claim, comparison: Comparison, row: Mapping[str, float], p: float, claims: int) -> str:
    findings = comparison.findings
    scale = Scale.of_block(summarise(findings)[0])
    low, high = (scale.number(row[end]) for end in ("low", "high"))
    unit = "percentage points" if scale.unit else f"in {say_metric(findings.metric)}, positive is better"
    figures = f"`{claim.method}` − `{claim.than}` {scale.signed(row['difference'])} ({low} … {high}) {unit}"
    seeds, least = len(findings.seeds), claim.smallest_effect
    verdict = say_verdict(row["difference"], p, seeds, claims, smallest=least, interval=(row["low"], row["high"]))
    smallest = f"{scale.number(least)} {unit.partition(',')[0]}" if least > 0 else ""
    return say_claim(claim.says, figures, verdict, p, seeds, smallest)
