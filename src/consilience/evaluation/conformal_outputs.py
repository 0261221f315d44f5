"""What conformal prediction reads from a prediction: log-probabilities or numbers, reliability, spread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, get_args

import numpy as np
from torch import Tensor

from consilience.core.targets import Task
from consilience.evaluation.calibration_scores import Evaluate
from consilience.evaluation.conformal_scores import SetScore, class_scores, residual_scores

# The spread of a number is never taken to be below this share of the targets' standard deviation in training, since
# experts that happen to agree are not without error.
_LEAST_SPREAD = 0.1


class Outputs(NamedTuple):
    """Outputs for k samples.

    Attributes:
        values: Log-probabilities `[k, class]`, or numbers in the user's units `[k, target]`.
        reliability: The mean probability that a present modality is sound `[k]`, where the method estimates it.
        spread: The standard deviation of the numbers `[k, target]` where the method predicts it, or how far the
            experts' numbers differ, where the method has experts.
    """

    values: np.ndarray
    reliability: np.ndarray | None = None
    spread: np.ndarray | None = None


# Called with rows `[k]` and what is present in them `[k, modality]`.
Predict = Callable[[np.ndarray, np.ndarray], Outputs]


def log_softmax(logits: Tensor) -> np.ndarray:
    """Log-probabilities `[k, class]` in float64."""
    return logits.double().log_softmax(dim=1).numpy()


def mean_reliability(weights: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The mean over present modalities of P(sound) `[k, modality]`; 1 for a sample without any: `[k]`.

    >>> mean_reliability(np.array([[1.0, 0.5], [0.2, 0.0]]), np.array([[True, True], [True, False]])).tolist()
    [0.75, 0.2]
    """
    count = present.sum(axis=1)
    total = np.where(present, weights, 0.0).sum(axis=1).clip(min=0.0)
    return np.divide(total, count, out=np.ones(len(count)), where=count > 0)


def expert_spread(opinions: np.ndarray, present: np.ndarray, task: Task) -> np.ndarray:
    """The standard deviation of the present experts' numbers, in the user's units, plus a small constant.

    Args:
        opinions: Standardised numbers `[k, modality, target]`.
        present: Booleans `[k, modality]`.
        task: The regression.

    Returns:
        `[k, target]`, above 0.
    """
    assert task.scale is not None
    there = present[:, :, None]
    count = present.sum(axis=1).clip(min=1)[:, None]
    kept = np.where(there, opinions, 0.0)  # a missing modality's opinion may be anything
    mean = kept.sum(axis=1) / count
    variance = np.where(there, (kept - mean[:, None]) ** 2, 0.0).sum(axis=1) / count
    return (np.sqrt(variance) + _LEAST_SPREAD) * task.scale


def predicted_spread(variance: np.ndarray, task: Task) -> np.ndarray:
    """The standard deviations `[k, target]` of numbers with these standardised variances, in the user's units.

    >>> predicted_spread(np.array([[0.25]]), Task("regression", 1, mean=np.zeros(1), scale=np.array([10.0])))
    array([[5.]])
    """
    assert task.scale is not None
    return np.sqrt(variance) * task.scale


def score_classes(predict: Predict, y: np.ndarray) -> Evaluate:
    """Return a function that scores the true classes y `[n]`, given as columns, for `CalibrationScores.collect`."""

    def evaluate(rows: np.ndarray, present: np.ndarray) -> Mapping[str, np.ndarray]:
        outputs, true = predict(rows, present), y[rows]
        each = np.arange(len(rows))
        scores = {name: class_scores(outputs.values, name)[each, true] for name in get_args(SetScore)}
        scores["confidence"] = np.exp(outputs.values.max(axis=1))
        scores["right"] = (outputs.values.argmax(axis=1) == true).astype(np.float64)
        if outputs.reliability is not None:
            scores["reliability"] = outputs.reliability
        return scores

    return evaluate


def score_numbers(predict: Predict, y: np.ndarray) -> Evaluate:
    """Return a function that scores the true numbers y `[n, target]`, for `CalibrationScores.collect`."""

    def evaluate(rows: np.ndarray, present: np.ndarray) -> Mapping[str, np.ndarray]:
        outputs = predict(rows, present)
        scores = {"absolute": residual_scores(y[rows], outputs.values)}
        if outputs.spread is not None:
            scores["normalised"] = residual_scores(y[rows], outputs.values, outputs.spread)
        return scores

    return evaluate
