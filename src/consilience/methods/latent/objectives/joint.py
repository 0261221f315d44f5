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
        subsets = observed(batch)
        members = subsets if subsets.ndim == 3 else subsets[:, None]
        return Plan(subsets, reconstruction=members.float(), prior=members.any(-1).float())


@register_objective("vae", paper="Kingma and Welling 2014, Auto-Encoding Variational Bayes")
class Vae(Joint):
    """The baseline: one autoencoder that reads all modalities side by side, missing ones as zeros."""

    subset_encoders = ("concat",)


def observed(batch: Batch) -> Tensor:
    """Return what is present as one set: `[1, batch, modality]`, or `[1, modality]` if nothing is missing."""
    return batch.present[:1] if batch.whole else batch.present[None]
