"""`late` and `late-probs`: the mean of the experts' logits, or of their probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.methods import ExpertMethod, equal_weights, register
from consilience.methods.heads import mean_logits


@register(
    "late",
    paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2",
    equation="z = 1/|S| · Σ_{m∈S} z_m",
)
class Late(ExpertMethod):
    """The mean of the present experts' logits; for a regression, of their predicted numbers.

    The loss adds each expert's own loss over the samples that have its modality. Without it experts only learn what the
    others leave over, and are of little use when one of them is missing.

        z = 1/|S| · Σ_{m∈S} z_m         L = ℓ(z, y) + expert_loss · Σ_m ℓ(z_m, y)

    Args:
        expert_loss: Weight of the experts' own losses.
    """

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean over the present experts."""
        return mean_logits(opinions, batch.present)


@register("late-probs", equation="p = 1/|S| · Σ_{m∈S} softmax(z_m)")
class LateProbabilities(ExpertMethod):
    """The mean of the present experts' probabilities: an expert with large logits cannot outvote the others.

    An expert with very large logits, as noise can make them, counts no more than one vote. Computed on the log scale;
    where no modality is present, all classes are equally probable.

        p = 1/|S| · Σ_{m∈S} softmax(z_m)         z = ln p         L = ℓ(z, y) + expert_loss · Σ_m ℓ(z_m, y)

    Args:
        expert_loss: Weight of the experts' own losses.
    """

    tasks = ("classification",)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """log Σ_m w_m softmax(z_m), computed on the log scale; all missing gives equal odds."""
        weights = equal_weights(batch.present, opinions.dtype)
        dtype = torch.promote_types(opinions.dtype, torch.float32)
        terms = functional.log_softmax(opinions.to(dtype), dim=2) + weights.to(dtype).log()[:, :, None]
        any_present = batch.present.any(dim=1, keepdim=True)
        # Where no expert is present every term is −inf: select before the sum, so that no NaN reaches the gradient.
        terms = torch.where(any_present[:, :, None], terms, torch.zeros_like(terms))
        return torch.logsumexp(terms, dim=1), weights
