"""What each modality contributes in a comparison: measured on test samples in every job, and gathered over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.comparison.metric_by_modalities import LEAST_SAMPLES, KeptOutputs, Scores
from consilience.comparison.results import ContributionBlock, ContributionRow, Findings
from consilience.comparison.summary import ranking, summarise
from consilience.core.evenly_spread import evenly_spread
from consilience.core.samples import Samples
from consilience.evaluation.contributions import MOST_EXACT, MeanContributions, explain_values, mean_contributions
from consilience.evaluation.explained_sample import sample_values

if TYPE_CHECKING:
    from consilience.training import Model

# A job predicts at most so many copies of test samples with modalities hidden, of at most so many samples: this bounds
# the time that it adds, however many modalities there are.
_PREDICTIONS, _MOST_SAMPLES, _LEAST_SAMPLES = 8192, 500, 8
_ORDERS = 16  # with more modalities than can be evaluated exactly
_AT_ONCE = 1024


def measure_contributions(
    model: Model,
    samples: Samples,
    device: str = "auto",
    units: np.ndarray | None = None,
    scores: Scores | None = None,
) -> dict[str, Any] | None:
    """Return what each modality contributes to the accuracy, or to the mean squared error, in plain values.

    Args:
        model: The trained model.
        samples: Test samples with targets; some of them are used, evenly spread.
        device: Where to predict.
        units: The group of each sample, or its block in time `[n]`, which the intervals draw at once.
        scores: How outputs are judged (probabilities, or numbers as the model gives them).

    Returns:
        `MeanContributions.to_json()` with "metric"; contributions to "mse" are positive if they lower it. "sets" has
        every metric under every set of modalities, where there are samples enough for it. None if some prediction is
        not finite.
    """
    names, task = tuple(model.preparation.raw), model.task
    masks = 2 ** len(names) if len(names) <= MOST_EXACT else _ORDERS * len(names)
    count = int(np.clip(_PREDICTIONS // masks, _LEAST_SAMPLES, _MOST_SAMPLES))
    picked = evenly_spread(len(samples), count)
    chosen = samples.select(picked)
    assert chosen.y is not None
    encoded, inputs = task.encode(chosen.y), chosen.without_targets()
    columns = [names.index(name) for name in inputs.names]
    metric = "accuracy" if task.classification else "mse"
    scale = np.ones(1) if task.scale is None else task.scale  # errors in the units of the targets
    broken = False
    present = chosen.present_among(names)
    enough = len(chosen) >= min(LEAST_SAMPLES, len(samples))
    pooled = scores is not None and len(names) <= MOST_EXACT and enough
    kept = KeptOutputs(present) if pooled else None

    def evaluate(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
        nonlocal broken
        hidden = inputs.select(rows).replaced({}, present=masks[:, columns])
        made = model.predict(hidden, device=device).output.double()
        output = made.numpy()
        broken |= not np.isfinite(output).all()
        if kept is not None:
            kept.keep(rows, masks, (made.softmax(dim=1) if task.classification else made).numpy())
        target = encoded[rows]
        if metric == "accuracy":
            return sample_values("accuracy", output, target)
        return sample_values("mse", np.nan_to_num(output) * scale, target * scale)

    found = explain_values(evaluate, present, permutations=_ORDERS, at_once=_AT_ONCE)
    drawn = None if units is None else units[picked]
    mean = mean_contributions(found, names, drawn)
    if broken:
        return None
    sets = None if kept is None or scores is None else kept.metrics(chosen, scores, names, drawn)
    return {"metric": metric, **mean.to_json(), "sets": sets}


def contribution_rows(key: Mapping[str, Any], measured: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Findings.contributions` of a job; none for a job of an earlier version.

    Args:
        key: Set, method and seed.
        measured: What `measure_contributions` returned.
    """
    if not measured:
        return
    shared = {name: measured[name] for name in ("metric", "none", "all", "samples")}
    for name, value, error in zip(measured["modalities"], measured["values"], measured["errors"]):
        yield {**key, **shared, "modality": name, "contribution": value, "half_width": error}


def interaction_rows(key: Mapping[str, Any], measured: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Findings.interactions` of a job, one for each pair of modalities."""
    if not measured or measured["interactions"] is None:
        return
    names = measured["modalities"]
    for j, second in enumerate(names):
        for i, first in enumerate(names[:j]):
            value, error = measured["interactions"][i][j], measured["interaction_errors"][i][j]
            yield {**key, "first": first, "second": second, "interaction": value, "half_width": error}


def contributions_over_seeds(findings: Findings) -> list[ContributionBlock]:
    """Return mean contributions over seeds, one block for each set that has any."""
    blocks = []
    for block in summarise(findings):
        table = findings.contributions.filter(set=block.set)
        if not len(table):
            continue
        pairs = findings.interactions.filter(set=block.set)
        modalities = tuple(table["modality"].unique(maintain_order=True).to_list())
        methods = [method for method in findings.methods if method in set(table["method"])]
        rows = [
            _row(method, modalities, table.filter(method=method), pairs.filter(method=method)) for method in methods
        ]
        clean = [condition for condition in block.conditions if condition.clean]
        ranked = ranking(block, clean[0], findings.larger_is_better) if clean else []
        choice = findings.choices.get(block.set)
        chosen = [choice.method] if choice is not None else []
        leader = next(method for method in [*chosen, *(row.method for row, _ in ranked), *methods] if method in methods)
        metric = table["metric"][0]
        error = not findings.larger_is_better if metric == findings.metric else metric == "mse"
        blocks.append(ContributionBlock(block.set, metric, modalities, tuple(rows), leader, error))
    return blocks


def _row(method: str, modalities: tuple[str, ...], table: Any, pairs: Any) -> ContributionRow:
    """One method over seeds, with intervals over seeds; for one seed, those over its samples."""
    values, stds, errors = _over_seeds(table, "modality", modalities, "contribution")
    interactions = interaction_errors = None
    if len(pairs):
        size = len(modalities)
        interactions, interaction_errors = np.zeros((size, size)), np.zeros((size, size))
        for j, second in enumerate(modalities):
            for i, first in enumerate(modalities[:j]):
                own = pairs.filter(first=first, second=second)
                value, _, error = mean_and_interval(own["interaction"], own["half_width"])
                interactions[i, j] = interactions[j, i] = value
                interaction_errors[i, j] = interaction_errors[j, i] = error
    mean = MeanContributions(
        modalities,
        values,
        errors,
        interactions,
        interaction_errors,
        float(table["none"].mean()),
        float(table["all"].mean()),
        round(table["samples"].mean()),
    )
    return ContributionRow(method, table["seed"].n_unique(), mean, tuple(stds))


def _over_seeds(
    table: Any, column: str, names: Iterable[str], value: str
) -> tuple[np.ndarray, list[float | None], np.ndarray]:
    found = []
    for name in names:
        own = table.filter(table[column] == name)
        found.append(mean_and_interval(own[value], own["half_width"]))
    means, stds, errors = zip(*found)
    return np.array(means), list(stds), np.array(errors)


def mean_and_interval(values: Any, errors: Any) -> tuple[float, float | None, float]:
    """Mean, standard deviation (None for one seed), and half the width of the 95 % interval of the mean over seeds."""
    from scipy.stats import t

    if len(values) == 1:
        return float(values[0]), None, float("inf") if errors[0] is None else float(errors[0])
    std = float(values.std())
    return float(values.mean()), std, float(t.ppf(0.975, len(values) - 1) * std / np.sqrt(len(values)))
