"""`gradient-blend`: a head for every modality beside the joint one, each weighted by how well it generalises."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import Interval, PositiveInt, Rate
from consilience.data.folds import most_folds
from consilience.encoders import Encoded
from consilience.methods import JointMethod, Prediction, Spec, Step, expert_losses, register, task_losses, weighted_mean
from consilience.methods.fusion.concat import Concatenation
from consilience.methods.heads import expert_logits, linear_heads
from consilience.training import Trainer
from consilience.training.devices import resolve_device
from consilience.training.trainer import split_folds
from consilience.training.training_settings import resolve

HeldOut = Annotated[float, Interval(0, 0.5, above=True)]


@register(
    "gradient-blend",
    paper="Wang, Tran and Feiszli 2020, What Makes Training Multi-Modal Classification Networks Hard?",
    equation="proposition 1: w_k ∝ G_k / O_k²",
)
class GradientBlend(JointMethod):
    """Concatenation with a head for each modality beside the joint one; the losses are blended by G / O².

    Modalities overfit at different rates, so that one schedule suits none of them. The weights of the heads' losses are
    found before the training proper: each head is trained alone on a part of the training samples. G is what it gained
    on the held-out part, O by how much more it gained on the samples it learned from. The joint head alone decides at
    test time. This is the paper's offline form.

        w_k ∝ G_k / O_k²,  G = ℓ_held before − ℓ_held after,  O = (ℓ_held − ℓ_train after) − (ℓ_held − ℓ_train before)
        L   = Σ_k w_k ℓ(z_k, y)          k over the modalities and the joint head, Σ w = 1

    Overfitting below a hundredth of the gain counts as a hundredth of it, and no weight falls below a hundredth of the
    largest: both bounds are ours. In `pro:gradient-blend` the modalities' heads read the first pass, the joint head the
    last. Finding the weights costs (number of modalities + 1) × probe_epochs epochs and uses no validation sample.

    Args:
        width: Width of the joint representation.
        dropout: Dropout rate after the joint layer.
        probe_epochs: How long each head is trained alone to find its weight. None: a quarter of the epochs.
        held_out: The share of training samples held out to find the weights.
    """

    blend: Tensor

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 256,
        dropout: Rate = 0.1,
        probe_epochs: PositiveInt | None = None,
        held_out: HeldOut = 0.2,
    ):
        super().__init__(spec)
        self.held_out, self.probe_epochs = held_out, probe_epochs
        self.fusion = Concatenation.over(self.encoders, width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.heads = linear_heads(self.encoders, spec.task.outputs)
        heads = len(self.heads) + 1
        self.register_buffer("blend", torch.full((heads,), 1 / heads))  # modalities in order, then all together

    def opine(self, features: Mapping[str, Encoded]) -> Tensor:
        """The logits of each modality's head, for the loss alone: the joint head decides."""
        return expert_logits(self.heads, features)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The heads' losses, each times its weight."""
        losses = self.head_losses(prediction, batch)
        names = [*self.names, "task"]
        return {name: weight * loss for name, weight, loss in zip(names, self.blend, losses)}

    def head_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """Mean loss of every head, the joint one last: `[modality + 1]`."""
        assert prediction.opinions is not None
        own = expert_losses(self.task, prediction.opinions, batch) * batch.present
        joint = task_losses(self.task, prediction.output, batch)
        return torch.stack([weighted_mean(losses, batch.weight) for losses in (*own.T, joint)])

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each head alone to find the weights, then all of them together."""
        if len(self.heads) > 1:  # with one modality both heads are the same
            self.blend.copy_(self.find_blend(train, trainer))
        trainer.run(self, train, validation)

    def find_blend(self, train: Samples, trainer: Trainer) -> Tensor:
        """Weights `[modality + 1]` from trainings of each head alone, on the training samples only."""
        fold = split_folds(train, self.task, most_folds(train, max(2, round(1 / self.held_out))), trainer.seed)
        parts = train.select(np.flatnonzero(fold != 0)), train.select(np.flatnonzero(fold == 0))
        epochs = self.probe_epochs or max(1, resolve(trainer, len(parts[0])).epochs // 4)
        probe = replace(trainer, epochs=epochs, steps=None, refit_steps=None, patience=None, checkpoint=None, logs=[])
        before = [self._losses_on(part, probe) for part in parts]
        after = [before[0].clone(), before[1].clone()]
        for number in range(len(self.blend)):
            alone = copy.deepcopy(self)
            alone.blend.zero_()[number] = 1.0
            if probe.run(alone, parts[0]).interrupted:
                trainer.logs.append(probe.logs[-1])  # so that the training proper is skipped too
                return self.blend
            for which, part in enumerate(parts):
                after[which][number] = alone._losses_on(part, probe)[number]
        probe.forget()
        return blending_weights(*before, *after)

    @torch.no_grad()
    def _losses_on(self, samples: Samples, trainer: Trainer) -> Tensor:
        self.eval()
        device = resolve_device(trainer.device)
        self.to(device)
        total = torch.zeros(len(self.blend), dtype=torch.float64)
        weight = 0.0
        for batch in trainer.loader(samples, device).in_order(trainer.evaluation_batch):
            batch_weight = float(batch.weight.sum())
            total += batch_weight * self.head_losses(self(batch), batch).double().cpu()
            weight += batch_weight
        return total / max(weight, 1e-12)


def blending_weights(train_before: Tensor, held_before: Tensor, train_after: Tensor, held_after: Tensor) -> Tensor:
    """w ∝ G / O² from each head's losses `[head]` on training and held-out samples, before and after training it.

    Overfitting below a hundredth of the gain counts as a hundredth of it, since a head that does not overfit would
    otherwise outweigh all others without bound; no weight is below a hundredth of the largest, so that every head goes
    on learning. If no head gained, all weigh the same.

    >>> start = torch.tensor([2.0, 2.0])
    >>> blending_weights(start, start, torch.tensor([0.5, 1.0]), torch.tensor([1.0, 1.5])).tolist()
    [0.6666666865348816, 0.3333333432674408]
    """
    gain = (held_before - held_after).clamp(min=0)
    overfit = (held_after - train_after) - (held_before - train_before)
    raw = torch.where(gain > 0, gain / torch.maximum(overfit.abs(), 0.01 * gain).clamp(min=1e-12).square(), 0.0)
    raw = torch.maximum(raw, 0.01 * raw.max()) if raw.any() else torch.ones_like(raw)
    return (raw / raw.sum()).float()
