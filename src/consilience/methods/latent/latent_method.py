"""`m2vae` as a fusion method: a head on the latent of whatever is present, trained with the model or after it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.settings import NonNegativeFloat, PositiveInt
from consilience.methods import Method, Prediction, Spec, Step, register, task_losses, weighted_mean
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.objectives.objective import objective_settings
from consilience.methods.latent.subsets import chain
from consilience.training import Phase, Trainer

# With up to so many modalities every step visits all subsets; with more, a random chain of them.
MOST_VISITED = 5


@register(
    "m2vae", paper="Korthals 2019, M²VAE – Derivation of a Multi-Modal Variational Autoencoder Objective", equation="83"
)
class LatentFusion(Method):
    """A linear head on the latent of whatever is present, learned with a multimodal variational autoencoder.

    The autoencoder has a posterior q_S(z) for every subset S of the modalities. The head reads the mean of that of the
    present ones, so a missing modality needs no substitute. In training z is drawn from the posterior, and the head is
    also trained on random nested subsets of what a sample has.

        z = P E[q_S],   S the present modalities
        L = ℓ(P z_S, y) + subset_loss · mean over nested S' ⊂ S of ℓ(P z_S', y) + strength / D · (−L_M²)

    D is the number of values that the decoders return. With `head="after"` the latent model is trained first, and the
    head afterwards on its fixed posteriors. The trained model can also generate: `consilience generate`.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        objective: Annotated[str, "as in MultimodalVAE"] = "m2vae",
        bound: Annotated[Literal["paper", "tight"] | None, "tight or paper; None: paper"] = None,
        subsets: Annotated[
            Literal["all", "chain"] | None, "as in MultimodalVAE; None: all with up to five modalities, else chain"
        ] = None,
        latent: Annotated[PositiveInt, "dimensions of the latent"] = 20,
        subset_encoder: Annotated[
            str | None, "as in MultimodalVAE; None: trunk with up to seven modalities, else set"
        ] = None,
        head: Annotated[Literal["joint", "after"], "train the head with the latent model, or after it"] = "joint",
        strength: Annotated[NonNegativeFloat, "weight of the latent model's loss, per decoded number"] = 1.0,
        subset_loss: Annotated[NonNegativeFloat, "weight of the head's loss on random smaller subsets"] = 1.0,
    ):
        super().__init__(spec)
        if "subsets" in objective_settings(objective) and subsets is None:
            subsets = "all" if len(self.names) <= MOST_VISITED else "chain"
        settings = {name: value for name, value in (("bound", bound), ("subsets", subsets)) if value is not None}
        self.latent_model = LatentModel(
            spec, objective=objective, settings=settings, latent=latent, subset_encoder=subset_encoder
        )
        self.head = nn.Linear(latent, spec.task.outputs)
        self.after, self.subset_loss = head == "after", subset_loss
        numbers = sum(likelihood.outputs for likelihood in self.latent_model.likelihoods.values())
        self.strength = strength / numbers

    def forward(self, batch: Batch) -> Prediction:
        """Apply the head to the posterior's mean; in training to a draw, also of nested subsets of what is present."""
        if not self.training:
            mean = self.latent_model.posterior(batch).mean
            return Prediction(self._apply_head(mean), joint=mean)
        sets = self._subsets(batch)
        z = self.latent_model.encode(batch, sets).draw()
        outputs = self._apply_head(z)
        extra: dict[str, Any] = {"smaller": (sets[:-1], outputs[:-1])}
        if not self.after:
            extra["latent"] = self.latent_model(batch)
        return Prediction(outputs[-1], joint=z[-1], extra=extra)

    def _apply_head(self, z: Tensor) -> Tensor:
        """The head's output; posteriors are computed in at least 32 bits, the head may have fewer."""
        return self.head(z.to(self.head.weight.dtype))

    def _subsets(self, batch: Batch) -> Tensor:
        """Return random nested sets of what each sample has, the last being all of it: `[set, batch, modality]`."""
        return chain(batch.present).sets if self.subset_loss else batch.present[None]

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Return the task's loss on all that is present and on smaller subsets, and the latent model's terms."""
        losses = super().objective(prediction, batch, step)
        sets, outputs = prediction.extra["smaller"]
        # A subset that is empty, or that repeats all that the sample has, is not counted.
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
        """Train both together, or the latent model first and then the head."""
        if not self.after:
            trainer.run(self, train, validation)
            return
        held_out = None if validation is None else _with_any_modality(validation)
        self.latent_model.fit(_with_any_modality(train), held_out, trainer)
        trainer.run(self, train, validation, [Phase("head", parameters=lambda _: self.head.parameters())])


def _with_any_modality(samples: Samples) -> Samples:
    """Return the samples that have a modality: a latent model learns nothing from the others."""
    there = samples.present.any(axis=1)
    return samples if there.all() else samples[np.flatnonzero(there)]
