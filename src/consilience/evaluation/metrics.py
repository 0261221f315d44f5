"""Every metric by name: which task it serves, what it needs, which way is better; and `evaluate`, which computes them.

To add a metric, write its function in `classification`, `ranking_metrics` or `regression` and register it below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.registry import Registry
from consilience.core.settings import PositiveInt, checked
from consilience.core.targets import TaskKind
from consilience.evaluation import classification as c
from consilience.evaluation import ranking_metrics as k
from consilience.evaluation import regression as r


@dataclass(frozen=True)
class Metric:
    """A named measure of predictions.

    Attributes:
        name: The name that users give.
        task: "classification" or "regression".
        function: Called as `function(y, prediction, weight=…)`, or as `function(y, probabilities, classes=…,
            weight=…)` if it needs probabilities.
        needs_probabilities: Whether it reads probabilities instead of predictions.
        larger_is_better: Whether larger values are better.
        per_sample: Whether it is the mean of one value per sample, which `terms` then gives.
        usual: Whether `evaluate` computes it by default.
        one_target: Whether it accepts one number per sample only.
        title: Its name in tables and sentences; by default `name` with spaces.
        percent: Whether tables show it in per cent.
        terms: What the metric sums over samples: `terms(y, prediction)` or `terms(y, probabilities)`, `[n, *term]`.
            Without it and `resample`, a bootstrap calls `function` once for each resample, which is slower.
        combine: The metric from the weighted sums of its terms `[*resample, *term]`; None for their weighted mean.
        resample: For a metric that is no function of such sums, what `resampler` returns.
    """

    name: str
    task: TaskKind
    function: Callable[..., float] = field(repr=False, compare=False)
    needs_probabilities: bool = False
    larger_is_better: bool = True
    per_sample: bool = False
    usual: bool = True
    one_target: bool = False
    title: str = ""
    percent: bool = False
    terms: Callable[..., np.ndarray] | None = field(default=None, repr=False, compare=False)
    combine: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False, compare=False)
    resample: Callable[..., Callable[[np.ndarray], np.ndarray]] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.per_sample and self.terms is None:
            raise InputError(f"metric {self.name!r} is per_sample, so it needs terms, a function that returns them [n]")
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))

    def __call__(
        self, y: Any, prediction: Any = None, probabilities: Any = None, *, classes: Any = None, weight: Any = None
    ) -> float:
        """Return the metric of predictions or probabilities, whichever it needs."""
        if self.needs_probabilities:
            if probabilities is None:
                raise InputError(f"metric {self.name!r} needs probabilities [n, class], and none were given")
            return self.function(y, probabilities, classes=classes, weight=weight)
        if prediction is None:
            raise InputError(f"metric {self.name!r} needs predictions [n], and none were given")
        return self.function(y, prediction, weight=weight)

    @property
    def called(self) -> bool:
        """Whether a bootstrap calls `function` for every resample."""
        return self.terms is None and self.resample is None

    def resampler(self, y: Any, given: Any) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function that computes the metric for many weightings of the samples at once.

        Args:
            y: Targets `[n]` or `[n, target]`.
            given: Predictions, or probabilities `[n, class]` if the metric needs them.

        Returns:
            A function from weights `[resample, n]` (how often each sample was drawn) to values `[resample]`; nan where
            the metric does not exist.
        """
        if self.resample is not None:
            return self.resample(y, given)
        if self.terms is None:  # samples are repeated, since a user's function may ignore weights
            y, given = np.asarray(y), np.asarray(given)
            drawn = np.arange(len(y))
            return lambda weights: np.array(
                [self.function(y[rows], given[rows]) for rows in (np.repeat(drawn, row.astype(int)) for row in weights)]
            )
        terms = np.asarray(self.terms(y, given), dtype=np.float64)
        shape = terms.shape[1:]
        flat = terms.reshape(len(terms), -1)
        if self.combine is None:
            return lambda weights: (weights @ flat)[:, 0] / weights.sum(axis=1)
        return lambda weights: self.combine((weights @ flat).reshape(-1, *shape))  # type: ignore[misc]


_labels = partial(Metric, task="classification", percent=True)
_probabilities = partial(Metric, task="classification", needs_probabilities=True, larger_is_better=False)
_numbers = partial(Metric, task="regression")
# They make sense only for sentiment scores from −3 to 3, so they are not computed by default.
_sentiment = partial(Metric, task="regression", usual=False, one_target=True, percent=True)
_nonzero = partial(r.acc2, zeros="excluded")
_error: dict[str, Any] = {"larger_is_better": False, "per_sample": True}
_ranking = partial(Metric, task="classification", needs_probabilities=True, usual=False)


def _pinball(quantile: float) -> Metric:
    """The quantile loss; at the median it is half the absolute error."""
    return _numbers(
        f"pinball_{100 * quantile:.0f}",
        function=partial(r.pinball, quantile=quantile),
        terms=partial(r.quantile_loss, quantile=quantile),
        title=f"quantile loss at {100 * quantile:.0f} %",
        usual=False,
        **_error,
    )


METRICS: Registry[Metric] = Registry("metric", group="consilience.metrics", separator="_", alphabetical=False)


def register_metric(metric: Metric) -> Metric:
    """Register a metric under its name."""
    METRICS.add(metric.name, metric)
    return metric


