"""Heads that many methods build alike, and the widths of the features that they read."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.encoders import Encoded
from consilience.methods.losses import equal_weights
from consilience.methods.spec import PerModality


def total_width(encoders: PerModality) -> int:
    """Return the width of all modalities' features side by side."""
    return sum(encoder.width for encoder in encoders.values())


def linear_heads(encoders: PerModality, outputs: int) -> PerModality:
    """Build a linear head for each modality: `[batch, width_m]` → `[batch, outputs]`."""
    return PerModality({name: nn.Linear(encoder.width, outputs) for name, encoder in encoders.items()})


def expert_logits(heads: PerModality, features: Mapping[str, Encoded]) -> Tensor:
    """Apply each modality's head to its pooled features: `[batch, modality, class]`."""
    return torch.stack([head(features[name].pooled) for name, head in heads.items()], dim=1)


def mean_logits(opinions: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the present experts' logits `[batch, class]` and the weights `[batch, modality]` behind it."""
    weights = equal_weights(present, opinions.dtype)
    return torch.einsum("bm,bmc->bc", weights, opinions), weights
