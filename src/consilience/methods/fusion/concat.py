"""Concatenation: features side by side, one layer that mixes them, a linear head. The baseline of every table."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import dropout_rate, whole_number
from consilience.encoders import Encoded
from consilience.methods import JointMethod, Spec, register


class Concatenation(nn.Module):
    """[h_1, …, h_M] → Linear → LayerNorm → ReLU → dropout: `[batch, width]`. A missing modality enters as zeros.

    Without a width nothing is mixed: [h_1, …, h_M] is the joint representation.
    """

    def __init__(self, inputs: int, width: int | None, dropout: float):
        super().__init__()
        self.width = inputs if width is None else width
        self.mix: nn.Module = nn.Identity()
        if width is not None:
            self.mix = nn.Sequential(
                nn.Linear(inputs, whole_number("width", width)),
                nn.LayerNorm(width),
                nn.ReLU(),
                nn.Dropout(dropout_rate(dropout)),
            )

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features `[batch, width_m]` of all modalities."""
        return self.mix(torch.cat([encoded.pooled for encoded in features.values()], dim=1))


@register("concat", paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2")
class Concat(JointMethod):
    """Features side by side. width: of the layer that mixes them; None is no such layer, features go to the head."""

    def __init__(self, spec: Spec, *, width: int | None = 256, dropout: float = 0.1):
        super().__init__(spec)
        self.fusion = Concatenation(sum(encoder.width for encoder in self.encoders.values()), width, dropout)
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)
