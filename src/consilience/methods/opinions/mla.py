"""`mla`: modalities learn in turns, with one head that all of them share and that does not forget the others."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import PositiveFloat, PositiveInt, Rate
from consilience.encoders.mlp import dense_block
from consilience.methods import Method, PerModality, Prediction, Spec, Step, encode, expert_losses, register
from consilience.methods.losses import weighted_mean
from consilience.methods.opinions.pdf import belief_weights
from consilience.training import Trainer
from consilience.training.optimizers import Phase
from consilience.training.training_settings import resolve


@register(
    "mla",
    paper="Zhang et al. 2024, Multimodal Representation Learning by Alternating Unimodal Adaptation",
    equation="z = Σ_m w_m z_m, w = softmax(−entropy of z_m); z_m = P f_m with one head P",
)
class Mla(Method):
    """Modalities are trained in turns, one for each batch, with a shared head; the most decided ones count more.

    No modality can suppress the learning of another, because only one learns at a time. The head P, which they share,
    is protected: its gradient is projected so that its outputs change little in the direction of the mean feature that
    the modalities before have had. At test time opinions are weighted by how decided they are.

        f_m = dropout(ReLU(LayerNorm(A_m h_m)))         z_m = P f_m
        z = Σ_{m∈S} w_m z_m,   w = softmax over S of −H(softmax z_m)
        L = ℓ(z_m, y), m in turn         ∇P ← ∇P · Q,   Q ← Q − k kᵀ / (memory + r̄ᵀ k),   k = Q r̄,   scaled to ‖Q‖ = √d

    r̄ is the mean feature of the previous batch, and d the width of the features. To use each sample as often as another
    method, N modalities are trained for N times as many steps, of which each trains one modality only. Two departures
    from public code, that of BalanceBenchmark: it computes Q with the features of the modality whose gradient it then
    projects, so that a modality is protected from itself, here it is those of the one before; and it scales Q to a norm
    of 1, which divides the projected gradient by √d. Steps cannot be recorded (`cuda_graphs`), because they differ.

    Args:
        width: Width of the features that the head reads.
        dropout: Dropout rate of these features.
        memory: How large a mean feature has to be for its direction to be protected; large values do not protect it.
    """

    tasks = ("classification",)
    by_turns = True
    turn: Tensor
    protected: Tensor

    def __init__(self, spec: Spec, *, width: PositiveInt = 64, dropout: Rate = 0.1, memory: PositiveFloat = 0.1):
        super().__init__(spec)
        self.memory = memory
        self.encoders = spec.build_encoders()
        self.project = PerModality(
            {name: dense_block(encoder.width, width, dropout=dropout) for name, encoder in self.encoders.items()}
        )
        self.head = nn.Linear(width, spec.task.outputs)
        self.register_buffer("turn", torch.tensor(-1))  # whose turn it is; −1: all learn together
        self.register_buffer("protected", torch.eye(width))

    def forward(self, batch: Batch) -> Prediction:
        """The opinions of all modalities, weighted; in training by turns that of one modality only."""
        turn = int(self.turn) if self.training else -1
        names = self.names if turn < 0 else (self.names[turn],)
        features = {name: encode(self.encoders[name], batch, name) for name in names}
        joined = torch.stack([self.project[name](one.pooled) for name, one in features.items()], dim=1)
        if turn < 0:
            opinions = self.head(joined)
            weights = decided_weights(opinions, batch.present)
            output = torch.einsum("bm,bmc->bc", weights.to(opinions.dtype), opinions)
            return Prediction(output, opinions=opinions, weights=weights, features=features)
        output = self._protected_head(joined[:, 0])
        there = batch.present_in(names[0])
        self._pass_on(joined[:, 0].detach(), there)
        return Prediction(output, features=features, extra={"turn": names[0]})

    def _protected_head(self, features: Tensor) -> Tensor:
        """The head's output, whose gradient to the head's weights is projected."""
        weight = self.head.weight
        fixed = weight.detach()
        return functional.linear(features, fixed + (weight - fixed) @ self.protected, self.head.bias)

    @torch.no_grad()
    def _pass_on(self, features: Tensor, there: Tensor) -> None:
        """Protect the mean feature of this batch from the next modality, and give it the turn."""
        mean = weighted_mean(features.float(), there[:, None].expand_as(features), dim=0)
        # What is computed of this step still refers to the matrix as it was.
        self.protected = protect(self.protected, mean.to(self.protected.dtype), self.memory)
        self.turn.copy_((self.turn + 1) % len(self.names))

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The loss of the modality whose turn it is, or those of all."""
        if "turn" in prediction.extra:
            own = expert_losses(self.task, prediction.output[:, None], batch)[:, 0]
            there = batch.present_in(prediction.extra["turn"])
            return {"experts": weighted_mean(own * there, batch.weight)}
        assert prediction.opinions is not None
        losses = expert_losses(self.task, prediction.opinions, batch) * batch.present
        return {"experts": weighted_mean(losses.sum(dim=1), batch.weight)}

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train by turns, for as many epochs as there are modalities in place of each one."""
        found, count = resolve(trainer, len(train)), len(self.names)
        longer = replace(
            trainer,
            epochs=count * found.epochs,
            steps=None,
            patience=None if found.patience is None else count * found.patience,
            least_steps=count * found.least_steps,
            worthwhile=found.worthwhile,
        )
        self.turn.fill_(0)
        longer.run(self, train, validation, [Phase("turns")])


def decided_weights(logits: Tensor, present: Tensor) -> Tensor:
    """softmax over what is present of the negative entropy: `[..., modality, class]` → `[..., modality]`.

    >>> decided_weights(torch.tensor([[[100.0, 0.0], [1.0, 1.0]]]), torch.ones(1, 2).bool())  # ln 2 apart
    tensor([[0.6667, 0.3333]])
    """
    log_p = functional.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    return belief_weights((log_p.exp() * log_p).sum(dim=-1), present)


def protect(matrix: Tensor, mean: Tensor, memory: float) -> Tensor:
    """Q − k kᵀ / (memory + r̄ᵀ k) with k = Q r̄, scaled so that its norm stays that of the identity: `[width, width]`.

    >>> protect(torch.eye(2), torch.tensor([3.0, 0.0]), 1.0)  # diag(1/10, 1), times √2 / √1.01
    tensor([[0.1407, 0.0000],
            [0.0000, 1.4072]])
    """
    moved = matrix @ mean
    left = matrix - torch.outer(moved, moved) / (memory + mean @ moved)
    return left * (math.sqrt(len(matrix)) / torch.linalg.matrix_norm(left))
