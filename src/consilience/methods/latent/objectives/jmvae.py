"""JMVAE: the joint bound, and a pull of smaller posteriors towards the joint one (Suzuki et al. 2016).

    unimodal        L_J − α Σ_m KL(q_O ‖ q_m)           (Suzuki et al.; for N = 2 both readings are the same)
    leave-one-out   L_J − α Σ_m KL(q_O ‖ q_{O∖m})       (Korthals 2019, eq. 113: the variation of information)

A sample of which one modality is observed has no smaller posterior to pull; it adds its own bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.methods.latent.objectives.joint import observed
from consilience.methods.latent.objectives.objective import Objective, Plan, choice, factor_type, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective("jmvae", paper="Suzuki et al. 2016, Joint Multimodal Learning with Deep Generative Models")
class Jmvae(Objective):
    """reading: which smaller posteriors are pulled, "unimodal" or "leave-one-out" · alpha: how strongly."""

    def __init__(self, *, reading: str = "unimodal", alpha: float = 1.0):
        self.unimodal = choice("reading", reading, ("unimodal", "leave-one-out")) == "unimodal"
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
            raise InputError(f"alpha must be a number ≥ 0, got {alpha!r}")
        self.alpha = alpha

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The observed set first, then one smaller set for each modality."""
        joint = observed(batch)
        count = len(model.names)
        one = torch.eye(count, dtype=torch.bool, device=batch.device).view(count, *[1] * (joint.ndim - 2), count)
        smaller = joint & (one if self.unimodal else ~one)
        sets = torch.cat([joint, smaller])
        whole = sets if sets.ndim == 3 else sets[:, None]
        first = torch.zeros(len(sets), 1, dtype=factor_type(batch.device), device=batch.device)
        first[:1].fill_(1)
        pairs = torch.arange(1, count + 1, device=batch.device)
        # Of a modality that is not there nothing is pulled, nor of a set of one member.
        counts = (whole[:1] & one.view(count, 1, count)).any(-1) & (whole[:1].sum(-1) > 1)
        return Plan(
            sets,
            reconstruction=whole.float() * first[..., None],
            prior=first * whole.any(-1),
            pairs=torch.stack([torch.zeros_like(pairs), pairs], dim=1),
            mutual=self.alpha * counts.to(first.dtype),
        )