for _metric in (
    _labels("accuracy", function=c.accuracy, terms=c.right_labels, per_sample=True),
    _labels("balanced_accuracy", function=c.balanced_accuracy, terms=c.class_terms, combine=c.mean_recall),
    _labels("macro_f1", function=c.macro_f1, title="macro F1", terms=c.class_terms, combine=c.mean_f1),
    _probabilities("nll", function=c.nll, title="negative log-likelihood", terms=c.negative_log, per_sample=True),
    _probabilities("brier", function=c.brier, title="Brier score", terms=c.squared_distance, per_sample=True),
    _probabilities(
        "ece", function=c.ece, title="calibration error", terms=c.calibration_terms, combine=c.calibration_error
    ),
    _probabilities(
        "brier_score_loss",
        function=c.brier_score_loss,
        title="Brier score (scikit-learn)",
        terms=c.scaled_distance,
        per_sample=True,
        usual=False,
    ),
    _ranking("auroc", function=k.auroc, title="AUROC", resample=k.resample_auroc),
    _ranking("average_precision", function=k.average_precision, resample=k.resample_average_precision),
    _numbers("mse", function=r.mse, title="mean squared error", terms=r.squared_error, **_error),
    _numbers("mae", function=r.mae, title="mean absolute error", terms=r.absolute_error, **_error),
    _numbers("pearson", function=r.pearson, title="Pearson correlation", terms=r.moments, combine=r.from_moments),
    _numbers("r2", function=r.r2, title="R²", terms=r.spread_terms, combine=r.explained_share, usual=False),
    _numbers(
        "mape",
        function=r.mape,
        title="mean absolute percentage error",
        terms=r.relative_error,
        percent=True,
        usual=False,
        **_error,
    ),
    _pinball(0.1),
    _pinball(0.9),
    _numbers(
        "concordance", function=k.concordance, title="concordance index", resample=k.resample_concordance, usual=False
    ),
    _sentiment("acc2", function=r.acc2, title="two-class accuracy", terms=r.same_sign, per_sample=True),
    _sentiment(
        "acc2_nonzero",
        function=_nonzero,
        title="two-class accuracy without zeros",
        terms=r.same_nonzero_sign,
        combine=r.share_of_counted,
    ),
    _sentiment("acc7", function=r.acc7, title="seven-class accuracy", terms=r.same_seventh, per_sample=True),
):
    register_metric(_metric)


# What metrics are called elsewhere, mostly in scikit-learn.
ALSO_CALLED = {
    "average_precision_score": "average_precision",
    "concordance_index": "concordance",
    "f1_macro": "macro_f1",
    "log_loss": "nll",
    "macro_recall": "balanced_accuracy",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_error": "mse",
    "r2_score": "r2",
    "recall_macro": "balanced_accuracy",
    "roc_auc": "auroc",
    "roc_auc_ovr": "auroc",
    "roc_auc_score": "auroc",
}


@checked
def find_metric(metric: str | Metric, task_kind: TaskKind | None = None, targets: PositiveInt = 1) -> Metric:
    """Return a metric by name; a `Metric` is returned as it is.

    Args:
        metric: A name in `METRICS`, or one that scikit-learn has for it (`ALSO_CALLED`), or a `Metric`.
        task_kind: The task it must serve, if any.
        targets: How many numbers per sample it must accept.

    Raises:
        UnknownNameError: If there is no metric of this name.
        UnsupportedError: If it does not serve the task, or not so many targets.

    Example:
        >>> find_metric("nll").larger_is_better
        False
    """
    if not isinstance(metric, Metric):
        name = metric if metric in METRICS else ALSO_CALLED.get(metric, metric)
        if name not in METRICS:  # those of the task first, of which one is suggested
            raise unknown_name("metric", name, sorted(METRICS, key=lambda known: METRICS[known].task != task_kind))
        metric = METRICS[name]
    if task_kind is not None and metric.task != task_kind:
        names = ", ".join(known.name for known in METRICS.values() if known.task == task_kind)
        raise UnsupportedError(f"metric {metric.name!r} serves {metric.task}, not {task_kind}; for that: {names}")
    if metric.one_target and targets > 1:
        peers = [known for known in METRICS.values() if known.task == metric.task]
        single = ", ".join(peer.name for peer in peers if peer.one_target)
        several = ", ".join(peer.name for peer in peers if not peer.one_target)
        raise UnsupportedError(
            f"metric {metric.name!r} cannot judge {targets} targets: {single} judge one number a sample; for several "
            f"targets: {several}"
        )
    return metric


@checked
def evaluate(
    task_kind: TaskKind,
    y: Any,
    prediction: Any,
    probabilities: Any = None,
    metrics: str | Iterable[str | Metric] | None = None,
    classes: Any = None,
    *,
    weight: Any = None,
) -> dict[str, float]:
    """Compute metrics of predictions.

    Args:
        task_kind: "classification" or "regression".
        y: Labels `[n]`, or numbers `[n]` or `[n, target]`.
        prediction: Of the same shape.
        probabilities: `[n, class]`, whose columns are `classes`.
        metrics: Names or `Metric`s; by default the usual ones of the task, without those that need probabilities if
            there are none.
        classes: The labels of the columns; 0 … class−1 by default.
        weight: Sample weights `[n]`.

    Returns:
        Metric name → value.

    Example:
        >>> evaluate("regression", [1.0, 2.0, 4.0], [1.0, 2.0, 3.0], metrics=["mae", "acc7"])
        {'mae': 0.3333333333333333, 'acc7': 1.0}
    """
    if isinstance(metrics, str):
        metrics = [metrics]
    if metrics is None:
        usual = (metric for metric in METRICS.values() if metric.usual and metric.task == task_kind)
        chosen = [metric for metric in usual if probabilities is not None or not metric.needs_probabilities]
    else:
        chosen = [find_metric(metric, task_kind) for metric in metrics]
    return {metric.name: metric(y, prediction, probabilities, classes=classes, weight=weight) for metric in chosen}
