"""Which classes are taken for which: the confusion matrix, and recall and precision of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.settings import checked
from consilience.evaluation.metric_inputs import as_array, read_labels, read_weight

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class ConfusionMatrix:
    """How many samples of each class are predicted as each class.

    Attributes:
        classes: The labels `[class]`.
        counts: Samples, or their weight, `[true class, predicted class]`.
    """

    classes: np.ndarray
    counts: np.ndarray

    @property
    def recall(self) -> np.ndarray:
        """The share of each class that is predicted right `[class]`; nan for a class without samples."""
        return _share(self.counts, self.counts.sum(axis=1))

    @property
    def precision(self) -> np.ndarray:
        """The share of the predictions of each class that is right `[class]`; nan for one that is never predicted."""
        return _share(self.counts, self.counts.sum(axis=0))

    def table(self) -> polars.DataFrame:
        """Return one row per class: `class`, `samples`, `recall`, `precision`, `confused_with` (most often), `share`.

        `share` is that of the class's samples that are taken for `confused_with`; null where all are right.
        """
        import polars

        wrong = self.counts * (1 - np.eye(len(self.counts)))
        most, samples = wrong.argmax(axis=1), self.counts.sum(axis=1)
        taken = [amount if amount else None for amount in wrong.max(axis=1).tolist()]
        names = self.classes.tolist()
        return polars.DataFrame(
            {
                "class": names,
                "samples": samples,
                "recall": self.recall,
                "precision": self.precision,
                "confused_with": [names[other] if amount else None for other, amount in zip(most, taken)],
                "share": [amount / total if amount else None for amount, total in zip(taken, samples.tolist())],
            },
            nan_to_null=True,
        )


@checked
def confusion_matrix(y: Any, prediction: Any, *, classes: Any = None, weight: Any = None) -> ConfusionMatrix:
    """Count how many samples of each class are predicted as each class.

    Args:
        y: True labels `[n]`.
        prediction: Predicted labels `[n]`.
        classes: The labels in order, which must hold all that occur; by default those that occur, sorted.
        weight: Sample weights `[n]`.

    Returns:
        The matrix, with recall and precision of each class.

    Example:
        >>> found = confusion_matrix(["cat", "cat", "dog"], ["cat", "dog", "dog"])
        >>> found.counts.tolist(), found.recall.tolist()
        ([[1.0, 1.0], [0.0, 1.0]], [0.5, 1.0])
    """
    true, predicted = read_labels(y, prediction)
    names = np.unique(np.concatenate([true, predicted])) if classes is None else as_array(classes)
    place = {name: number for number, name in enumerate(names.tolist())}
    if len(place) < len(names):
        raise InputError(f"confusion_matrix: classes must be different labels, got {names.tolist()}")
    if absent := sorted({*true.tolist(), *predicted.tolist()} - place.keys(), key=str):
        raise InputError(f"confusion_matrix: label {absent[0]!r} is not among the classes {names.tolist()}")
    rows, columns = (np.array([place[label] for label in labels.tolist()]) for labels in (true, predicted))
    counts = np.bincount(rows * len(names) + columns, read_weight(weight, len(true)), minlength=len(names) ** 2)
    return ConfusionMatrix(names, counts.reshape(len(names), -1))


def _share(counts: np.ndarray, of: np.ndarray) -> np.ndarray:
    right = np.diagonal(counts)
    return np.divide(right, of, out=np.full(len(right), np.nan), where=of > 0)
