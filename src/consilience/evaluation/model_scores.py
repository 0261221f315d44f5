"""A fitted model judged by a metric on changed versions of the same samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from consilience.core.errors import InputError
from consilience.core.targets import TaskKind
from consilience.evaluation.metrics import Metric, find_metric


def score_model(model: Any, truth: Any, metric: str | Metric | None) -> tuple[Metric, Callable[[Any], float]]:
    """Return the metric, and the function that judges a model's predictions for X by it.

    Args:
        model: Has `predict`, and for metrics of probabilities `predict_proba` and `classes_`.
        truth: The targets of the samples.
        metric: A name or a `Metric`; None: accuracy for a classifier, mse for a regressor.

    Raises:
        InputError: If the metric needs probabilities, and the model gives none.
    """
    classifies = getattr(model, "classes_", None) is not None or hasattr(model, "predict_proba")
    task: TaskKind = "classification" if classifies else "regression"
    if metric is None:
        metric = "accuracy" if classifies else "mse"
    chosen = find_metric(metric, task)
    if chosen.needs_probabilities and not hasattr(model, "predict_proba"):
        raise InputError(f"metric {chosen.name!r} needs probabilities, but {type(model).__name__} has no predict_proba")

    def score(X: Any) -> float:
        if chosen.needs_probabilities:
            return chosen(truth, probabilities=model.predict_proba(X), classes=getattr(model, "classes_", None))
        return chosen(truth, model.predict(X))

    return chosen, score
