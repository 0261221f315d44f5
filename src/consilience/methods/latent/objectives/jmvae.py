"""JMVAE: the joint bound, and a pull of smaller posteriors towards the joint one (Suzuki et al. 2016).

    unimodal        L_J − α Σ_m KL(q_O ‖ q_m)           (Suzuki et al.; for N = 2 both readings are the same)
    leave-one-out   L_J − α Σ_m KL(q_O ‖ q_{O∖m})       (Korthals 2019, eq. 113: the variation of information)

A sample with a single observed modality has no smaller posterior and adds its own bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch

from consilience.core.batches import Batch
from consilience.core.settings import NonNegativeFloat
from consilience.methods.latent.objectives.joint import observed
from consilience.methods.latent.objectives.objective import Objective, Plan, first_of, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective("jmvae", paper="Suzuki et al. 2016, Joint Multimodal Learning with Deep Generative Models")
class Jmvae(Objective):
    """The joint bound and divergences from the joint posterior to smaller ones."""

    def __init__(
        self,
        *,
        reading: Annotated[Literal["unimodal", "leave-one-out"], "which smaller posteriors are pulled"] = "unimodal",
        alpha: Annotated[NonNegativeFloat, "weight of these divergences"] = 1.0,
    ):
        self.unimodal, self.alpha = reading == "unimodal", alpha

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The observed set first, then one smaller set for each modality."""
        joint = observed(batch)
        count = len(model.names)
        single = torch.eye(count, dtype=torch.bool, device=batch.device).view(count, *[1] * (joint.ndim - 2), count)
        subsets = torch.cat([joint, joint & (single if self.unimodal else ~single)])
        members = subsets if subsets.ndim == 3 else subsets[:, None]
        first, pairs = first_of(len(subsets), batch.device)
        # Nothing is pulled for a modality that is missing, nor in a set of one member.
        counts = (members[:1] & single.view(count, 1, count)).any(-1) & (members[:1].sum(-1) > 1)
        return Plan(
            subsets,
            reconstruction=members.float() * first[..., None],
            prior=first * members.any(-1),
            pairs=pairs,
            mutual=self.alpha * counts.to(first.dtype),
        )
