"""Trust, measured: whether each method's weights fall when a modality is wrong, over seeds, in a table and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.comparison.results import Findings
from consilience.core.correlation import fisher_interval
from consilience.evaluation.trust_verdict import say_condition, signed
from consilience.report.seed_summary import Condition, conditions_of, corruptions_of
from consilience.report.wording import NOTHING, one_line, say_list, say_number

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Measured:
    """One modality of one method under one condition, over seeds. r is None where its weights are static."""

    modality: str
    seeds: int
    samples: float
    r: float | None
    r_std: float | None
    r_worst: float | None
    positive: int
    static: bool
    trust: float
    static_trust: float
    loss: float
    covariance: float
    gap: float

    @property
    def fails(self) -> bool:
        """Whether r > 0 beyond doubt: in every seed, and where there is one, beyond Fisher's interval."""
        if self.r is None or self.r <= 0:
            return False
        if self.seeds == 1:
            return fisher_interval(self.r, round(self.samples))[0] > 0
        return self.positive == self.seeds

    @property
    def words(self) -> str:
        """r as a cell of a table has it: mean ± standard deviation."""
        if self.r is None:
            return "static" if self.static else NOTHING
        return signed(self.r) + ("" if self.r_std is None else f" ± {self.r_std:.2f}")


@dataclass(frozen=True)
class TrustRow:
    """One method: what was measured under each condition, a modality each; empty where nothing was."""

    method: str
    cells: tuple[tuple[Measured, ...], ...]

    @property
    def static(self) -> bool:
        """Whether nothing about a sample but who is present moves its weights."""
        return all(one.static for cell in self.cells for one in cell)

    def largest(self, place: int) -> Measured | None:
        """The modality with the largest r under a condition: the one that decides whether theorem 2 applies."""
        known = [one for one in self.cells[place] if one.r is not None]
        return max(known, key=lambda one: one.r or 0.0) if known else None

    def gap(self, place: int) -> float | None:
        """The gap to equal weights under a condition, negative where the bound is smaller."""
        return sum(one.gap for one in self.cells[place]) if self.cells[place] else None


@dataclass(frozen=True)
class TrustBlock:
    """What was measured on one set, and what it means."""

    set: str
    conditions: tuple[Condition, ...]
    rows: tuple[TrustRow, ...]

    @property
    def sentences(self) -> list[str]:
        """The verdict on each method; names of methods stand in backticks."""
        moving = [row for row in self.rows if not row.static]
        still = [f"`{one_line(row.method)}`" for row in self.rows if row.static]
        told = [_verdict(self, row) for row in moving]
        if still:
            weigh, their = ("weighs", "its") if len(still) == 1 else ("weigh", "their")
            told.append(
                f"{say_list(still)} {weigh} statically: {their} weights do not depend on what a sample looks like, so "
                "there is no correlation."
            )
        return told


def trust_over_seeds(findings: Findings) -> polars.DataFrame:
    """Trust diagnostics over seeds, one row per set, method, corruption, level and modality.

    r, r_std, r_worst: mean, standard deviation and largest over seeds (null where weights are static) · positive: in
    how many seeds r > 0 · the rest are means.
    """
    import polars as pl

    r = pl.col("r")
    means = ("samples", "weight", "trust", "static_trust", "loss", "covariance", "gap")
    return findings.diagnostics.group_by("set", "method", "corruption", "level", "modality", maintain_order=True).agg(
        seeds=pl.len(),
        r=r.mean(),
        r_std=r.std(),
        r_worst=r.max(),
        positive=(r > 0).sum(),
        static=pl.col("static").all(),
        **{name: pl.col(name).mean() for name in means},
    )


def measured_trust(findings: Findings) -> list[TrustBlock]:
    """What the report says of trust, one block for each set in which some method has weights."""
    found: dict[tuple[str, str, str, float], list[Measured]] = {}
    for row in trust_over_seeds(findings).iter_rows(named=True):
        key = (row["set"], row["method"], row["corruption"], row["level"])
        found.setdefault(key, []).append(Measured(**{name: row[name] for name in Measured.__dataclass_fields__}))
    blocks = []
    for name in findings.sets:
        conditions = conditions_of(findings, corruptions_of(findings, findings.diagnostics.filter(set=name)))
        rows = [
            TrustRow(
                method, tuple(tuple(found.get((name, method, one.corruption, one.level), ())) for one in conditions)
            )
            for method in findings.methods
        ]
        rows = [row for row in rows if any(row.cells)]
        if rows:
            blocks.append(TrustBlock(name, conditions, tuple(rows)))
    return blocks


def _verdict(block: TrustBlock, row: TrustRow) -> str:
    """Clean first, then the condition under which the condition is missed most, if there is one."""
    met = [_met(cell) for cell in row.cells]
    worst = max(range(len(met)), key=lambda place: _height(row.largest(place)))
    name, largest = f"`{one_line(row.method)}`", row.largest(worst)
    if largest is None:
        return f"{name} has no correlation to measure."
    judged = [place for place, (_, among) in enumerate(met) if among]
    if all(met[place][0] == met[place][1] for place in judged):
        where = "clean and corrupted" if len(judged) > 1 else block.conditions[judged[0]].words
        return f"{name} {_say(met[judged[0]])}, {where}; the largest r is {largest.words}."
    first = judged[0]
    beginning = f"{name} {_say(met[first])}"
    if first != worst:
        beginning += f" {_when(block.conditions[first])}, and {_when(block.conditions[worst])} on {_count(met[worst])}"
    elif not block.conditions[first].clean or len(block.conditions) > 1:
        beginning += f" {_when(block.conditions[first])}"
    modality = one_line(largest.modality)
    meaning = f": it trusts {modality} more when it is wrong" if largest.fails else ", which chance explains"
    return f"{beginning}; on {modality} r = {_told(largest)}{meaning}."


def _met(cell: Iterable[Measured]) -> tuple[int, int]:
    """On how many modalities r ≤ 0, and how many have an r."""
    known = [one.r for one in cell if one.r is not None]
    return sum(r <= 0 for r in known), len(known)


def _say(met: tuple[int, int]) -> str:
    return say_condition(*met)


def _count(met: tuple[int, int]) -> str:
    return f"{met[0] or 'none'} of {met[1]}"


def _when(condition: Condition) -> str:
    return "when clean" if condition.clean else f"under {condition.words}"


def _height(one: Measured | None) -> float:
    return -math.inf if one is None or one.r is None else one.r


def _told(one: Measured) -> str:
    if one.seeds == 1:
        low, high = fisher_interval(one.r or 0.0, round(one.samples))
        return f"{one.words} (95 % interval {signed(low)} … {signed(high)})"
    return f"{one.words} (positive in {one.positive} of {say_number(one.seeds, 'seed')})"


def details(block: TrustBlock) -> list[dict[str, Any]]:
    """Every modality and condition of the methods whose weights move, in words, for the long table."""
    return [
        {
            "method": row.method,
            "condition": condition.words,
            "modality": one.modality,
            "samples": f"{one.samples:.0f}",
            "r": one.words,
            "worst": NOTHING if one.r_worst is None else signed(one.r_worst),
            "trust": f"{one.trust:.3f}",
            "static": f"{one.static_trust:.3f}",
            "loss": f"{one.loss:.3f}",
            "covariance": signed(one.covariance, 3),
            "gap": signed(one.gap, 3),
            "fails": one.fails,
        }
        for row in block.rows
        if not row.static
        for condition, cell in zip(block.conditions, row.cells)
        for one in cell
    ]
