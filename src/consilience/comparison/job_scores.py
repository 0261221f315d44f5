"""The scores of one condition of a job: means of every metric, and the terms of samples for the bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.evaluation import METRICS, Metric, evaluate

if TYPE_CHECKING:
    from consilience.training import Model


def score(data: DataSet, model: Model, samples: Samples, output: np.ndarray) -> dict[str, float]:
    """Every metric of the task that can judge as many targets, the mean over repeats."""
    known = known_metrics(data, model)
    assert data.task is not None
    # Not of all repeats at once: of ten times as many samples a calibration error, for one, is smaller.
    found = [
        evaluate(
            data.task,
            samples.y,
            model.task.decode(draw),
            draw if model.task.classification else None,
            known,
            model.task.classes,
        )
        for draw in np.split(output, len(output) // len(samples))
    ]
    return {name: float(np.mean([draw[name] for draw in found])) for name in found[0]}


def score_samples(data: DataSet, model: Model, samples: Samples, output: np.ndarray) -> dict[str, np.ndarray]:
    """Each sample's term `[n]` of every metric that is a mean over samples, the mean over repeats, in 32 bits."""
    assert samples.y is not None
    numbers = None if model.task.classification else model.task.decode(output)
    targets = model.task.encode(samples.y) if model.task.classification else samples.y
    repeated = np.concatenate([targets] * (len(output) // len(samples)))
    terms = {}
    for metric in known_metrics(data, model):
        if metric.per_sample:
            assert metric.terms is not None
            read = numbers if numbers is not None else output if metric.needs_probabilities else output.argmax(axis=1)
            each = np.asarray(metric.terms(repeated, read), dtype=np.float64).reshape(-1, len(samples))
            terms[metric.name] = each.mean(axis=0).astype(np.float32)
    return terms


def known_metrics(data: DataSet, model: Model) -> list[Metric]:
    """Every metric of the task that can judge as many targets."""
    single = model.task.classification or model.task.outputs == 1
    return [each for each in METRICS.values() if each.task == data.task and (single or not each.one_target)]
