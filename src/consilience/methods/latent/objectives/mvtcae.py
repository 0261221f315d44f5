"""MVTCAE: total correlation, a product of experts that stays near each of its experts (Hwang et al. 2021).

(n−α)/n · Σ_m E_{q_O} log p(m|z) − (1−α) KL(q_O ‖ p(z)) − (α/n) Σ_m KL(q_O ‖ q_m),   q_O ∝ Π_m q_m
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch

from consilience.core.batches import Batch
from consilience.core.settings import Fraction
from consilience.methods.latent.objectives.objective import Objective, Plan, first_of, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective(
    "mvtcae", paper="Hwang et al. 2021, Multi-View Representation Learning via Total Correlation Objective"
)
class Mvtcae(Objective):
    """A product of experts with divergences from it to each expert."""

    subset_encoders = ("poe",)
    prior_expert = False

    def __init__(self, *, alpha: Annotated[Fraction, "0 is the joint bound, 1 has no term of the prior"] = 0.9):
        self.alpha = alpha

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The observed set first, then every modality alone."""
        present = batch.present
        single = torch.eye(len(model.names), dtype=torch.bool, device=batch.device)[:, None] & present
        subsets = torch.cat([present[None], single])
        first, pairs = first_of(len(subsets), batch.device)
        count = present.sum(1).clamp(min=1).to(first.dtype)
        return Plan(
            subsets,
            reconstruction=first[..., None] * ((count - self.alpha) / count)[:, None] * present,
            prior=first * (1 - self.alpha) * present.any(-1),
            pairs=pairs,
            mutual=self.alpha * (present.T / count),
        )
