"""`lowrank`: low-rank tensor fusion (LFN), all products across modalities without building their tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, Spec, register


class LowRank(nn.Module):
    """Σ_r w_r Π_m (F_mr [h_m, 1]) + b: `[batch, width]`.

    The 1 beside the features makes the products of fewer modalities part of the sum. The features of a missing modality
    are zeros, so that only its 1 takes part.
    """

    def __init__(self, inputs: Mapping[str, int], width: int, rank: int):
        super().__init__()
        self.factors = nn.ParameterList(nn.Parameter(torch.empty(rank, size + 1, width)) for size in inputs.values())
        self.weights = nn.Parameter(torch.empty(rank))
        self.bias = nn.Parameter(torch.zeros(width))
        # Each factor alone keeps the size of what it projects, and the sum over ranks keeps that of a product; the
        # constant's row starts at one, so that a product begins as a sum over the modalities.
        for factor in self.factors:
            nn.init.normal_(factor, std=1 / math.sqrt(factor.shape[1]))
            with torch.no_grad():
                factor[:, -1] += 1
        nn.init.normal_(self.weights, std=1 / math.sqrt(rank))

    def forward(self, features: Mapping[str, Encoded], batch: Batch) -> Tensor:
        """Join pooled features `[batch, width_m]` of all modalities."""
        return contract([encoded.pooled for encoded in features.values()], list(self.factors), self.weights) + self.bias


def contract(features: list[Tensor], factors: list[Tensor], weights: Tensor) -> Tensor:
    """Σ_r w_r Π_m ([h_m, 1] F_mr): `[batch, width_m]` and factors `[rank, width_m + 1, width]` → `[batch, width]`.

    >>> contract([torch.tensor([[2.0]]), torch.tensor([[3.0]])], [torch.ones(1, 2, 1)] * 2, torch.ones(1)).item()
    12.0
    """
    product = None
    for feature, factor in zip(features, factors, strict=True):
        projected = torch.einsum("bi,rio->bro", functional.pad(feature, (0, 1), value=1.0), factor.to(feature.dtype))
        product = projected if product is None else product * projected
    assert product is not None
    return torch.einsum("bro,r->bo", product, weights.to(product.dtype))


@register(
    "lowrank",
    paper="Liu et al. 2018, Efficient Low-rank Multimodal Fusion with Modality-Specific Factors",
    equation="5: c = Σ_r w_r Π_m (F_mr [h_m, 1]) + b",
)
class LowRankFusion(JointMethod):
    """All products of features across modalities, in a factorised form.

    The weights of `tensor` fusion form a tensor of order M + 1. Here it is a sum of `rank` outer products of one factor
    for each modality, so that the contraction with the features is a product of M projections and the tensor is never
    built. A missing modality takes part with its 1 alone.

        c = Σ_r w_r · F_1r [h_1, 1] ∘ … ∘ F_Mr [h_M, 1] + b         z = P dropout(ReLU(c))

    Args:
        width: Width of the joint representation.
        rank: Rank of the weight tensor.
        dropout: Dropout rate before the head.
    """

    def __init__(self, spec: Spec, *, width: PositiveInt = 120, rank: PositiveInt = 40, dropout: Rate = 0.1):
        super().__init__(spec)
        inputs = {name: encoder.width for name, encoder in self.encoders.items()}
        self.fusion = LowRank(inputs, width, rank)
        self.head = nn.Sequential(nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, spec.task.outputs))
