"""Sections of the finance pages: areas under error–noise curves, and what a constant scores on each reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from consilience.comparison.comparison import Comparison, read_finished
from consilience.comparison.experiments.progressive_finance.published import BASELINE, SECTORS
from consilience.comparison.results import Findings
from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.evaluation import mse, robust_auc
from consilience.evaluation.robustness import Area
from consilience.report.document import Section, TextTable
from consilience.report.wording import NOTHING, Scale, say_level, say_number

# Which data a table may be of: the words, what follows the sector in the group's name, the options of the set.
READINGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("a constant: MultiBench's group, one target, 500 days", "", {"targets": "one", "window": 500}),
    ("a constant: MultiBench's group, all targets, 500 days", "", {"targets": "all", "window": 500}),
    ("a constant: appendix C's group, one target, 750 days", "-large", {"targets": "one", "window": 750}),
    ("a constant: appendix C's group, all targets, 750 days", "-large", {"targets": "all", "window": 750}),
)
Curve = tuple[list[float], list[float], bool]
DECIMALS = 4  # two seeds may happen to agree to more


def area_section(comparisons: Mapping[str, Comparison], published: Mapping[tuple[str, str], float]) -> Section:
    """ROBUSTAUC of every method, by sector; published: (sector, method) → the paper's."""
    levels = [level for one in comparisons.values() for level in one.findings.levels]
    words = (
        f"ROBUSTAUC of a model is the area between `{BASELINE}`'s error–noise curve and its own, from p = 0 to "
        f"{say_level(max(levels))} by the trapezoidal rule: larger is better, `{BASELINE}` has 0, and what is better "
        "on clean samples counts as well. The effective area leaves that out. Mean ± standard deviation over seeds, "
        "curves being paired by seed; a loop's gain is over its base.",
    )
    tables = tuple(area_table(sector, one.findings, published) for sector, one in comparisons.items())
    return Section("areas", "Robustness: areas under the error–noise curves", words, tables)


def area_table(sector: str, findings: Findings, published: Mapping[tuple[str, str], float]) -> TextTable:
    """One sector's methods: area, the paper's, the difference, gain over the base, and the effective area."""
    areas = {kind: areas_of(findings, kind) for kind in ("gain", "effective")}
    spreads = [np.std(list(seeds.values()), ddof=1) for seeds in areas["gain"].values() if len(seeds) > 1]
    scale = Scale.of("mse", [float(one) for one in spreads])
    scale = replace(scale, decimals=min(scale.decimals, DECIMALS))
    rows = []
    for method, seeds in areas["gain"].items():
        said, base = published.get((sector, method)), areas["gain"].get(method.removeprefix("pro:"), {})
        mean = float(np.mean(list(seeds.values())))
        beside = [NOTHING, NOTHING] if said is None else [scale.number(said), scale.signed(mean - said)]
        gains = {seed: area - base[seed] for seed, area in seeds.items() if seed in base}
        looped = method.startswith("pro:") and gains
        rows.append(
            (
                method,
                _over_seeds(scale, seeds),
                *(beside if published else ()),
                _gain(scale, list(gains.values())) if looped else NOTHING,
                _over_seeds(scale, areas["effective"][method]),
            )
        )
    told = ("published", "difference") if published else ()
    header = ("method", "ROBUSTAUC", *told, "gain over its base", "effective area")
    marked = tuple(place for place, row in enumerate(rows) if row[0] == BASELINE)
    return TextTable(SECTORS[sector], header, tuple(rows), marked)


def areas_of(findings: Findings, kind: Area) -> dict[str, dict[int, float]]:
    """Method → seed → area against the baseline's curve of the same seed."""
    curves = curves_of(findings)
    base = curves.get(BASELINE, {})
    return {
        method: {seed: robust_auc(curve, base[seed], kind) for seed, curve in seeds.items() if seed in base}
        for method, seeds in curves.items()
        if seeds.keys() & base.keys()
    }


def curves_of(findings: Findings) -> dict[str, dict[int, Curve]]:
    """Method → seed → the levels, the main metric at each, and whether larger is better."""
    curves: dict[str, dict[int, Curve]] = {}
    rows = findings.values.filter(metric=findings.metric).sort("level")
    for row in rows.iter_rows(named=True):
        seeds = curves.setdefault(row["method"], {})
        levels, values, _ = seeds.setdefault(row["seed"], ([], [], findings.larger_is_better))
        levels.append(row["level"])
        values.append(row["value"])
    return {method: curves[method] for method in findings.methods if method in curves}


def constant_section(comparisons: Mapping[str, Comparison], published: Mapping[str, Mapping[str, float]]) -> Section:
    """Errors of the training mean on the test days of each reading; published: words → sector → figure."""
    found: dict[str, Mapping[str, float | None]] = dict(published)
    for reading, suffix, options in READINGS:
        found[reading] = {sector: constant_error(f"{sector}{suffix}", **options) for sector in SECTORS}
    found["the best constant in hindsight, on what was compared here"] = {
        sector: variance_compared(one) for sector, one in comparisons.items()
    }
    scale = Scale()
    rows = ((of, *(scale.number(errors.get(sector)) for sector in SECTORS)) for of, errors in found.items())
    table = TextTable("Mean squared error", ("of", *SECTORS.values()), tuple(rows))
    words = (
        "A constant, the mean of the training targets, scores about as much as the variance of the test targets: it "
        "shows on which scale errors lie, and models of volatility are rarely far below it. So it tells which stocks "
        f"and targets a table is of. {NOTHING}: the file has no prices of that group.",
    )
    return Section("constants", "What a constant scores", words, (table,))


def constant_error(group: str, **options: Any) -> float | None:
    """The mean squared error of the mean training target on the test days; None where prices are not there."""
    try:
        data = load_data("finance", group=group, **options)
    except InputError:  # a file that holds the compared groups only
        return None
    constant = data.y[data.split == "train"].mean(axis=0)
    test = data.y[data.split == "test"]
    return mse(test, np.broadcast_to(constant, test.shape))


def variance_compared(comparison: Comparison) -> float | None:
    """The variance of the test targets, mean over targets, as kept with a comparison's results."""
    plan = comparison.store.read_plan()
    assert plan is not None
    for _, result in read_finished(comparison.store, plan):
        if not result.failed:
            y = result.arrays["y"]
            return float(y.reshape(len(y), -1).var(axis=0).mean())
    return None


def _over_seeds(scale: Scale, seeds: Mapping[int, float]) -> str:
    values = list(seeds.values())
    return scale.pair(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _gain(scale: Scale, gains: list[float]) -> str:
    better = sum(gain > 0 for gain in gains)
    return f"{scale.signed(float(np.mean(gains)))}, in {better} of {say_number(len(gains), 'seed')}"
