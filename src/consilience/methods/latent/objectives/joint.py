"""The joint bound L_J: one posterior given all that a sample has, every modality of it reconstructed.

L_J = Σ_{m∈O} E_{q_O} log p(m|z) − KL(q_O ‖ p(z)),   O what is observed   (Korthals 2019, eq. 27)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods.latent.objectives.objective import Objective, Plan, register_objective

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel


@register_objective(
    "joint", paper="Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective"
)
class Joint(Objective):
    """Only subsets that occur in the training data get an encoder, unless subset_encoder is "poe" or "set"."""

    def plan(self, model: LatentModel, batch: Batch, generator: torch.Generator | None = None) -> Plan:
        """What each sample has."""
        return joint_plan(observed(batch))


def observed(batch: Batch) -> Tensor:
    """What is present as one set: `[1, batch, modality]`, or `[1, modality]` of a batch that is whole."""
    return batch.present[:1] if batch.whole else batch.present[None]


def joint_plan(present: Tensor) -> Plan:
    """L_J of one set a sample, `[1, modality]` or `[1, batch, modality]`."""
    sets = present if present.ndim == 3 else present[:, None]
    return Plan(present, reconstruction=sets.float(), prior=sets.any(-1).float())
