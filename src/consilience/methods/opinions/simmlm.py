"""`simmlm`: experts joined by a gate over what is present; a loss wants more modalities to be no worse than fewer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.encoders import Encoded
from consilience.methods import ExpertMethod, Prediction, Spec, Step, encode, register, task_losses, weighted_mean
from consilience.methods.heads import expert_logits, total_width
from consilience.methods.opinions.pdf import belief_weights


@register(
    "simmlm",
    paper="Li, Chen and Han 2025, SimMLM: A Simple Framework for Multi-modal Learning with Missing Modality",
    equation="z = Σ_{m∈S} w_m z_m, w = softmax over S of G(h); L_rank = max(0, ℓ(z_S) − ℓ(z_T)), T ⊂ S",
)
class Simmlm(ExpertMethod):
    """Experts weighted by a gate that sees all features, with a loss on samples that fewer modalities predict better.

    The gate gives one score to each modality; its weights are a softmax over the present ones. In training every sample
    is also predicted from some of its modalities T, drawn at random: at least one, and not all. Both predictions are
    trained, and where the one from fewer modalities is better, the difference is a loss (More vs. Fewer). A sample with
    one modality has no such subset.

        z_S = Σ_{m∈S} w_m z_m,   w = softmax over S of G([h_1, …, h_M]),   h_m = 0 for m ∉ S
        L = ½ (ℓ(z_S, y) + ℓ(z_T, y)) + ranking · max(0, ℓ(z_S, y) − ℓ(z_T, y)) + expert_loss · Σ_m ℓ(z_m, y)

    Public code trains each expert alone first, and then all together; here the experts' own losses take the
    place of the first training. Its gate is a convolutional network on the raw images, and weights every class
    separately; ours reads the encoders' features and gives one weight for each modality.

    Args:
        ranking: Weight of the ranking loss.
        gate_width: Width of the gate's hidden layer.
        expert_loss: Weight of the experts' own losses.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        ranking: NonNegativeFloat = 1.0,
        gate_width: PositiveInt = 64,
        expert_loss: NonNegativeFloat = 1.0,
    ):
        super().__init__(spec, expert_loss=expert_loss)
        self.ranking = ranking
        self.gate = nn.Sequential(
            nn.Linear(total_width(self.encoders), gate_width), nn.ReLU(), nn.Linear(gate_width, len(self.encoders))
        )

    def forward(self, batch: Batch) -> Prediction:
        """Compute the experts' opinions, and weight them by the gate."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        opinions = expert_logits(self.heads, features)
        output, weights = self.mixture(features, opinions, batch.present)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def mixture(self, features: Mapping[str, Encoded], opinions: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The output from the modalities that are present `[batch, modality]`, and their weights."""
        seen = [one.pooled * there[:, None] for one, there in zip(features.values(), present.T)]
        weights = belief_weights(self.gate(torch.cat(seen, dim=1)), present)
        return torch.einsum("bm,bmc->bc", weights, opinions), weights

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The losses of late fusion, for all modalities and for fewer, and the ranking loss."""
        assert prediction.opinions is not None
        assert prediction.features is not None
        losses = super().objective(prediction, batch, step)
        output, _ = self.mixture(prediction.features, prediction.opinions, fewer(batch.present))
        less = task_losses(self.task, output, batch)
        losses["task"] = (losses["task"] + weighted_mean(less, batch.weight)) / 2
        if self.ranking:
            more = task_losses(self.task, prediction.output, batch)
            losses["ranking"] = self.ranking * weighted_mean((more - less).clamp(min=0), batch.weight)
        return losses


def fewer(present: Tensor) -> Tensor:
    """Some of the present modalities `[batch, modality]`, each with probability ½: at least one, never all of several.

    >>> fewer(torch.tensor([[True, True], [False, True]])).sum(dim=1).tolist()
    [1, 1]
    """
    draw = torch.rand(present.shape, device=present.device)
    kept = present & (draw >= 0.5)
    highest = torch.where(present, draw, -1.0).argmax(dim=1, keepdim=True)
    lowest = torch.where(present, draw, 2.0).argmin(dim=1, keepdim=True)
    kept = kept.scatter(1, lowest, False).scatter(1, highest, True)
    return kept & present
