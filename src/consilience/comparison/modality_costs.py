"""What losing one modality costs, and what its corruption costs: measured in every job, and gathered over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.modality_contributions import mean_and_interval
from consilience.comparison.results import Findings
from consilience.comparison.summary import ranking, summarise
from consilience.core.evenly_spread import evenly_spread
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.corruption.corruptions import DEFAULT
from consilience.evaluation.mean_interval import half_width

if TYPE_CHECKING:
    from consilience.training import Model

# A job predicts at most so many samples with one modality changed, of at most so many samples.
_PREDICTIONS, _LEAST_SAMPLES, _MOST_SAMPLES = 8192, 50, 2000
MISSING = "missing"


@dataclass(frozen=True)
class ModalityCost:
    """How much worse a method is if one modality is missing or corrupted in all samples, over seeds; positive: worse.

    std is None for one seed. half_width: of the 95 % interval over seeds, or over samples for one seed; infinite where
    there is none.
    """

    modality: str
    corruption: str
    level: float
    cost: float
    std: float | None
    half_width: float
    seeds: int
    samples: int

    @property
    def missing(self) -> bool:
        """Whether the modality is missing, and not corrupted."""
        return self.corruption == MISSING


@dataclass(frozen=True)
class CostBlock:
    """What losing each modality costs on one set; `shown` is the method of `best/`, else the best on clean data."""

    set: str
    metric: str
    modalities: tuple[str, ...]
    rows: dict[str, tuple[ModalityCost, ...]]
    shown: str


def measure_costs(
    model: Model,
    corruptor: Corruptor,
    samples: Samples,
    score: Callable[[Samples, np.ndarray], dict[str, float]],
    score_samples: Callable[[Samples, np.ndarray], dict[str, np.ndarray]],
    *,
    level: float,
    seed: int,
    device: str = "auto",
    units: np.ndarray | None = None,
) -> dict[str, Any] | None:
    """Return the metrics with each modality missing in all samples, and with each one corrupted in all samples.

    Args:
        model: The trained model.
        corruptor: With the reference of the training samples.
        samples: Test samples with targets; some of them are used, evenly spread.
        score: Every metric of outputs.
        score_samples: Each sample's term `[n]` of every metric that is a mean over samples.
        level: Of the corruption, which is the default of the modality's kind; 0: modalities only go missing.
        seed: Of the corruption.
        device: Where to predict.
        units: The group of each sample, or its block in time `[n]`, which the intervals draw at once.

    Returns:
        "samples", "level", the metrics of the samples as they are ("clean"), and a list "changed" with "modality",
        "corruption", "metrics" and "half_widths": of the 95 % interval over samples of the difference to clean, for
        metrics that are means over samples. None for a single modality, without which nothing is left.
    """
    names = [name for name in model.preparation.raw if name in samples and samples.present_in(name).any()]
    if len(names) < 2:
        return None
    most = _PREDICTIONS // (2 * len(names) + 1)
    count = int(np.clip(most, _LEAST_SAMPLES, _MOST_SAMPLES))
    picked = evenly_spread(len(samples), count)
    chosen, drawn = samples.select(picked), None if units is None else units[picked]

    def judge(changed: Samples) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        output = model.predict(changed, device=device).output
        made = (output.double().softmax(dim=1) if model.task.classification else output).numpy()
        return score(changed, made), score_samples(changed, made)

    clean, terms = judge(chosen)
    found = []
    for name in names:
        for corruption, changed in _changes(corruptor, chosen, name, level, seed):
            metrics, own = judge(changed)
            widths = {metric: float(half_width(own[metric] - terms[metric], drawn)) for metric in own}
            spread = {metric: width if isfinite(width) else None for metric, width in widths.items()}
            found.append({"modality": name, "corruption": corruption, "metrics": metrics, "half_widths": spread})
    return {"samples": len(chosen), "level": level, "clean": clean, "changed": found}


def _changes(
    corruptor: Corruptor, samples: Samples, name: str, level: float, seed: int
) -> Iterator[tuple[str, Samples]]:
    """The samples without a modality, and with it corrupted; the others stay as they are."""
    present = samples.present.copy()
    present[:, samples.names.index(name)] = False
    yield MISSING, samples.replaced({}, present=present)
    if level > 0:
        corruption = DEFAULT[samples.modalities[name].kind]
        named = {name: corruption}
        yield corruption, corruptor.apply(samples, named, level, probability=1.0, random_state=seed)


def cost_rows(
    key: Mapping[str, Any], measured: Mapping[str, Any] | None, metric: str, larger: bool
) -> list[dict[str, Any]]:
    """Return the rows of `Findings.costs` of a job; none for a job of an earlier version, or without the metric.

    Args:
        key: Set, method and seed.
        measured: What `measure_costs` returned.
        metric: The metric.
        larger: Whether larger values of it are better.
    """
    if not measured or measured["clean"].get(metric) is None:
        return []
    sign, clean = 1 if larger else -1, measured["clean"][metric]
    return [
        {
            **key,
            "metric": metric,
            "modality": changed["modality"],
            "corruption": changed["corruption"],
            "level": 0.0 if changed["corruption"] == MISSING else measured["level"],
            "cost": sign * (clean - changed["metrics"][metric]),
            "half_width": changed["half_widths"].get(metric),
            "clean": clean,
            "samples": measured["samples"],
        }
        for changed in measured["changed"]
        if changed["metrics"].get(metric) is not None
    ]


def costs_over_seeds(findings: Findings) -> list[CostBlock]:
    """Return mean costs over seeds, one block for each set that has any, methods in the order of the comparison."""
    blocks = []
    for block in summarise(findings):
        table = findings.costs.filter(set=block.set)
        if not len(table):
            continue
        methods = [method for method in findings.methods if method in set(table["method"])]
        clean = [condition for condition in block.conditions if condition.clean]
        ranked = ranking(block, clean[0], findings.larger_is_better) if clean else []
        leader = next((row.method for row, _ in ranked if row.method in methods), methods[0])
        choice = findings.choices.get(block.set)
        shown = choice.method if choice is not None and choice.method in methods else leader
        rows = {method: tuple(_costs(table.filter(method=method))) for method in methods}
        modalities = tuple(table["modality"].unique(maintain_order=True).to_list())
        blocks.append(CostBlock(block.set, table["metric"][0], modalities, rows, shown))
    return blocks


def _costs(table: Any) -> Iterator[ModalityCost]:
    """The costs of one method, for each modality and corruption; intervals over seeds, or samples for one seed."""
    for (modality, corruption, level), own in table.group_by("modality", "corruption", "level", maintain_order=True):
        cost, std, half_width = mean_and_interval(own["cost"], own["half_width"])
        yield ModalityCost(modality, corruption, level, cost, std, half_width, len(own), round(own["samples"].mean()))
