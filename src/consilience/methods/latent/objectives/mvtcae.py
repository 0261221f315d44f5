"""MVTCAE: total correlation, a product of experts that stays near each of its experts (Hwang et al. 2021).

(n−α)/n · Σ_m E_{q_O} log p(m|z) − (1−α) KL(q_O ‖ p(z)) − (α/n) Σ_m KL(q_O ‖ q_m),   q_O ∝ Π_m q_m
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.methods.latent.objectives.objective import Objective, Plan, factor_type, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective(
    "mvtcae", paper="Hwang et al. 2021, Multi-View Representation Learning via Total Correlation Objective"
)
class Mvtcae(Objective):
    """alpha: from 0, the joint bound, to 1, only the conditional information bottleneck of each modality."""

    subset_encoders = ("poe",)
    prior_expert = False

    def __init__(self, *, alpha: float = 0.9):
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
            raise InputError(f"alpha must be a number from 0 to 1, got {alpha!r}")
        self.alpha = alpha

    def default_encoder(self, modalities: int) -> str:
        """Products of experts."""
        return "poe"

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """The observed set first, then every modality alone."""
        present, count = batch.present, len(model.names)
        alone = torch.eye(count, dtype=torch.bool, device=batch.device)[:, None] & present
        sets = torch.cat([present[None], alone])
        have = present.sum(1).clamp(min=1).to(factor_type(batch.device))
        first = torch.zeros(len(sets), 1, dtype=factor_type(batch.device), device=batch.device)
        first[:1].fill_(1)
        pairs = torch.arange(1, count + 1, device=batch.device)
        return Plan(
            sets,
            reconstruction=first[..., None] * ((have - self.alpha) / have)[:, None] * present,
            prior=first * (1 - self.alpha) * present.any(-1),
            pairs=torch.stack([torch.zeros_like(pairs), pairs], dim=1),
            mutual=self.alpha * (present.T / have),
        )
