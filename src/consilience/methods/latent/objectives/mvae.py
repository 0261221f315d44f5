"""MVAE: a product of experts, and bounds of the whole, of every modality alone and of random subsets.

L_J(O) + Σ_{m∈O} L_J({m}) + Σ_{j=1…J} L_J(S_j),   q_S ∝ p(z) Π_{m∈S} q_m   (Wu and Goodman 2018, eq. 6)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeInt
from consilience.methods.latent.objectives.objective import Objective, Plan, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective(
    "mvae", paper="Wu and Goodman 2018, Multimodal Generative Models for Scalable Weakly-Supervised Learning"
)
class Mvae(Objective):
    """The joint bounds of the observed set, of each modality and of random subsets."""

    subset_encoders = ("poe",)

    def __init__(self, *, random: Annotated[NonNegativeInt, "random subsets of 2 … n − 1 members a sample"] = 1):
        self.random = random

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The observed set, its single members, and random subsets."""
        present = batch.present
        single = torch.eye(len(model.names), dtype=torch.bool, device=batch.device)[:, None] & present
        # A single observed modality is counted once.
        several = present & (present.sum(-1, keepdim=True) > 1)
        drawn = random_subsets(present, self.random, generator)
        sets = torch.cat([several[None], single, drawn])
        return Plan(sets, reconstruction=sets.float(), prior=sets.any(-1).float())


def random_subsets(present: torch.Tensor, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draw subsets of what is present, with sizes uniform in 2 … n − 1: `[count, batch, modality]`.

    They are empty if n < 3.
    """
    shape = (count, *present.shape)
    draw = torch.rand(shape, generator=generator, device=present.device).masked_fill(~present, 2.0)
    rank = draw.argsort(-1).argsort(-1)
    sizes = (present.sum(-1) - 2).clamp(min=0)
    size = 2 + (torch.rand(shape[:-1], generator=generator, device=present.device) * sizes).long()
    return (rank < size[..., None]) & (sizes > 0)[..., None]
