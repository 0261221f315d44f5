"""Late fusion: every expert speaks, and the mean of what they say decides. Of logits, or of probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.methods import ExpertMethod, equal_weights, register


@register("late", paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2")
class Late(ExpertMethod):
    """The mean of the present experts' logits; for a regression, of their numbers."""

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Equal weights over what is present."""
        weights = equal_weights(batch.present, opinions.dtype)
        return torch.einsum("bm,bmc->bc", weights, opinions), weights


@register("late-probs")
class LateProbabilities(ExpertMethod):
    """The mean of the present experts' probabilities: a loud expert can outvote no one."""

    tasks = ("classification",)

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """log Σ_m w_m softmax(z_m), computed without leaving the log scale; all missing gives equal odds."""
        weights = equal_weights(batch.present, opinions.dtype)
        wide = torch.promote_types(opinions.dtype, torch.float32)
        voices = functional.log_softmax(opinions.to(wide), dim=2) + weights.to(wide).log()[:, :, None]
        heard = batch.present.any(dim=1, keepdim=True)
        # Where no one speaks every voice is −inf: select before the sum, so that no nan reaches the gradient.
        voices = torch.where(heard[:, :, None], voices, torch.zeros_like(voices))
        return torch.logsumexp(voices, dim=1), weights
