"""Concatenation: features side by side, one layer that mixes them, a linear head. The baseline of every table."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.batches import Batch
from consilience.encoders import Encoded
from consilience.methods import JointMethod, Spec, register


class Concatenation(nn.Module):
    """[h_1, …, h_M] → Linear → LayerNorm → ReLU → dropout: `[batch, width]`. A missing modality enters as zeros."""

    def __init__(self, inputs: int, width: int, dropout: float):
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features `[batch, width_m]` of all modalities."""
        return self.mix(torch.cat([encoded.pooled for encoded in features.values()], dim=1))


@register("concat", paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2")
class Concat(JointMethod):
    """Features side by side. width: of the joint representation."""

    def __init__(self, spec: Spec, *, width: int = 256, dropout: float = 0.1):
        super().__init__(spec)
        self.fusion = Concatenation(sum(encoder.width for encoder in self.encoders.values()), width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
