"""What a loop gains over its base model, beside what its controls gain: more parameters, and a loop of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.comparison.bootstrap import Difference, paired_bootstrap
from consilience.comparison.comparison import Comparison, read_finished
from consilience.comparison.gather_results import conditions, sample_scores
from consilience.evaluation import find_metric
from consilience.report.document import Section, TextTable
from consilience.report.seed_summary import summarise
from consilience.report.wording import NOTHING, Scale, say_count, say_list, say_number, say_p


def controls_section(
    comparison: Comparison, models: Mapping[str, str], loop: str, controls: Mapping[str, str]
) -> Section:
    """models: base method → its name in the paper · loop, controls: families put around it, the latter in words."""
    scale = summarise(comparison.findings)[0].scale
    known = comparison.findings.methods
    families = (loop, *controls)
    rows = []
    for base, name in models.items():
        asked = [f"{family}:{base}" for family in families if f"{family}:{base}" in known]
        gains = gains_over(comparison, base, asked)
        rows.append((name, _parameters(comparison, base), *(_gain(gains, f"{one}:{base}", scale) for one in families)))
    caption = "Accuracy gained over the base model in percentage points, and p corrected over each model's own"
    table = TextTable(caption, ("model", "parameters", *(f"{family}:" for family in families)), tuple(rows))
    said = "; ".join(f"`{family}:` {words}" for family, words in controls.items())
    return Section(
        "controls",
        "Is it what crosses between the modalities?",
        (f"{said}.", *_reading(comparison, models, loop, controls)),
        (table,),
    )


def gains_over(comparison: Comparison, base: str, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Method → its clean difference to a base method, as a row of `Comparison.statistics`."""
    if not methods:
        return {}
    found = comparison.statistics(base, methods).filter(level=0)
    return {row["method"]: row for row in found.iter_rows(named=True)}


def say_gain_of_all(comparison: Comparison, models: Mapping[str, str], loop: str) -> list[str]:
    """What the loop does to the models taken together, in a sentence: a test that six small differences of one sign
    can decide where none of them does alone. None where no seed has trained them all.
    """
    scale = summarise(comparison.findings)[0].scale
    bases = [base for base in models if {base, f"{loop}:{base}"} <= set(comparison.findings.methods)]
    gain, ahead = gain_of_all(comparison, bases, loop)
    if not np.isfinite(gain.difference):
        return []
    return [
        f"{say_number(len(bases), 'model')} taken together are {_than(gain)} with the loop than without: "
        f"{scale.signed(gain.difference)} ({scale.number(gain.low)} … {scale.number(gain.high)}) percentage points, "
        f"{say_p(gain.p)}, a test by itself; the loop is ahead in {ahead} of them."
    ]


def gain_of_all(comparison: Comparison, bases: Sequence[str], loop: str) -> tuple[Difference, int]:
    """The loop's clean gain over its base, as the mean over the models, and in how many it is ahead.

    A seed's models are trained on the same split and tested on the same samples: one sample's gain is the mean of what
    it gains in each.
    """
    plan = comparison.store.read_plan()
    assert plan is not None
    metric, scores, tested = find_metric(comparison.findings.metric), {}, {}
    for job, result in read_finished(comparison.store, plan):
        if not result.failed:
            clean = next(one for _, one in conditions(result, plan) if one["level"] == 0)
            scores[job.method, job.seed] = sample_scores(metric, result, clean)
            tested[job.seed] = result.arrays["index"]
    needed = [name for base in bases for name in (base, f"{loop}:{base}")]
    seeds = [seed for seed in sorted(tested) if all((name, seed) in scores for name in needed)]
    if not seeds or not bases:
        return Difference(*[float("nan")] * 4), 0
    gains = [np.array([scores[f"{loop}:{base}", seed] - scores[base, seed] for base in bases]) for seed in seeds]
    ahead = int((np.mean([one.mean(axis=1) for one in gains], axis=0) > 0).sum())
    return paired_bootstrap([one.mean(axis=0) for one in gains], [tested[seed] for seed in seeds]), ahead


def _than(gain: Difference) -> str:
    return (
        "not significantly other" if gain.p > 0.05 else f"significantly {'better' if gain.difference > 0 else 'worse'}"
    )


def _reading(comparison: Comparison, models: Mapping[str, str], loop: str, controls: Mapping[str, str]) -> list[str]:
    """For each control: in how many models the loop is ahead of it, and in which of them significantly."""
    said = []
    for control in controls:
        rows = {
            name: gains_over(comparison, f"{control}:{base}", [f"{loop}:{base}"])[f"{loop}:{base}"]
            for base, name in models.items()
            if {f"{control}:{base}", f"{loop}:{base}"} <= set(comparison.findings.methods)
        }
        ahead = [name for name, row in rows.items() if row["difference"] > 0]
        clearly = [name for name, row in rows.items() if row["difference"] > 0 and row["p"] <= 0.05 / len(rows)]
        if rows:
            where = f", in {say_list(clearly)} significantly" if clearly else ", in none significantly"
            said.append(
                f"The loop is ahead of `{control}:` in {len(ahead)} of {say_number(len(rows), 'model')}"
                f"{where} (p ≤ 0.05 over {say_number(len(rows), 'test')})."
            )
    return said


def _gain(gains: Mapping[str, Mapping[str, Any]], method: str, scale: Scale) -> str:
    if method not in gains:
        return NOTHING
    row = gains[method]
    return f"{scale.signed(row['difference'])}, {say_p(row['p_holm'])}"


def _parameters(comparison: Comparison, method: str) -> str:
    timings = comparison.findings.timings
    return say_count(timings.filter(timings["method"] == method)["parameters"][0])
