"""How good labels and probabilities are: accuracy, balanced accuracy, macro F1, NLL, Brier score, calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.evaluation.metric_inputs import average, read_labels, read_probabilities, read_weight


def accuracy(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The share of labels that are right. y, prediction: `[n]`; range 0 … 1, larger is better.

    >>> accuracy(["cat", "dog", "dog", "cat"], ["cat", "dog", "cat", "cat"])
    0.75
    """
    true, predicted = read_labels(y, prediction)
    return average(true == predicted, weight)


def balanced_accuracy(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean recall over the classes that occur in y, so that a rare class counts as much as a common one.

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    right, true, _ = _counts(y, prediction, weight)
    occurs = true > 0
    return float(np.mean(right[occurs] / true[occurs]))


def macro_f1(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean over classes of 2·right / (true + predicted): range 0 … 1, larger is better.

    The classes are those that occur in y or in the prediction with any weight. One that is never predicted right
    scores 0.

    >>> round(macro_f1([0, 0, 1, 1], [0, 1, 1, 1]), 4)
    0.7333
    """
    right, true, predicted = _counts(y, prediction, weight)
    occurs = (true + predicted) > 0
    return float(np.mean(2 * right[occurs] / (true + predicted)[occurs]))


def nll(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The mean negative logarithm of the true class's probability, in nats; smaller is better.

    y: `[n]` columns 0 … class−1, or any labels if `classes` names the columns · probabilities: `[n, class]`.
    A probability below the rounding error of a 64-bit number (2.2e-16) counts as that, so that one sample that was
    ruled out costs 36 nats and not infinitely many.

    >>> round(nll(["b", "a"], [[0.5, 0.5], [0.25, 0.75]], classes=["a", "b"]), 4)
    1.0397
    """
    column, table = read_probabilities(y, probabilities, classes)
    own = table[np.arange(len(column)), column].clip(np.finfo(np.float64).eps, 1.0)
    return average(-np.log(own), weight)


def brier(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The mean of Σ_k (p_k − 1[y = k])², summed over all classes: range 0 … 2, smaller is better.

    This is Brier's own score; for two classes it is twice the one-column form.

    >>> brier([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.25
    """
    column, table = read_probabilities(y, probabilities, classes)
    truth = np.zeros_like(table)
    truth[np.arange(len(column)), column] = 1.0
    return average(((table - truth) ** 2).sum(axis=1), weight)


def ece(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None, bins: int = 15) -> float:
    """The expected calibration error: Σ_bin share · |accuracy − confidence|; range 0 … 1, smaller is better.

    Confidence is the largest probability of a sample, put into equal-width bins (Guo, Pleiss, Sun and Weinberger,
    On Calibration of Modern Neural Networks, 2017).

    >>> round(ece([0, 1], [[0.9, 0.1], [0.9, 0.1]]), 4)
    0.4
    """
    return reliability_bins(y, probabilities, classes=classes, weight=weight, bins=bins).error


@dataclass(frozen=True)
class ReliabilityBins:
    """A reliability diagram in numbers.

    edges: `[bin + 1]` of confidence · share: `[bin]` of the samples' weight · confidence, accuracy: `[bin]` means, nan
    in an empty bin.
    """

    edges: np.ndarray
    share: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: Σ_bin share · |accuracy − confidence|."""
        filled = self.share > 0
        return float(self.share[filled] @ np.abs(self.accuracy - self.confidence)[filled])


def reliability_bins(
    y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None, bins: int = 15
) -> ReliabilityBins:
    """Confidence and accuracy of the most probable class, in equal-width bins; a bin contains its upper edge.

    >>> reliability_bins([0, 1], [[0.9, 0.1], [0.3, 0.7]], bins=2).accuracy
    array([nan,  1.])
    """
    if bins < 1:
        raise InputError(f"a reliability diagram needs at least one bin, got bins={bins}")
    column, table = read_probabilities(y, probabilities, classes)
    each = read_weight(weight, len(column))
    edges = np.linspace(0.0, 1.0, bins + 1)
    confidence, right = table.max(axis=1).clip(max=1.0), table.argmax(axis=1) == column
    place = np.searchsorted(edges, confidence, side="left") - 1
    total = np.bincount(place, each, minlength=bins)

    def mean(values: np.ndarray) -> np.ndarray:
        sums = np.bincount(place, each * values, minlength=bins)
        return np.divide(sums, total, out=np.full(bins, np.nan), where=total > 0)

    return ReliabilityBins(edges, total / total.sum(), mean(confidence), mean(right))


def _counts(y: Any, prediction: Any, weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weight of each class among the samples it was rightly predicted for, is true for, was predicted for."""
    true, predicted = read_labels(y, prediction)
    each = read_weight(weight, len(true))
    classes, code = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    true_code, predicted_code = code[: len(true)], code[len(true) :]
    agrees = true_code == predicted_code
    return (
        np.bincount(true_code[agrees], each[agrees], minlength=len(classes)),
        np.bincount(true_code, each, minlength=len(classes)),
        np.bincount(predicted_code, each, minlength=len(classes)),
    )
