"""Accuracy, NLL and calibration error of probabilities that come batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.evaluation.classification import ReliabilityBins, nll, reliability_bins


class RunningScores:
    """`accuracy`, `nll` and `ece` of all batches together, in the memory of one batch.

    `samples` counts the samples so far; before the first, every score is nan.

    >>> scores = RunningScores()
    >>> scores.update([0, 1], [[0.9, 0.1], [0.9, 0.1]])
    >>> scores.update([1], [[0.25, 0.75]])
    >>> scores.samples, round(scores.accuracy, 4), round(scores.ece, 4)
    (3, 0.6667, 0.35)
    """

    def __init__(self, bins: int = 15):
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
