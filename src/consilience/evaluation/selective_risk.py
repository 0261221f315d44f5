"""Decide only where it is safe: the risk at every share of decisions, its area, and a threshold with a stated risk."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from consilience.core.errors import InputError
from consilience.core.settings import Share, check_value
from consilience.evaluation.metric_inputs import as_array, read_probabilities, read_weight

# Sequences of tests, each begun with twice the samples of the one before; see `risk_threshold`.
_MOST_STARTS = 5


class RiskCurve(NamedTuple):
    """The share of samples that are decided, and the share of errors among them, `[step]` each; most certain first."""

    decided: np.ndarray
    risk: np.ndarray


def selective_risk_curve(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> RiskCurve:
    """Return the error rate among the most certain samples, for every number of them.

    Samples of equal certainty are decided together.

    Args:
        y: Labels `[n]`.
        probabilities: `[n, class]`.
        classes: The labels of the columns; 0 … class−1 by default.
        weight: Sample weights `[n]`.

    Example:
        >>> curve = selective_risk_curve([0, 0, 1], [[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
        >>> curve.risk.round(2).tolist()
        [0.0, 0.0, 0.33]
    """
    top, wrong, each = _certainty(y, probabilities, classes, weight)
    last = np.flatnonzero(np.append(top[1:] != top[:-1], True))
    total, errors = np.cumsum(each)[last], np.cumsum(each * wrong)[last]
    kept = total > 0
    return RiskCurve(total[kept] / each.sum(), errors[kept] / total[kept])


def aurc(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The area under the risk curve: the mean over samples of the error rate among those at least as certain.

    Range 0 … 1, smaller is better; a model that ranks at random has its error rate (Geifman, Uziel and El-Yaniv,
    Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, 2019).

    >>> round(aurc([0, 0, 1], [[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), 4)
    0.1111
    """
    curve = selective_risk_curve(y, probabilities, classes=classes, weight=weight)
    return float(np.diff(curve.decided, prepend=0.0) @ curve.risk)


def risk_threshold(certainty: Any, right: Any, risk: float, confidence: float = 0.95) -> float:
    """Return the lowest certainty at which decisions are made, so that their error rate is at most `risk`.

    With probability `confidence` over the draw of the calibration samples, at most the share `risk` of the decided
    new samples is wrong, if calibration samples and new samples are independent draws from one distribution.

    Thresholds are tested from strict to lenient with exact binomial tests of "the risk is larger", up to the first that
    is not rejected (fixed sequence testing, as in Angelopoulos, Bates, Candès, Jordan and Lei, Learn then Test, 2021).
    One early error would end a sequence, so several are started, with twice the samples each, and share the level.

    Args:
        certainty: Of calibration samples `[n]`, such as the largest probability.
        right: Whether each is decided right `[n]`.
        risk: Above 0 and below 1.
        confidence: Above 0 and below 1.

    Returns:
        The threshold; infinity if the risk cannot be guaranteed at any.

    Raises:
        InputError: If there are fewer than `least_accepted(risk, confidence)` samples: not even without any error
            would the risk be guaranteed.

    Example:
        >>> certainty = np.linspace(1.0, 0.0, 1000)
        >>> round(risk_threshold(certainty, certainty > 0.5, risk=0.02), 2)
        0.5
    """
    from scipy.stats import binom

    least = least_accepted(risk, confidence)
    certainty, right = as_array(certainty).astype(np.float64), as_array(right).astype(bool)
    n = len(certainty)
    if n < least:
        raise InputError(f"there are {n} calibration samples, too few: at least {least} are needed")
    order = np.argsort(-certainty, kind="stable")
    sorted_certainty, wrong = certainty[order], np.cumsum(~right[order])
    # A threshold accepts all samples of equal certainty.
    last = np.flatnonzero(np.append(sorted_certainty[1:] != sorted_certainty[:-1], True))
    accepted = last + 1
    p_value = binom.cdf(wrong[last], accepted, risk)
    level = 1 - confidence
    starts = max(
        count
        for count in range(1, _MOST_STARTS + 1)
        if count == 1 or _least(risk, level / count) * 2 ** (count - 1) <= n
    )
    best = -1
    for number in range(starts):
        begin = int(np.searchsorted(accepted, _least(risk, level / starts) * 2**number))
        passed = p_value[begin:] <= level / starts
        best = max(
            best, begin - 1 + (len(passed) if passed.all() else int(passed.argmin())) if passed[:1].any() else -1
        )
    return float(sorted_certainty[last[best]]) if best >= 0 else math.inf


def least_accepted(risk: float, confidence: float = 0.95) -> int:
    """Return how many samples without any error guarantee a risk: ln(1 − confidence) / ln(1 − risk), rounded up.

    >>> least_accepted(0.02), least_accepted(0.1)
    (149, 29)
    """
    risk, confidence = check_value("risk", risk, Share), check_value("confidence", confidence, Share)
    return _least(risk, 1 - confidence)


def _least(risk: float, level: float) -> int:
    return math.ceil(round(math.log(level) / math.log1p(-risk), 9))


def _certainty(y: Any, probabilities: Any, classes: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest probability, whether it is wrong, and the weight of each sample, the most certain first."""
    column, table = read_probabilities(y, probabilities, classes)
    top, wrong = table.max(axis=1), table.argmax(axis=1) != column
    order = np.argsort(-top, kind="stable")
    return top[order], wrong[order].astype(np.float64), read_weight(weight, len(top))[order]
