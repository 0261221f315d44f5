"""The findings over seeds: one cell per set, method and condition, with its marks; and what became of each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.comparison.results import Findings
from consilience.report.wording import Scale, one_line, say_level, say_number

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Condition:
    """A corruption at a level. Level 0 is the clean set, the same under every corruption."""

    corruption: str
    level: float

    @property
    def clean(self) -> bool:
        """Whether nothing is corrupted here."""
        return self.level == 0

    @property
    def words(self) -> str:
        """The condition as a sentence names it."""
        return "clean" if self.clean else f"{one_line(self.corruption)} at level {say_level(self.level)}"


@dataclass(frozen=True)
class Difference:
    """Of the main metric, method − reference, positive is better: its 95 % interval and corrected p-value."""

    value: float
    low: float
    high: float
    p_holm: float
    significant: bool

    @property
    def mark(self) -> str:
        """▲ significantly better than the reference, ▼ significantly worse, otherwise nothing."""
        return "" if not self.significant else "▲" if self.value > 0 else "▼"


@dataclass(frozen=True)
class Cell:
    """One method under one condition, over seeds; std is None for one seed."""

    mean: float
    std: float | None
    median: float
    worst: float
    seeds: int
    best: bool = False
    difference: Difference | None = None

    @property
    def mark(self) -> str:
        """How it compares with the reference: ▲, ▼ or nothing."""
        return self.difference.mark if self.difference else ""


@dataclass(frozen=True)
class Row:
    """One method in one set: its cells, and what went wrong if something did."""

    method: str
    cells: tuple[Cell | None, ...]
    fate: str = ""  # "", "skipped", "failed" or "not run"
    reason: str = ""
    reference: bool = False


@dataclass(frozen=True)
class Block:
    """The main table of one set."""

    set: str
    conditions: tuple[Condition, ...]
    rows: tuple[Row, ...]
    scale: Scale

    def at(self, method: str, condition: Condition) -> Cell | None:
        """The cell of a method under a condition."""
        for row in self.rows:
            if row.method == method:
                return row.cells[self.conditions.index(condition)]
        return None

    @property
    def remarks(self) -> list[str]:
        """A sentence for every method that was skipped or failed, wholly or for some seeds."""
        return [f"`{one_line(row.method)}`: {row.reason}" for row in self.rows if row.reason]


def corruptions_of(findings: Findings, table: polars.DataFrame | None = None) -> list[str]:
    """The corruptions in order; of a table, those that occur in it, since not every set need have met all of them.

    Where none is listed, as in a comparison on clean data alone, they are those of the values.
    """
    listed = list(findings.corruptions) or findings.values["corruption"].unique(maintain_order=True).to_list()
    there = set() if table is None else set(table["corruption"])
    return [name for name in listed if name in there] or listed


def conditions_of(findings: Findings, corruptions: Sequence[str]) -> tuple[Condition, ...]:
    """The columns of a table: clean once, then each corruption's levels."""
    levels = sorted(float(level) for level in findings.levels)
    clean = [Condition(corruptions[0], 0.0)] if corruptions and 0.0 in levels else []
    return (*clean, *(Condition(name, level) for name in corruptions for level in levels if level))


def over_seeds(findings: Findings, metric: str) -> polars.DataFrame:
    """Mean, std, median, worst and number of seeds of a metric per set, method, corruption and level."""
    import polars as pl

    larger = findings.larger_is_better if metric == findings.metric else larger_is_better(metric)
    value = pl.col("value")
    return (
        findings.values.filter(pl.col("metric") == metric)
        .group_by("set", "method", "corruption", "level", maintain_order=True)
        .agg(
            mean=value.mean(),
            std=value.std(),  # null for one seed
            median=value.median(),
            worst=value.min() if larger else value.max(),
            seeds=pl.len(),
        )
        .sort("level", maintain_order=True)
    )


