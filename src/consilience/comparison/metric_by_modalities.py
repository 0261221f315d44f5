"""Every metric of a model under every set of modalities, and what each modality adds to the one that a report is about.

A metric such as the AUROC is no mean over samples, so it has no share that belongs to a sample: the game that the
Shapley values divide is then the metric of all samples together, v(S), with only the modalities S of each present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.samples import Samples
from consilience.evaluation import Metric
from consilience.evaluation.contributions import all_masks, shapley_interactions, shapley_values
from consilience.evaluation.mean_interval import half_width

# The AUROC of fewer samples says little, unless these are all there are.
LEAST_SAMPLES = 50


@dataclass(frozen=True)
class Scores:
    """How outputs are judged.

    Attributes:
        metrics: From samples with targets and outputs to every metric.
        terms: The same to each sample's term `[n]` of every metric that is a mean over samples.
    """

    metrics: Callable[[Samples, np.ndarray], dict[str, float]]
    terms: Callable[[Samples, np.ndarray], dict[str, np.ndarray]]


class KeptOutputs:
    """Collects the outputs of samples under sets of modalities, from which every metric can be computed.

    Args:
        present: What each sample has, booleans `[n, modality]`.
    """

    def __init__(self, present: np.ndarray):
        self._players = np.flatnonzero(present.any(axis=0))
        self._place = 1 << np.arange(len(self._players))
        self._present = present[:, self._players]
        self._outputs: np.ndarray | None = None

    def keep(self, rows: np.ndarray, masks: np.ndarray, output: np.ndarray) -> None:
        """Keep the outputs `[k, ...]` of rows `[k]` of which `masks` `[k, modality]` were present."""
        if self._outputs is None:
            shape = (2 ** len(self._players), len(self._present), *output.shape[1:])
            self._outputs = np.full(shape, np.nan)
        self._outputs[masks[:, self._players] @ self._place, rows] = output

    def metrics(
        self, samples: Samples, scores: Scores, names: tuple[str, ...], units: np.ndarray | None = None
    ) -> dict[str, Any] | None:
        """Return each metric under every set of modalities, in plain values.

        Args:
            samples: With targets, those of the rows.
            scores: How outputs are judged.
            names: Of all modalities.
            units: The group of each sample, or its block in time `[n]`, which the intervals draw at once.

        Returns:
            "players", the modalities that some sample has, and "values": metric → its value under each of their sets,
            in the order of `all_masks`; metrics that are not finite under every set are left out. "errors" and
            "interaction_errors": metric → half the width of the 95 % intervals of contributions and interactions over
            samples, of metrics that are means over samples.
        """
        if self._outputs is None:
            return None
        everyone, found, terms = np.arange(len(self._present)), [], []
        for mask in all_masks(len(self._players)):
            # What a sample lacks makes no difference, so it was predicted once.
            own = self._outputs[(mask & self._present) @ self._place, everyone]
            found.append(scores.metrics(samples, own))
            terms.append(scores.terms(samples, own))
        values = {name: [each[name] for each in found] for name in found[0]}
        return {
            "players": [names[place] for place in self._players],
            "values": {name: table for name, table in values.items() if np.isfinite(table).all()},
            **self._intervals(terms, units),
        }

    def _intervals(self, terms: Sequence[Mapping[str, np.ndarray]], units: np.ndarray | None) -> dict[str, Any]:
        """The intervals over samples of metrics that are means over them; a single unit has none."""
        errors, pairs = {}, {}
        for name in terms[0] if len(self._present) > 1 and (units is None or len(np.unique(units)) > 1) else ():
            table = np.stack([each[name] for each in terms]).astype(np.float64)
            errors[name] = half_width(shapley_values(table).T, units).tolist()
            if len(self._players) > 1:
                pairs[name] = half_width(np.moveaxis(shapley_interactions(table), 2, 0), units).tolist()
        return {"errors": errors, "interaction_errors": pairs}


def has_metric(measured: Mapping[str, Any] | None, metric: Metric) -> bool:
    """Return whether a job measured a metric under every set of modalities."""
    return bool(measured) and metric.name in (measured.get("sets") or {"values": {}})["values"]  # type: ignore[union-attr]


def contributions_to(measured: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """Return what a job measured, with contributions to a metric of which the values under all sets are known.

    Args:
        measured: What `measure_contributions` returned.
        metric: The metric. Contributions to an error are to its negative, so that positive means better.

    Returns:
        The same keys; intervals over samples are None for a metric that is no mean over samples.

    Example:
        >>> from consilience.evaluation import METRICS
        >>> sets = {"players": ["a"], "values": {"auroc": [0.5, 0.75]}, "errors": {}, "interaction_errors": {}}
        >>> measured = {"modalities": ["a", "b"], "samples": 90, "sets": sets}
        >>> found = contributions_to(measured, METRICS["auroc"])
        >>> found["values"], found["none"], found["all"]
        ([0.25, 0.0], 0.5, 0.75)
    """
    sets, names = measured["sets"], list(measured["modalities"])
    table = np.array(sets["values"][metric.name]) * (1 if metric.larger_is_better else -1)
    places = [names.index(name) for name in sets["players"]]
    values, pairs = np.zeros(len(names)), np.zeros((len(names), len(names)))
    errors, pair_errors = np.full(len(names), None), np.full((len(names), len(names)), None)
    values[places] = shapley_values(table)
    errors[places] = sets["errors"].get(metric.name)
    if len(places) > 1:
        pairs[np.ix_(places, places)] = shapley_interactions(table)
        pair_errors[np.ix_(places, places)] = sets["interaction_errors"].get(metric.name)
    return {
        "metric": metric.name,
        "modalities": names,
        "values": values.tolist(),
        "errors": errors.tolist(),
        "interactions": pairs.tolist(),
        "interaction_errors": pair_errors.tolist(),
        "none": float(table[0]),
        "all": float(table[-1]),
        "samples": measured["samples"],
    }
