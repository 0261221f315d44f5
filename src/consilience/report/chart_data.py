"""The numbers of the chart that a reader of the page can change: methods and conditions to choose, values to point at.

The page holds them as JSON, and the script of the page draws them; without scripts, and printed, the figures remain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from consilience.comparison.summary import corruptions_of, larger_is_better, over_seeds
from consilience.report.drawing import SERIES, Look
from consilience.report.wording import Scale, axis_label, one_line, say_metric

if TYPE_CHECKING:
    from consilience.comparison.results import Findings


def chart_data(findings: Findings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return what the chart shows in plain values; None where there is one level, so nothing to draw against.

    Args:
        findings: The results.
        looks: Of every method; those in colour are drawn at first.
    """
    if len(findings.levels) < 2 or not len(findings.values):
        return None
    metrics = [findings.metric, *(name for name in findings.values["metric"].unique(maintain_order=True))]
    first = [name for name, look in looks.items() if look.shown]
    order = [*first, *(name for name in findings.methods if name not in first)]
    kept = [name for name in order if len(findings.values.filter(method=name))]
    return {
        "levels": sorted(float(level) for level in findings.levels),
        "methods": [one_line(name) for name in kept],
        "colours": [SERIES.index(looks[name].colour) if looks[name].shown else None for name in kept],
        "metrics": [_describe(findings, name) for name in dict.fromkeys(metrics)],
        "sets": [
            {
                "name": one_line(name),
                "corruptions": [one_line(each) for each in _corruptions(findings, name)],
                "values": _values(findings, name, kept, list(dict.fromkeys(metrics))),
            }
            for name in findings.sets
        ],
    }


def chart_json(data: Mapping[str, Any]) -> str:
    """Return the data as JSON that may stand in a script element: it has none of the letters of markup.

    >>> chart_json({"methods": ["</script>"]})
    '{"methods":["\\\\u003c/script\\\\u003e"]}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _describe(findings: Findings, metric: str) -> dict[str, Any]:
    scale = Scale.of(metric)
    return {
        "title": axis_label(say_metric(metric), metric),
        "decimals": scale.decimals,
        "larger": larger_is_better(findings, metric),
    }


def _corruptions(findings: Findings, name: str) -> list[str]:
    return corruptions_of(findings, findings.values.filter(set=name))


def _values(findings: Findings, name: str, methods: list[str], metrics: list[str]) -> list[Any]:
    """Metric → corruption → method → [mean, spread] at each level, null where nothing was measured."""
    levels = sorted(float(level) for level in findings.levels)
    values = []
    for metric in metrics:
        factor = Scale.of(metric).factor
        found: dict[tuple[str, str, float], list[float | None]] = {}
        for row in over_seeds(findings, metric).filter(set=name).iter_rows(named=True):
            pair = (_rounded(row["mean"], factor), _rounded(row["std"], factor))
            found[row["corruption"], row["method"], float(row["level"])] = list(pair)
        values.append(
            [
                [[found.get((corruption, method, level)) for level in levels] for method in methods]
                for corruption in _corruptions(findings, name)
            ]
        )
    return values


def _rounded(value: float | None, factor: float) -> float | None:
    """Six digits, which are more than a chart shows."""
    return None if value is None or not math.isfinite(value) else float(f"{factor * value:.6g}")
