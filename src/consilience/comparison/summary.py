"""The results over seeds: one cell per set, method and condition, with its marks; the leaders; and trust."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from consilience.comparison.results import (
    Block,
    Cell,
    Condition,
    Difference,
    Findings,
    Lead,
    MeasuredTrust,
    Row,
    TrustBlock,
    TrustRow,
)
from consilience.evaluation import METRICS

if TYPE_CHECKING:
    import polars

_CELL = ("set", "method", "corruption", "level")


def corruptions_of(findings: Findings, table: polars.DataFrame | None = None) -> list[str]:
    """Return the corruptions in order; with a table, those that occur in it, since a set need not have all of them.

    Where `findings` lists none, as in a comparison on clean data alone, they are those of the values.
    """
    listed = list(findings.corruptions) or findings.values["corruption"].unique(maintain_order=True).to_list()
    there = set() if table is None else set(table["corruption"])
    return [name for name in listed if name in there] or listed


def conditions_of(findings: Findings, table: polars.DataFrame) -> tuple[Condition, ...]:
    """Return the conditions of a table's rows: clean once, then each corruption's levels."""
    corruptions = corruptions_of(findings, table)
    levels = sorted(float(level) for level in findings.levels)
    clean = [Condition(corruptions[0], 0.0)] if corruptions and 0.0 in levels else []
    return (*clean, *(Condition(name, level) for name in corruptions for level in levels if level))


def over_seeds(findings: Findings, metric: str) -> polars.DataFrame:
    """Return mean, std, median, worst and number of seeds of a metric per set, method, corruption and level."""
    import polars as pl

    value = pl.col("value")
    return (
        findings.values.filter(pl.col("metric") == metric)
        .group_by(*_CELL, maintain_order=True)
        .agg(
            mean=value.mean(),
            std=value.std(),  # null for one seed
            median=value.median(),
            worst=value.min() if larger_is_better(findings, metric) else value.max(),
            seeds=pl.len(),
        )
        .sort("level", maintain_order=True)
    )


def larger_is_better(findings: Findings, metric: str) -> bool:
    """Return whether larger values of a metric are better; a metric that is not registered counts as a score."""
    if metric == findings.metric:
        return findings.larger_is_better
    return METRICS[metric].larger_is_better if metric in METRICS else True


def summarise(findings: Findings) -> list[Block]:
    """Return the main table, one block per set."""
    cells = _cells(findings)
    return [_block(findings, name, cells) for name in findings.sets]


def _cells(findings: Findings) -> dict[tuple[Any, ...], Cell]:
    differences = {
        tuple(row[name] for name in _CELL): Difference(
            row["difference"], row["low"], row["high"], row["p_holm"], bool(row["significant"])
        )
        for row in findings.differences.iter_rows(named=True)
    }
    cells = {}
    for row in over_seeds(findings, findings.metric).iter_rows(named=True):
        if row["mean"] is None or not math.isfinite(row["mean"]):
            continue
        key = tuple(row.pop(name) for name in _CELL)
        name, method, corruption, level = key
        best = findings.best.get((name, corruption, level)) == method
        cells[key] = Cell(**row, best=best, difference=differences.get(key))
    return cells


def _block(findings: Findings, name: str, cells: dict[tuple[Any, ...], Cell]) -> Block:
    conditions = conditions_of(findings, findings.values.filter(set=name))
    fates = fates_of(findings, name)
    rows = []
    for method in dict.fromkeys([*findings.methods, *fates]):
        own = tuple(cells.get((name, method, condition.corruption, condition.level)) for condition in conditions)
        fate, reason = fates.get(method, ("", ""))
        if any(own):
            fate = ""  # if it failed, then for some seeds only: the numbers stand, the reason is a remark
        elif not fate:
            fate, reason = "not run", "not run: there are no results for this set"
        rows.append(Row(method, own, fate, reason, method == findings.reference))
    return Block(name, findings.metric, conditions, tuple(rows))


def fates_of(findings: Findings, name: str) -> dict[str, tuple[str, str]]:
    """Return the methods that were skipped or failed on a set: method → (fate, sentence)."""
    import polars as pl

    fates: dict[str, tuple[str, str]] = {}
    for method, reason in findings.skipped.filter(set=name).select("method", "reason").iter_rows():
        fates[method] = ("skipped", f"skipped: {reason}")
    failed = findings.failed.filter(set=name).group_by("method", maintain_order=True)
    for method, seeds, error in failed.agg(pl.col("seed").n_unique(), pl.col("error").first()).iter_rows():
        total = len(findings.seeds)
        survived = len(findings.values.filter(set=name, method=method))
        share = f" for {seeds} of {total} seed{'' if total == 1 else 's'}" if survived else ""
        fates[method] = ("failed", f"failed{share}: {error}")
    return fates


def ranking(block: Block, condition: Condition, larger: bool) -> list[tuple[Row, Cell]]:
    """Return the methods under a condition from the best mean to the worst, whether or not leads are significant."""
    place = block.conditions.index(condition)
    there = [(row, cell) for row in block.rows if (cell := row.cells[place]) is not None]
    return sorted(there, key=lambda pair: -pair[1].mean if larger else pair[1].mean)


def rows_by_result(block: Block, larger: bool) -> list[Row]:
    """Return a table's rows from the best result to the worst, by the first condition that was measured.

    Methods without results there come last, in their own order.

    Args:
        block: The table.
        larger: Whether larger values are better.
    """

    def key(row: Row) -> tuple[bool, float]:
        cell = row.cells[0] if row.cells else None
        return cell is None, 0.0 if cell is None else -cell.mean if larger else cell.mean

    return sorted(block.rows, key=key)


def leads_of(findings: Findings, block: Block) -> list[Lead]:
    """Return which methods lead on clean data and at the highest level of each corruption, where there are results."""
    highest = {condition.corruption: condition for condition in block.conditions if not condition.clean}
    clean = [condition for condition in block.conditions if condition.clean][:1]
    leads = []
    for condition in (*clean, *highest.values()):
        ranked = ranking(block, condition, findings.larger_is_better)
        tied = [pair for pair in ranked if math.isclose(pair[1].mean, ranked[0][1].mean, rel_tol=1e-9)]
        if ranked:
            leads.append(Lead(condition, tuple(ranked), tuple(tied)))
    return leads


def order_by_mean_rank(blocks: Iterable[Block], larger: bool) -> list[str]:
    """Return the methods from best to worst by mean rank over all sets and conditions."""
    ranks: dict[str, list[int]] = {}
    for block in blocks:
        for condition in block.conditions:
            for rank, (row, _) in enumerate(ranking(block, condition, larger)):
                ranks.setdefault(row.method, []).append(rank)
    return sorted(ranks, key=lambda method: sum(ranks[method]) / len(ranks[method]))


def gains_over_single(findings: Findings, name: str, corruption: str) -> tuple[polars.DataFrame, str]:
    """Compute what each method gains over the best single modality, on a set under a corruption.

    The single modality is `best-unimodal`'s choice if that method has results, else the one of the `unimodal:` methods
    that is best at each level.

    Returns:
        `method`, `level`, `mean` and `std` of the gain over seeds, positive is better; and the baseline in words.
    """
    import polars as pl

    single = [method for method in findings.methods if method.startswith("unimodal:")]
    here = findings.values.filter(metric=findings.metric, set=name, corruption=corruption)
    base = here.filter(pl.col("method") == "best-unimodal")
    how = "the single modality that was best on validation data"
    if not len(base):
        means = here.filter(pl.col("method").is_in(single)).group_by("level", "method").agg(pl.col("value").mean())
        means = means.sort("value", descending=findings.larger_is_better)
        chosen = means.group_by("level", maintain_order=True).first().select("level", "method")
        base = here.join(chosen, on=["level", "method"])
        how = "the single modality that is best at that level"
    sign = 1 if findings.larger_is_better else -1
    gains = (
        here.filter(~pl.col("method").is_in([*single, "best-unimodal"]))
        .join(base.select("level", "seed", base="value"), on=["level", "seed"])
        .with_columns(gap=sign * (pl.col("value") - pl.col("base")))
        .group_by("method", "level", maintain_order=True)
        .agg(mean=pl.col("gap").mean(), std=pl.col("gap").std())
        .sort("level", maintain_order=True)
    )
    return gains, how


def trust_over_seeds(findings: Findings) -> polars.DataFrame:
    """Return trust diagnostics over seeds, one row per set, method, corruption, level and modality.

    r, r_std and r_worst are mean, standard deviation and largest over seeds (null where weights are static), positive
    counts the seeds with r > 0, and the other columns are means.
    """
    import polars as pl

    r = pl.col("r")
    means = ("samples", "weight", "trust", "static_trust", "loss", "covariance", "gap")
    return findings.diagnostics.group_by(*_CELL, "modality", maintain_order=True).agg(
        seeds=pl.len(),
        r=r.mean(),
        r_std=r.std(),
        r_worst=r.max(),
        positive=(r > 0).sum(),
        static=pl.col("static").all(),
        **{name: pl.col(name).mean() for name in means},
    )


def measured_trust(findings: Findings) -> list[TrustBlock]:
    """Return what was measured of trust, one block for each set in which some method has weights."""
    found: dict[tuple[Any, ...], list[MeasuredTrust]] = {}
    for row in trust_over_seeds(findings).iter_rows(named=True):
        measured = MeasuredTrust(**{name: row[name] for name in MeasuredTrust.__dataclass_fields__})
        found.setdefault(tuple(row[name] for name in _CELL), []).append(measured)
    blocks = []
    for name in findings.sets:
        conditions = conditions_of(findings, findings.diagnostics.filter(set=name))
        rows = []
        for method in findings.methods:
            keys = [(name, method, condition.corruption, condition.level) for condition in conditions]
            rows.append(TrustRow(method, tuple(tuple(found.get(key, ())) for key in keys)))
        rows = [row for row in rows if any(row.cells)]
        if rows:
            blocks.append(TrustBlock(name, conditions, tuple(rows)))
    return blocks
