"""A fitted model judged by a metric on changed versions of the same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.targets import TaskKind
from consilience.evaluation.metrics import Metric, find_metric


def as_read(model: Any, X: Any) -> Any:
    """Return X as the samples that the model reads from it, or X itself for a model without a reader of its own.

    A reader finds the columns of DataFrames by name and fills and encodes them as in training: what is changed is what
    the model sees.
    """
    reader = getattr(model, "_observed", None)
    return X if reader is None or isinstance(X, Samples) else reader(X, None)


def read_for_corruption(model: Any, X: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return `as_read(model, X)` and the options of its corruption, without an `index` that the samples then have."""
    read, rest = as_read(model, X), dict(options)
    return (read if read is X or "index" not in rest else Samples.of(read, index=rest.pop("index"))), rest


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
