"""Gradient blending: heads for every modality and for all together, each weighted by how much of what it learns lasts.

Wang, Tran and Feiszli 2020. Modalities overfit at different rates, so that one schedule suits none of them. Each head
is trained alone for a while; what it gains on held-out samples (G) against what it overfits (O) gives its weight in
the joint training: w ∝ G / O², the blend with the best ratio of overfitting to generalisation.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import whole_number
from consilience.encoders import Encoded
from consilience.methods import (
    JointMethod,
    PerModality,
    Prediction,
    Spec,
    Step,
    expert_losses,
    register,
    task_losses,
    weighted_mean,
)
from consilience.methods.fusion.concat import Concatenation
from consilience.training import Trainer
from consilience.training.devices import resolve_device
from consilience.training.trainer import split_folds


@register(
    "gradient-blend",
    paper="Wang, Tran and Feiszli 2020, What Makes Training Multi-Modal Classification Networks Hard?",
    equation="proposition 1",
)
class GradientBlend(JointMethod):
    """Concatenation with a head for each modality beside the joint one; the losses are blended by G / O².

    width: of the joint representation. probe_epochs: how long each head is trained alone to find its weight, by
    default a quarter of the epochs. held_out: the share of training samples that judges it. Finding the weights
    costs (number of modalities + 1) × probe_epochs epochs.
    """

    blend: Tensor

    def __init__(
        self,
        spec: Spec,
        *,
        width: int = 256,
        dropout: float = 0.1,
        probe_epochs: int | None = None,
        held_out: float = 0.2,
    ):
        super().__init__(spec)
        if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 < held_out <= 0.5:
            raise InputError(f"held_out must be a share > 0 and ≤ 0.5, got {held_out!r}")
        self.held_out = held_out
        self.probe_epochs = None if probe_epochs is None else whole_number("probe_epochs", probe_epochs)
        self.fusion = Concatenation(sum(encoder.width for encoder in self.encoders.values()), width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.heads = PerModality(
            {name: nn.Linear(encoder.width, spec.task.outputs) for name, encoder in self.encoders.items()}
        )
        heads = len(self.heads) + 1
        self.register_buffer("blend", torch.full((heads,), 1 / heads))  # modalities in order, then all together

    def opine(self, features: Mapping[str, Encoded]) -> Tensor:
        """What each modality's head says, for the loss alone: the joint head decides."""
        return torch.stack([head(features[name].pooled) for name, head in self.heads.items()], dim=1)

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
        return torch.stack([weighted_mean(one, batch.weight) for one in (*own.T, joint)])

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each head alone to find the weights, then all of them together."""
        if len(self.heads) > 1:  # with one modality both heads say the same
            self.blend.copy_(self.find_blend(train, trainer))
        trainer.run(self, train, validation)

    def find_blend(self, train: Samples, trainer: Trainer) -> Tensor:
        """Weights `[modality + 1]` from trainings of each head alone, on the training samples only."""
        fold = split_folds(train, self.task, max(2, round(1 / self.held_out)), trainer.seed)
        parts = train.select(np.flatnonzero(fold != 0)), train.select(np.flatnonzero(fold == 0))
        probe = replace(
            trainer, epochs=self.probe_epochs or max(1, trainer.epochs // 4), patience=None, checkpoint=None, logs=[]
        )
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
            here = float(batch.weight.sum())
            total += here * self.head_losses(self(batch), batch).double().cpu()
            weight += here
        return total / max(weight, 1e-12)


def blending_weights(train_before: Tensor, held_before: Tensor, train_after: Tensor, held_after: Tensor) -> Tensor:
    """w ∝ G / O² from each head's losses `[head]` on training and held-out samples, before and after training it.

    G, what it gained on held-out samples; O, by how much more it gained on those it learned from. Overfitting below a
    hundredth of the gain counts as a hundredth of it, since a head that happens not to overfit would otherwise
    outweigh all others without bound; no weight is below a hundredth of the largest, so that every head goes on
    learning. If none gained, all weigh the same.

    >>> start = torch.tensor([2.0, 2.0])
    >>> blending_weights(start, start, torch.tensor([0.5, 1.0]), torch.tensor([1.0, 1.5])).tolist()
    [0.6666666865348816, 0.3333333432674408]
    """
    gain = (held_before - held_after).clamp(min=0)
    overfit = (held_after - train_after) - (held_before - train_before)
    raw = torch.where(gain > 0, gain / torch.maximum(overfit.abs(), 0.01 * gain).clamp(min=1e-12).square(), 0.0)
    raw = torch.maximum(raw, 0.01 * raw.max()) if raw.any() else torch.ones_like(raw)
    return (raw / raw.sum()).float()
