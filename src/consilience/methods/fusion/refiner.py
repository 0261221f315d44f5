"""Refiner fusion (RefNet): the joint representation must still tell what each modality said.

Sankaran et al. 2021: a refiner decodes each modality's features from the fused ones, and is asked to point where they
point. What the fusion would throw away, because one modality is enough for the training labels, it has to keep.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.settings import number
from consilience.encoders import Encoded
from consilience.encoders.mlp import dense_block
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register("refnet", paper="Sankaran et al. 2021, Multimodal Fusion Refiner Networks", equation="modality-centric loss")
class RefNet(JointMethod):
    """Concatenation, plus `strength` × mean cosine distance between each modality's features and their decoding.

    width: of the joint representation, and of the refiners' hidden layer.
    """

    def __init__(self, spec: Spec, *, width: int = 256, strength: float = 0.1, dropout: float = 0.1):
        super().__init__(spec)
        self.fusion = Concatenation(sum(encoder.width for encoder in self.encoders.values()), width, dropout)
        self.head = nn.Linear(width, spec.task.outputs)
        self.refiners = PerModality(
            {
                name: nn.Sequential(dense_block(width, width, dropout=dropout), nn.Linear(width, encoder.width))
                for name, encoder in self.encoders.items()
            }
        )
        self.strength = number("strength", strength, "≥ 0")

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Read out, and decode each modality's features from the joint representation."""
        prediction = super().read(joint, features, batch)
        refined = {name: refiner(joint) for name, refiner in self.refiners.items()}
        prediction.extra = {**prediction.extra, "refined": refined}
        return prediction

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss and the refiners'."""
        assert prediction.features is not None
        refined = prediction.extra["refined"]
        each = [
            1 - functional.cosine_similarity(refined[name], encoded.pooled, eps=1e-6)
            for name, encoded in prediction.features.items()
        ]
        far, present = torch.stack(each, dim=1), batch.present
        far = (far * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        losses = super().objective(prediction, batch, step)
        return {**losses, "refine": self.strength * weighted_mean(far, batch.weight)}
