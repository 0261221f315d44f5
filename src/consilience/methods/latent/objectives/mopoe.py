"""MoPoE: a mixture over all subsets of products of experts, every modality reconstructed from a draw of it.

    E_{z ~ q(z|O)} Σ_{m∈O} log p(m|z) − mean_S KL(q_S ‖ p(z)),   q(z|O) = mean_S q_S,  q_S ∝ Π_{m∈S} q_m

over the non-empty subsets S of O (Sutter et al. 2021, eq. 5 and lemma 2). The z of a sample is drawn from one random
subset, as in the authors' code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from consilience.core.batches import Batch
from consilience.methods.latent.objectives.objective import Objective, Plan, factor_type, register_objective
from consilience.methods.latent.subsets import all_subsets, lattice

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective("mopoe", paper="Sutter et al. 2021, Generalized Multimodal ELBO")
class Mopoe(Objective):
    """A mixture of products of experts; without settings."""

    subset_encoders = ("poe",)
    prior_expert = False

    def reason_against(self, modalities: int, annealed: bool) -> str | None:
        """`all_subsets` raises an error if there are too many modalities."""
        all_subsets(modalities)
        return None

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """All subsets of what each sample has; z is drawn from one of them."""
        subsets = lattice(len(model.names), batch.device).subsets
        held = (subsets[:, None] <= batch.present).all(-1)
        share = held.to(factor_type(batch.device)) / held.sum(0).clamp(min=1)
        draw = torch.rand(held.shape, generator=generator, device=batch.device).masked_fill(~held, -1.0)
        chosen = torch.zeros_like(held).scatter(0, draw.argmax(0, keepdim=True), True)
        return Plan(subsets, reconstruction=chosen[..., None] * batch.present.float(), prior=share)