def larger_is_better(metric: str) -> bool:
    """Which way a metric is better; a user's own metric counts as a score."""
    from consilience.evaluation import METRICS

    return METRICS[metric].larger_is_better if metric in METRICS else True


def summarise(findings: Findings) -> list[Block]:
    """The main table, one block per set."""
    cells = _cells(findings)
    return [_block(findings, name, cells) for name in findings.sets]


def _block(findings: Findings, name: str, cells: dict[tuple[Any, ...], Cell]) -> Block:
    conditions = conditions_of(findings, corruptions_of(findings, findings.values.filter(set=name)))
    fates = fates_of(findings, name)
    rows = []
    for method in dict.fromkeys([*findings.methods, *fates]):
        own = tuple(cells.get((name, method, one.corruption, one.level)) for one in conditions)
        fate, reason = fates.get(method, ("", ""))
        if any(own):
            fate = ""  # if it failed, then for some seeds only: the numbers stand, the reason is a remark
        elif not fate:
            fate, reason = "not run", "not run: there are no results for this set"
        rows.append(Row(method, own, fate, reason, method == findings.reference))
    scale = Scale.of(findings.metric, [cell.std for row in rows for cell in row.cells if cell])
    return Block(name, conditions, tuple(rows), scale)


def fates_of(findings: Findings, name: str) -> dict[str, tuple[str, str]]:
    """Methods that were skipped or failed on a set: method → (fate, sentence)."""
    import polars as pl

    fates: dict[str, tuple[str, str]] = {}
    for method, reason in findings.skipped.filter(set=name).select("method", "reason").iter_rows():
        fates[method] = ("skipped", f"skipped: {_brief(reason)}")
    failed = findings.failed.filter(set=name).group_by("method", maintain_order=True)
    for method, seeds, error in failed.agg(pl.col("seed").n_unique(), pl.col("error").first()).iter_rows():
        survived = len(findings.values.filter(set=name, method=method))
        share = f" for {seeds} of {say_number(len(findings.seeds), 'seed')}" if survived else ""
        fates[method] = ("failed", f"failed{share}: {_brief(error)}")
    return fates


def _brief(reason: str, width: int = 300) -> str:
    told = one_line(reason)
    return told if len(told) <= width else told[: width - 1] + "…"


def _cells(findings: Findings) -> dict[tuple[Any, ...], Cell]:
    differences = {
        (row["set"], row["method"], row["corruption"], row["level"]): Difference(
            row["difference"], row["low"], row["high"], row["p_holm"], bool(row["significant"])
        )
        for row in findings.differences.iter_rows(named=True)
    }
    cells = {}
    for row in over_seeds(findings, findings.metric).iter_rows(named=True):
        if row["mean"] is None or not math.isfinite(row["mean"]):
            continue
        key = (row["set"], row["method"], row["corruption"], row["level"])
        best = findings.best.get((row["set"], row["corruption"], row["level"])) == row["method"]
        measured = {name: row[name] for name in ("mean", "std", "median", "worst", "seeds")}
        cells[key] = Cell(**measured, best=best, difference=differences.get(key))
    return cells


def ranking(block: Block, condition: Condition, larger: bool) -> list[tuple[Row, Cell]]:
    """The methods under a condition from the best mean to the worst, whether or not the leads are significant."""
    place = block.conditions.index(condition)
    there = [(row, cell) for row in block.rows if (cell := row.cells[place]) is not None]
    return sorted(there, key=lambda pair: -pair[1].mean if larger else pair[1].mean)


def standings(blocks: Iterable[Block], larger: bool) -> list[str]:
    """Methods from best to worst by mean rank over all sets and conditions."""
    ranks: dict[str, list[int]] = {}
    for block in blocks:
        for condition in block.conditions:
            for rank, (row, _) in enumerate(ranking(block, condition, larger)):
                ranks.setdefault(row.method, []).append(rank)
    return sorted(ranks, key=lambda method: sum(ranks[method]) / len(ranks[method]))
