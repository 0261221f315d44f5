"""`majority`: the class shares of the training samples, whatever a sample looks like."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.methods import Prediction, Spec, register
from consilience.methods.baselines.joined_columns import Baseline
from consilience.training import Trainer
from consilience.training.whole_set import whole_batches


@register("majority", equation="p(c) = (n_c + 1/C) / (n + 1)")
class Majority(Baseline):
    """The shares of the classes in training, so the most frequent class; for a regression the mean of the targets.

    It reads no modality. What a method adds to it is what the modalities tell.

        p(c) = (n_c + 1/C) / (n + 1)         for n training samples, n_c of them in class c, of C classes
    """

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.output = nn.Parameter(torch.zeros(spec.task.outputs))

    def forward(self, batch: Batch) -> Prediction:
        """The same output for every sample."""
        return Prediction(self.output.repeat(batch.n, 1))

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Count the classes, or take the mean."""
        parts = whole_batches(train, trainer)
        y = torch.cat([part.y for part in parts if part.y is not None])
        weight = torch.cat([part.weight for part in parts]).double()
        with torch.no_grad():
            self.output.copy_(self._shares(y, weight).log() if self.task.classification else _mean(y, weight))

    def _shares(self, y: Tensor, weight: Tensor) -> Tensor:
        """The shares of the classes; one sample, spread over all of them, keeps every share above 0."""
        weight = weight * (weight > 0).sum() / weight.sum()
        counts = torch.zeros(self.task.outputs, dtype=torch.float64).index_add(0, y, weight)
        return (counts + 1 / self.task.outputs) / (weight.sum() + 1)


def _mean(y: Tensor, weight: Tensor) -> Tensor:
    return (weight[:, None] * y.double()).sum(dim=0) / weight.sum()
