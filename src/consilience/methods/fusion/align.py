"""Alignment: concatenation whose modalities are asked to agree, by the cosine distance of their representations.

The alignment-based baseline of Zhang et al. 2023 (B.2), after Wang et al. 2016, with every pair of present
modalities aligned where the original has two.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.encoders import Encoded
from consilience.methods import JointMethod, PerModality, Prediction, Spec, Step, register, weighted_mean
from consilience.methods.fusion.concat import Concatenation


@register("align", paper="Zhang et al. 2023, Provable Dynamic Fusion for Low-Quality Multimodal Data, B.2")
class Align(JointMethod):
    """Concatenation plus `strength` × mean cosine distance between the modalities' representations of size `shared`."""

    min_modalities = 2

    def __init__(self, spec: Spec, *, width: int = 256, shared: int = 128, strength: float = 0.1, dropout: float = 0.1):
        super().__init__(spec)
        self.project = PerModality({name: nn.Linear(one.width, shared) for name, one in self.encoders.items()})
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
        """The task's loss and the alignment of what is present."""
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
    there = present.to(unit.dtype)
    distance = 1 - unit @ unit.transpose(1, 2)
    pairs = (there[:, :, None] * there[:, None, :]).triu(diagonal=1)
    return (distance * pairs).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
