"""`align`: concatenation with a loss on the cosine distance between the modalities' representations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register(
    "align",
    paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2",
    equation="L = ℓ(z, y) + strength · mean over pairs of (1 − cos(W_i h_i, W_j h_j))",
)
class Align(JointMethod):
    """Concatenation with a loss that draws the modalities' representations together.

    Each modality's features are projected into one shared space and joined there as in `concat`. The loss adds the
    cosine distance between the projections of every pair of present modalities. The alignment helps where modalities
    carry the same information, and costs accuracy where they complement each other. A sample with a single modality
    has no pair. The paper's baseline, for two modalities, follows Wang et al. 2016, Learning Common and Specific
    Features for RGB-D Semantic Segmentation with Deconvolutional Networks.

        a_m = W_m h_m
        c   = dropout(ReLU(LayerNorm(V [a_1, …, a_M] + b)))         z = P c
        L   = ℓ(z, y) + strength · mean over pairs i < j in S of (1 − cos(a_i, a_j))

    Args:
        width: Width of the joint representation.
        shared: Width of the shared space.
        strength: Weight of the alignment loss.
        dropout: Dropout rate after the joint layer.
    """

    min_modalities = 2

    def __init__(
        self,
        spec: Spec,
        *,
        width: PositiveInt = 256,
        shared: PositiveInt = 128,
        strength: NonNegativeFloat = 0.1,
        dropout: Rate = 0.1,
    ):
        super().__init__(spec)
        self.project = PerModality({name: nn.Linear(encoder.width, shared) for name, encoder in self.encoders.items()})
        self.fusion = Concatenation(shared * len(self.encoders), width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.strength = strength

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """Encode, and project into the shared space."""
        features = super().represent(batch)
        for name, encoded in features.items():
            projected = self.project[name](encoded.pooled) * batch.present_in(name)[:, None]
            features[name] = Encoded(projected, encoded.sequence, encoded.mask)
        return features

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss and the alignment of the present modalities."""
        assert prediction.features is not None
        shared = torch.stack([encoded.pooled for encoded in prediction.features.values()], dim=1)
        distance = cosine_distance(shared, batch.present)
        aligned = self.strength * weighted_mean(distance, batch.weight)
        return {**super().objective(prediction, batch, step), "align": aligned}


def cosine_distance(representations: Tensor, present: Tensor) -> Tensor:
    """Mean of 1 − cos over all pairs of present modalities: `[batch, modality, width]` → `[batch]`; no pair gives 0.

    >>> cosine_distance(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.ones(1, 2, dtype=torch.bool)).item()
    1.0
    """
    unit = functional.normalize(representations, dim=2, eps=1e-6)
    counted = present.to(unit.dtype)
    distance = 1 - unit @ unit.transpose(1, 2)
    pairs = (counted[:, :, None] * counted[:, None, :]).triu(diagonal=1)
    return (distance * pairs).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
