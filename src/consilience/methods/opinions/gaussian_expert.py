"""The expert of a regression that also predicts how large its error will be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from consilience.bayes.gaussian_fusion import MAX_LOG_VARIANCE, split_gaussian
from consilience.core.batches import Batch
from consilience.methods import Prediction, Spec, Step, task_losses, weighted_mean
from consilience.methods.opinions.unimodal import Unimodal


class GaussianExpert(Unimodal):
    """An encoder with two linear heads: the numbers, and the log-variances of their errors.

    The numbers are trained as those of `Unimodal`, by the squared error. The variances are trained by the Gaussian
    likelihood of the errors, whose gradient reaches neither the encoder nor the numbers: they are as good as without.
    The output is a Gaussian opinion, `[batch, 2·target]`.
    """

    def __init__(self, spec: Spec, modality: str):
        super().__init__(spec, modality)
        self.spread = nn.Linear(self.encoder.width, spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """Encode the one modality, apply both heads."""
        prediction = super().forward(batch)
        assert prediction.joint is not None
        log_variances = self.spread(prediction.joint.detach()).clamp(-MAX_LOG_VARIANCE, MAX_LOG_VARIANCE)
        return replace(prediction, output=torch.cat([prediction.output, log_variances], dim=1))

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The squared error and the likelihood of the variances, on the samples that have the modality."""
        assert batch.y is not None
        there = batch.present_in(self.modality)
        spread = spread_losses(*split_gaussian(prediction.output), batch.y)
        return {
            "task": weighted_mean(self.validation_losses(prediction, batch) * there, batch.weight),
            "spread": weighted_mean(spread * there, batch.weight),
        }

    def validation_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """The squared error `[batch]`."""
        return task_losses(self.task, split_gaussian(prediction.output)[0], batch)


def spread_losses(numbers: Tensor, log_variances: Tensor, y: Tensor) -> Tensor:
    """−ln N(y; number, variance) without its constant, averaged over targets: `[..., target]` → `[...]`.

    The numbers get no gradient.

    >>> spread_losses(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([3.0])).item()
    2.0
    """
    squares = (y - numbers.detach()).square()
    return 0.5 * (log_variances + squares * torch.exp(-log_variances)).mean(dim=-1)


def expert_spread_losses(names: Sequence[str], prediction: Prediction, batch: Batch) -> dict[str, Tensor]:
    """The loss of every expert's variances, by modality, of a prediction with `extra["log_variances"]`."""
    assert batch.y is not None
    assert prediction.opinions is not None
    losses = spread_losses(prediction.opinions, prediction.extra["log_variances"], batch.y[:, None]) * batch.present
    return {f"{name} spread": weighted_mean(own, batch.weight) for name, own in zip(names, losses.T)}
