"""What was measured of a model, for its card: by a comparison, or on the test part after a training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from consilience.comparison.job_scores import score, score_samples
from consilience.comparison.modality_contributions import mean_and_interval
from consilience.comparison.modality_costs import measure_costs
from consilience.comparison.results import Findings
from consilience.data import DataSet
from consilience.evaluation.mean_interval import half_width
from consilience.evaluation.metrics import METRICS
from consilience.report.recommendation import recommend
from consilience.report.wording import say_level, say_metric
from consilience.training.model_card import Result, Results

if TYPE_CHECKING:
    from consilience.training import Model

# Headings of a recommendation → those of a card; what was deployed and which file it is, the card says itself.
_HEADINGS = {
    "How sure": "How sure the choice of the method is",
    "Each modality": "What each modality is worth",
    "Watch": "Which corruption hurts",
    "The file": "This file",
}
_LEVEL = 5.0  # of the corruption that a training measures


def card_of_best(findings: Findings, data_set: str) -> Results | None:
    """Return what a comparison measured of the method in `best/`: means over seeds on test samples, with intervals.

    None if no method was chosen, or `best/` holds another one.
    """
    choice = findings.choices.get(data_set)
    if choice is None or choice.published is None or choice.published.method != choice.method:
        return None
    own = findings.values.filter(set=data_set, method=choice.method)
    metrics = []
    seeds = own["seed"].n_unique()
    for (level, corruption, metric), rows in own.group_by("level", "corruption", "metric", maintain_order=True):
        clean = level == 0
        if str(metric) in METRICS and not METRICS[str(metric)].usual:
            continue
        if clean and corruption != own["corruption"][0]:
            continue  # the clean set stands under every corruption
        mean, _, half = mean_and_interval(rows["value"], rows["value"] * 0)
        name = say_metric(str(metric)) + ("" if clean else f", {corruption} at level {say_level(float(str(level)))}")
        metrics.append(_result(str(metric), name, mean, half if seeds > 1 else None))
    found = next((each for each in recommend(findings) if each.set == data_set), None)
    points = () if found is None else found.points
    count = findings.sets[data_set].get("split", {}).get("test", 0)
    on = (
        f"Means over {seeds} trainings of the method with other seeds, on {count} test samples that none of them has "
        "seen. The intervals are over seeds. Corruptions hit a modality of a sample with probability "
        f"{findings.settings.get('probability', 0.5)}."
        if seeds > 1
        else f"One training of the method, on {count} test samples that it has not seen."
    )
    sections = tuple((_HEADINGS[name], text.replace("`", "")) for name, text in points if name in _HEADINGS)
    return Results(data_set, on, tuple(metrics), sections)


def card_after_training(model: Model, data: DataSet, figures: Mapping[str, float]) -> Results:
    """Return metrics on the test part with intervals over its samples, and what losing or corrupting one costs."""
    from consilience.corruption import Corruptor

    output = model.predict(data.test).output
    made = (output.double().softmax(dim=1) if model.task.classification else output).numpy()
    halves = {name: float(half_width(own)) for name, own in score_samples(data, model, data.test, made).items()}
    metrics = tuple(_result(name, say_metric(name), value, halves.get(name)) for name, value in figures.items())
    on = f"On {len(data.test)} test samples that it has not seen. The intervals are over samples, for one training."
    main = "accuracy" if data.task == "classification" else "mse"
    found = measure_costs(
        model,
        Corruptor(data.train),
        data.test,
        partial(score, data, model),
        partial(score_samples, data, model),
        level=_LEVEL,
        seed=0,
    )
    sections = []
    if found is not None and main in found["clean"]:
        better = METRICS[main].larger_is_better
        sentences = []
        for each in found["changed"]:
            cost = (found["clean"][main] - each["metrics"][main]) * (1 if better else -1)
            half = each["half_widths"].get(main)
            how = "missing" if each["corruption"] == "missing" else f"{each['corruption']} at level {say_level(_LEVEL)}"
            spread = "" if half is None else f" (± {half:.3g})"
            sentences.append(f"{each['modality']} {how}: {cost:.3g}{spread} of {say_metric(main)} lost.")
        words = f"In all of {found['samples']} test samples one modality missing, or corrupted. "
        sections.append(("What losing or corrupting a modality costs", words + " ".join(sentences)))
    return Results(data.name, on, metrics, tuple(sections))


def _result(metric: str, name: str, value: float, half: float | None) -> Result:
    if half is None or not isfinite(half):
        return Result(metric, name, value)
    low, high, known = value - half, value + half, METRICS.get(metric)
    if known is not None and (known.percent or not known.larger_is_better):
        low = max(low, 0.0)
    return Result(metric, name, value, low, min(high, 1.0) if known is not None and known.percent else high)
