"""`concat`: features side by side, one layer that mixes them, a linear head. The baseline of every table."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Spec, register
from consilience.methods.heads import total_width


class Concatenation(nn.Module):
    """[h_1, …, h_M] → Linear → LayerNorm → ReLU → dropout: `[batch, width]`. A missing modality enters as zeros.

    Without a width there is no mixing layer: [h_1, …, h_M] is the joint representation.
    """

    def __init__(self, inputs: int, width: int | None, dropout: float):
        super().__init__()
        self.width = inputs if width is None else width
        self.mix: nn.Module = nn.Identity()
        if width is not None:
            self.mix = nn.Sequential(
                nn.Linear(inputs, width),
                nn.LayerNorm(width),
                nn.ReLU(),
                nn.Dropout(dropout),
            )

    @classmethod
    def over(cls, encoders: PerModality, width: int | None, dropout: float) -> Concatenation:
        """Build the concatenation of all encoders' features."""
        return cls(total_width(encoders), width, dropout)

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features `[batch, width_m]` of all modalities."""
        return self.mix(torch.cat([encoded.pooled for encoded in features.values()], dim=1))


@register(
    "concat",
    paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2",
    equation="c = dropout(ReLU(LayerNorm(V [h_1, …, h_M] + b))), z = P c",
)
class Concat(JointMethod):
    """Features side by side, one layer that mixes them, and a linear head.

    The joint layer can use what only several modalities together show. It cannot tell that one of them is broken:
    noise in one modality reaches every joint feature. In the paper the joint layer is a plain fully connected one of
    width 256; the norm layer and the ReLU are ours.

        c = dropout(ReLU(LayerNorm(V [h_1, …, h_M] + b)))         z = P c         L = ℓ(z, y)

    Args:
        width: Width of the joint representation. None: no mixing layer, the features go to the head as they are.
        dropout: Dropout rate after the mixing layer.
    """

    def __init__(self, spec: Spec, *, width: PositiveInt | None = 256, dropout: Rate = 0.1):
        super().__init__(spec)
        self.fusion = Concatenation.over(self.encoders, width, dropout)
        self.head = nn.Linear(self.fusion.width, spec.task.outputs)
