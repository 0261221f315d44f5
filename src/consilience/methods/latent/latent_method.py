"""`m2vae` as a fusion method: a head on the latent of whatever is present, learned with its model or after it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.methods import Method, Prediction, Spec, Step, register, task_losses, weighted_mean
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.objectives.objective import objective_settings
from consilience.methods.latent.subsets import chain
from consilience.training import Phase, Trainer

# With so many modalities all subsets are visited at every step; with more, a random chain of them.
MOST_VISITED = 5


@register(
    "m2vae",
    paper="Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective",
    equation="83",
)
class LatentFusion(Method):
    """A head on the latent of whatever is present, learned together with a multimodal variational autoencoder.

    objective, bound, subsets, latent, subset_encoder: as `MultimodalVAE` has them · head: "joint" with the latent
    model, or "after" it, on posteriors that no longer move · strength: of the latent model's loss, per number that its
    decoders give, beside the task's · subset_loss: weight of the head's loss on random smaller subsets of what a sample
    has, without which a missing modality is new to it.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        objective: str = "m2vae",
        bound: str | None = None,
        subsets: str | None = None,
        latent: int = 20,
        subset_encoder: str | None = None,
        head: str = "joint",
        strength: float = 1.0,
        subset_loss: float = 1.0,
    ):
        super().__init__(spec)
        if head not in ("joint", "after"):
            raise unknown_name("head", head, ("joint", "after"))
        for name, value in (("strength", strength), ("subset_loss", subset_loss)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"{name} must be a number ≥ 0, got {value!r}")
        if "subsets" in objective_settings(objective) and subsets is None:
            subsets = "all" if len(self.names) <= MOST_VISITED else "chain"
        settings = {name: value for name, value in (("bound", bound), ("subsets", subsets)) if value is not None}
        self.latent_model = LatentModel(
            spec, objective=objective, settings=settings, latent=latent, subset_encoder=subset_encoder
        )
        self.head = nn.Linear(latent, spec.task.outputs)
        self.after, self.subset_loss = head == "after", subset_loss
        numbers = sum(one.outputs for one in self.latent_model.likelihoods.values())
        self.strength = strength / numbers

    def forward(self, batch: Batch) -> Prediction:
        """The head at the posterior's mean; in training at a draw, and also of nested subsets of what is there."""
        if not self.training:
            mean = self.latent_model.posterior(batch).mean
            return Prediction(self.head(mean), joint=mean)
        sets = self._subsets(batch)
        z = self.latent_model.encode(batch, sets).draw()
        outputs = self.head(z)
        extra: dict[str, Any] = {"smaller": (sets[:-1], outputs[:-1])}
        if not self.after:
            extra["latent"] = self.latent_model(batch)
        return Prediction(outputs[-1], joint=z[-1], extra=extra)

    def _subsets(self, batch: Batch) -> Tensor:
        """Random nested sets of what each sample has, the last of them all it has: `[set, batch, modality]`."""
        return chain(batch.present).sets if self.subset_loss else batch.present[None]

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss on all that is present and on smaller subsets, and the latent model's own terms."""
        losses = super().objective(prediction, batch, step)
        sets, outputs = prediction.extra["smaller"]
        # A subset that a sample's chain repeats, or that is empty, says nothing new.
        counted = sets.any(-1) & (sets != batch.present).any(-1)
        if self.subset_loss and len(sets):
            each = torch.stack([task_losses(self.task, output, batch) for output in outputs])
            smaller = weighted_mean(each, counted, dim=0)
            losses["subsets"] = self.subset_loss * weighted_mean(smaller, batch.weight)
        if not self.after:
            terms = self.latent_model.objective(prediction.extra["latent"], batch, step)
            losses |= {name: self.strength * value for name, value in terms.items()}
        return losses

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """One run for both, or the latent model first and then the head."""
        if not self.after:
            trainer.run(self, train, validation)
            return
        held_out = None if validation is None else _with_something(validation)
        self.latent_model.fit(_with_something(train), held_out, trainer)
        trainer.run(self, train, validation, [Phase("head", parameters=lambda _: self.head.parameters())])


def _with_something(samples: Samples) -> Samples:
    """The samples that have any modality at all: of the others a latent model learns nothing."""
    there = samples.present.any(axis=1)
    return samples if there.all() else samples[np.flatnonzero(there)]
