"""Every metric by name: which task it serves, what it needs, which way is better; and `evaluate`, which asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.registry import Registry
from consilience.core.targets import TaskKind
from consilience.evaluation import classification, regression


@dataclass(frozen=True)
class Metric:
    """A named measure of predictions.

    function: called as `function(y, prediction, weight=…)`, or as `function(y, probabilities, classes=…, weight=…)` if
    it needs probabilities · usual: whether `evaluate` computes it unasked · one_target: whether it judges one number a
    sample, and no more.
    """

    name: str
    task: TaskKind
    function: Callable[..., float] = field(repr=False, compare=False)
    needs_probabilities: bool = False
    larger_is_better: bool = True
    usual: bool = True
    one_target: bool = False

    def __call__(
        self, y: Any, prediction: Any = None, probabilities: Any = None, *, classes: Any = None, weight: Any = None
    ) -> float:
        """Measure, with whichever of prediction and probabilities the metric needs."""
        if self.needs_probabilities:
            if probabilities is None:
                raise InputError(f"metric {self.name!r} needs probabilities [n, class], and none were given")
            return self.function(y, probabilities, classes=classes, weight=weight)
        if prediction is None:
            raise InputError(f"metric {self.name!r} needs predictions [n], and none were given")
        return self.function(y, prediction, weight=weight)


METRICS: Registry[Metric] = Registry("metric", group="consilience.metrics", separator="_", alphabetical=False)


def register_metric(metric: Metric) -> Metric:
    """Make a metric known by its name, from the file that defines it."""
    METRICS.add(metric.name, metric)
    return metric


for _metric in (
    Metric("accuracy", "classification", classification.accuracy),
    Metric("balanced_accuracy", "classification", classification.balanced_accuracy),
    Metric("macro_f1", "classification", classification.macro_f1),
    Metric("nll", "classification", classification.nll, needs_probabilities=True, larger_is_better=False),
    Metric("brier", "classification", classification.brier, needs_probabilities=True, larger_is_better=False),
    Metric("ece", "classification", classification.ece, needs_probabilities=True, larger_is_better=False),
    Metric("mse", "regression", regression.mse, larger_is_better=False),
    Metric("mae", "regression", regression.mae, larger_is_better=False),
    Metric("pearson", "regression", regression.pearson),
    # Only sentiment on −3 … 3 has these, so they are asked for by name.
    Metric("acc2", "regression", regression.acc2, usual=False, one_target=True),
    Metric("acc2_nonzero", "regression", partial(regression.acc2, zeros="excluded"), usual=False, one_target=True),
    Metric("acc7", "regression", regression.acc7, usual=False, one_target=True),
):
    register_metric(_metric)


def find_metric(metric: str | Metric, task_kind: TaskKind | None = None, targets: int = 1) -> Metric:
    """A metric by name, or one of the user's own as it is; refused if it does not serve the task or so many targets.

    >>> find_metric("nll").larger_is_better
    False
    """
    if not isinstance(metric, Metric):
        metric = METRICS.find(metric)
    if task_kind is not None and metric.task != task_kind:
        names = ", ".join(one.name for one in METRICS.values() if one.task == task_kind)
        raise UnsupportedError(f"metric {metric.name!r} serves {metric.task}, not {task_kind}; for that: {names}")
    if metric.one_target and targets > 1:
        peers = [one for one in METRICS.values() if one.task == metric.task]
        single = ", ".join(one.name for one in peers if one.one_target)
        several = ", ".join(one.name for one in peers if not one.one_target)
        raise UnsupportedError(
            f"metric {metric.name!r} cannot judge {targets} targets: {single} judge one number a sample; for several "
            f"targets: {several}"
        )
    return metric


def evaluate(
    task_kind: TaskKind,
    y: Any,
    prediction: Any,
    probabilities: Any = None,
    metrics: Iterable[str | Metric] | None = None,
    classes: Any = None,
    *,
    weight: Any = None,
) -> dict[str, float]:
    """Measure predictions: metric name → value.

    y, prediction: labels `[n]` or numbers `[n]` or `[n, target]` · probabilities: `[n, class]`, whose columns are
    `classes` (0 … class−1 if not given) · metrics: names or `Metric`s; by default the usual ones of the task, of which
    those that need probabilities only if there are some · weight: `[n]`.

    >>> evaluate("regression", [1.0, 2.0, 4.0], [1.0, 2.0, 3.0], metrics=["mae", "acc7"])
    {'mae': 0.3333333333333333, 'acc7': 1.0}
    """
    if task_kind not in get_args(TaskKind):
        raise unknown_name("task", task_kind, get_args(TaskKind))
    if isinstance(metrics, str):
        metrics = [metrics]
    if metrics is None:
        usual = (metric for metric in METRICS.values() if metric.usual and metric.task == task_kind)
        asked = [metric for metric in usual if probabilities is not None or not metric.needs_probabilities]
    else:
        asked = [find_metric(metric, task_kind) for metric in metrics]
    return {metric.name: metric(y, prediction, probabilities, classes=classes, weight=weight) for metric in asked}
