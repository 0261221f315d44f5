"""How good predicted labels and probabilities are: accuracy, balanced accuracy, macro F1, NLL, Brier score, ECE.

scikit-learn has most of these, and the tests compare with it. The code is ours because each metric also gives the terms
that it sums over samples, from which a bootstrap recomputes it for all resamples in one matrix product (`Metric`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.settings import checked
from consilience.evaluation.metric_inputs import average, read_labels, read_probabilities, read_weight

BINS = 15  # of a reliability diagram and of the calibration error


@checked
def accuracy(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The share of labels `[n]` that are right: range 0 … 1, larger is better.

    >>> accuracy(["cat", "dog", "dog", "cat"], ["cat", "dog", "cat", "cat"])
    0.75
    """
    return average(right_labels(y, prediction), weight)


@checked
def balanced_accuracy(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean recall over the classes that occur in y, so that a rare class counts as much as a common one.

    Unlike scikit-learn's, it gives no warning for a class that is predicted but does not occur.

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    return float(mean_recall(_count_classes(y, prediction, weight)))


@checked
def macro_f1(y: Any, prediction: Any, *, weight: Any = None) -> float:
    """The mean over classes of 2·right / (true + predicted): range 0 … 1, larger is better.

    The classes are those that occur in y or in the prediction with a weight above 0; scikit-learn also counts those
    of weight 0. A class that is never predicted right scores 0.

    >>> round(macro_f1([0, 0, 1, 1], [0, 1, 1, 1]), 4)
    0.7333
    """
    return float(mean_f1(_count_classes(y, prediction, weight)))


@checked
def nll(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The mean negative logarithm of the true class's probability, in nats: smaller is better.

    y: `[n]` columns 0 … class−1, or any labels if `classes` names the columns · probabilities: `[n, class]`. A
    probability below 2.2e-16 (the rounding error of float64) counts as that, which costs 36 nats.

    >>> round(nll(["b", "a"], [[0.5, 0.5], [0.25, 0.75]], classes=["a", "b"]), 4)
    1.0397
    """
    return average(negative_log(y, probabilities, classes), weight)


@checked
def brier(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The mean of Σ_k (p_k − 1[y = k])², summed over all classes: range 0 … 2, smaller is better.

    This is Brier's own score; for two classes it is twice the one-column form, which `brier_score_loss` returns.

    >>> brier([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.25
    """
    return average(squared_distance(y, probabilities, classes), weight)


@checked
def brier_score_loss(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None) -> float:
    """The Brier score as scikit-learn defines it: half of `brier` for two classes, the same for more.

    >>> brier_score_loss([0, 1], [[1.0, 0.0], [0.5, 0.5]])
    0.125
    """
    return average(scaled_distance(y, probabilities, classes), weight)


@checked
def ece(y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None, bins: int = BINS) -> float:
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

    Attributes:
        edges: Of confidence, `[bin + 1]`.
        share: Of the samples' weight, `[bin]`.
        confidence: Its mean in each bin `[bin]`, nan in an empty bin.
        accuracy: Its mean in each bin `[bin]`, nan in an empty bin.
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


@checked
def reliability_bins(
    y: Any, probabilities: Any, *, classes: Any = None, weight: Any = None, bins: int = BINS
) -> ReliabilityBins:
    """Confidence and accuracy of the most probable class, in equal-width bins; a bin contains its upper edge.

    >>> reliability_bins([0, 1], [[0.9, 0.1], [0.3, 0.7]], bins=2).accuracy
    array([nan,  1.])
    """
    if bins < 1:
        raise InputError(f"a reliability diagram needs at least one bin, got bins={bins}")
    place, confidence, right = _confidence_bins(y, probabilities, classes, bins)
    each = read_weight(weight, len(place))
    total = np.bincount(place, each, minlength=bins)

    def mean(values: np.ndarray) -> np.ndarray:
        sums = np.bincount(place, each * values, minlength=bins)
        return np.divide(sums, total, out=np.full(bins, np.nan), where=total > 0)

    return ReliabilityBins(np.linspace(0.0, 1.0, bins + 1), total / total.sum(), mean(confidence), mean(right))


class RunningScores:
    """`accuracy`, `nll` and `ece` of all batches together, in the memory of one batch.

    `samples` counts the samples so far; before the first, every score is nan.

    >>> scores = RunningScores()
    >>> scores.update([0, 1], [[0.9, 0.1], [0.9, 0.1]])
    >>> scores.update([1], [[0.25, 0.75]])
    >>> scores.samples, round(scores.accuracy, 4), round(scores.ece, 4)
    (3, 0.6667, 0.35)
    """

    def __init__(self, bins: int = BINS):
        self.samples = 0
        self._edges = np.linspace(0.0, 1.0, bins + 1)
        self._nats = 0.0
        self._count, self._confidence, self._right = np.zeros((3, bins))

    def update(self, y: Any, probabilities: Any) -> None:
        """Add a batch: y `[row]` columns 0 … class−1, probabilities `[row, class]`."""
        rows = len(y)
        if not rows:
            return
        found = reliability_bins(y, probabilities, bins=len(self._count))
        count = rows * found.share
        self.samples += rows
        self._nats += rows * nll(y, probabilities)
        self._count += count
        self._confidence += count * np.nan_to_num(found.confidence)
        self._right += count * np.nan_to_num(found.accuracy)

    @property
    def accuracy(self) -> float:
        """The share of samples whose most probable class is the true one."""
        return float(self._right.sum() / self.samples) if self.samples else float("nan")

    @property
    def nll(self) -> float:
        """The mean negative logarithm of the true class's probability, in nats."""
        return self._nats / self.samples if self.samples else float("nan")

    @property
    def ece(self) -> float:
        """The expected calibration error."""
        return self.bins.error if self.samples else float("nan")

    @property
    def bins(self) -> ReliabilityBins:
        """The reliability diagram in numbers."""

        def mean(sums: np.ndarray) -> np.ndarray:
            return np.divide(sums, self._count, out=np.full(len(sums), np.nan), where=self._count > 0)

        share = self._count / max(self.samples, 1)
        return ReliabilityBins(self._edges, share, mean(self._confidence), mean(self._right))


def right_labels(y: Any, prediction: Any) -> np.ndarray:
    """Whether each label is right `[n]`: the terms of `accuracy`."""
    true, predicted = read_labels(y, prediction)
    return true == predicted


def negative_log(y: Any, probabilities: Any, classes: Any = None) -> np.ndarray:
    """−ln p of each true class `[n]`: the terms of `nll`."""
    column, table = read_probabilities(y, probabilities, classes)
    return -np.log(table[np.arange(len(column)), column].clip(np.finfo(np.float64).eps, 1.0))


def squared_distance(y: Any, probabilities: Any, classes: Any = None) -> np.ndarray:
    """Σ_k (p_k − 1[y = k])² of each sample `[n]`: the terms of `brier`."""
    column, table = read_probabilities(y, probabilities, classes)
    truth = np.zeros_like(table)
    truth[np.arange(len(column)), column] = 1.0
    return ((table - truth) ** 2).sum(axis=1)


def scaled_distance(y: Any, probabilities: Any, classes: Any = None) -> np.ndarray:
    """`squared_distance`, halved for two classes, `[n]`: the terms of `brier_score_loss`."""
    distance = squared_distance(y, probabilities, classes)
    return distance / 2 if np.shape(probabilities)[1] == 2 else distance


def calibration_terms(y: Any, probabilities: Any) -> np.ndarray:
    """`[n, bin + 1]`: right − confidence in the sample's bin, and 1, which sums to the number of samples."""
    place, confidence, right = _confidence_bins(y, probabilities)
    terms = np.zeros((len(place), BINS + 1))
    terms[np.arange(len(place)), place] = right - confidence
    terms[:, -1] = 1.0
    return terms


def calibration_error(sums: np.ndarray) -> np.ndarray:
    """The calibration error from the sums of `calibration_terms`."""
    return np.abs(sums[..., :-1]).sum(axis=-1) / sums[..., -1]


def class_terms(y: Any, prediction: Any) -> np.ndarray:
    """`[n, 3, class]`: whether a sample is rightly predicted as, truly is, and is predicted as each class."""
    true, predicted = read_labels(y, prediction)
    classes = np.unique(np.concatenate([true, predicted]))
    is_true, is_predicted = true[:, None] == classes, predicted[:, None] == classes
    return np.stack([is_true & is_predicted, is_true, is_predicted], axis=1)


def mean_recall(counts: np.ndarray) -> np.ndarray:
    """The balanced accuracy from the sums of `class_terms`, `[..., 3, class]`."""
    return _mean_over_classes(counts[..., 0, :], counts[..., 1, :])


def mean_f1(counts: np.ndarray) -> np.ndarray:
    """Macro F1 from the sums of `class_terms`, `[..., 3, class]`."""
    return _mean_over_classes(2 * counts[..., 0, :], counts[..., 1, :] + counts[..., 2, :])


def _confidence_bins(
    y: Any, probabilities: Any, classes: Any = None, bins: int = BINS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each sample's bin, its confidence, and whether its most probable class is right: `[n]` each."""
    column, table = read_probabilities(y, probabilities, classes)
    confidence, right = table.max(axis=1).clip(max=1.0), table.argmax(axis=1) == column
    return np.searchsorted(np.linspace(0.0, 1.0, bins + 1), confidence, side="left") - 1, confidence, right


def _count_classes(y: Any, prediction: Any, weight: Any) -> np.ndarray:
    """The weighted sums of `class_terms`, `[3, class]`, without an array over samples × classes."""
    true, predicted = read_labels(y, prediction)
    each = read_weight(weight, len(true))
    classes, code = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    is_true, is_predicted = code[: len(true)], code[len(true) :]
    right = np.where(is_true == is_predicted, each, 0.0)
    counted = ((is_true, right), (is_true, each), (is_predicted, each))
    return np.stack([np.bincount(place, weights, minlength=len(classes)) for place, weights in counted])


def _mean_over_classes(share: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The mean of share / of over the classes for which `of` is above 0: `[..., class]` → `[...]`."""
    occurs = of > 0
    return np.divide(share, of, out=np.zeros_like(of), where=occurs).sum(axis=-1) / occurs.sum(axis=-1)
