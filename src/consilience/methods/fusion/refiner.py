"""`refnet`: refiner fusion. Each modality's features must be decodable from the joint representation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat, PositiveInt, Rate
from consilience.encoders import Encoded
from consilience.encoders.mlp import dense_block
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register(
    "refnet",
    paper="Sankaran et al. 2021, Multimodal Fusion Refiner Networks",
    equation="L = ℓ(z, y) + strength · mean over m of (1 − cos(R_m(c), h_m)), the modality-centric loss",
)
class RefNet(JointMethod):
    """Concatenation with a loss that keeps every modality's features decodable from the joint representation.

    A refiner for each modality decodes its features from the joint representation; the loss is the cosine distance
    between the two. Without it the fusion may drop a modality because another one is enough for the training labels.
    This is the paper's responsibility loss without the contrastive one.

        c = concat(h_1, …, h_M)         ĥ_m = R_m(c)         z = P c
        L = ℓ(z, y) + strength · mean over m in S of (1 − cos(ĥ_m, h_m))

    Args:
        width: Width of the joint representation and of the refiners' hidden layer.
        strength: Weight of the refiners' loss.
        dropout: Dropout rate.
    """

    def __init__(self, spec: Spec, *, width: PositiveInt = 256, strength: NonNegativeFloat = 0.1, dropout: Rate = 0.1):
        super().__init__(spec)
        self.fusion = Concatenation.over(self.encoders, width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.refiners = PerModality(
            {
                name: nn.Sequential(dense_block(width, width, dropout=dropout), nn.Linear(width, encoder.width))
                for name, encoder in self.encoders.items()
            }
        )
        self.strength = strength

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Apply the head, and decode each modality's features from the joint representation."""
        prediction = super().read(joint, features, batch)
        refined = {name: refiner(joint) for name, refiner in self.refiners.items()}
        prediction.extra = {**prediction.extra, "refined": refined}
        return prediction

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss and the refiners'."""
        assert prediction.features is not None
        refined = prediction.extra["refined"]
        distances = [
            1 - functional.cosine_similarity(refined[name], encoded.pooled, eps=1e-6)
            for name, encoded in prediction.features.items()
        ]
        counted = torch.stack(distances, dim=1) * batch.present
        distance = counted.sum(dim=1) / batch.present.sum(dim=1).clamp(min=1)
        losses = super().objective(prediction, batch, step)
        return {**losses, "refine": self.strength * weighted_mean(distance, batch.weight)}
