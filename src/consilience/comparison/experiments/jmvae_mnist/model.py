"""The latent model of the recipe: its nets, trained on images that are drawn black and white anew at every step."""

from __future__ import annotations

from typing import Any

import torch

from consilience.core.batches import Batch
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Prediction, Spec
from consilience.methods.latent.importance_sampling import LogLikelihood, WeightSums, log_joint, pairs_at_once
from consilience.methods.latent.latent_model import LatentModel
from consilience.methods.latent.subset_encoders import OwnEncoder
from consilience.methods.latent.trained_latent_model import BATCH, TrainedLatent
from consilience.methods.latent.unit_conversion import own_transforms
from consilience.preparation import Preparation
from consilience.training import Trainer
from consilience.training.batch_loader import BatchLoader
from consilience.training.devices import resolve_device
from consilience.training.seeding import seeded

IMAGE, LABEL = "image", "label"
LIKELIHOODS = {IMAGE: "bernoulli", LABEL: "categorical"}


class JmvaeNets(LatentModel):
    """Grey images `[batch, 1, height, width]` in [0, 1] and one-hot labels; a layer of `hidden` units for each, side by
    side into another, for every subset of the two, and two such layers for each decoder.
    """

    def __init__(self, spec: Spec, *, hidden: int, **settings: Any):
        super().__init__(
            spec,
            subset_encoder="own",
            decoders={name: {"name": "mlp", "hidden": [hidden, hidden]} for name in LIKELIHOODS},
            likelihoods=LIKELIHOODS,
            **settings,
        )
        self.subset_encoder = OwnEncoder(spec, self.latent, hidden)

    def forward(self, batch: Batch) -> Prediction:
        """The objective's terms; in training of images whose pixels are drawn here, each with its grey for the
        probability of 1.
        """
        return super().forward(_drawn(batch) if self.training else batch)


def _drawn(batch: Batch) -> Batch:
    return Batch(
        {**batch.values, IMAGE: torch.bernoulli(batch[IMAGE])},
        batch.present,
        index=batch.index,
        weight=batch.weight,
        complete=batch.complete,
    )


def fit(train: Samples, trainer: Trainer, *, hidden: int, **settings: Any) -> TrainedLatent:
    """Train on all samples for as many epochs as the trainer says. settings: of `LatentModel`."""
    trainer.preparation = Preparation.fit(train, Task.none(), own_transforms(train.modalities, LIKELIHOODS))
    encoder = {"name": "mlp", "hidden": [hidden], "dropout": 0.0, "normalise": False}
    spec = Spec(trainer.preparation.modalities, trainer.preparation.task, dict.fromkeys(LIKELIHOODS, encoder))
    with seeded(trainer.seed):
        model = JmvaeNets(spec, hidden=hidden, **settings)
    model.fit(train, None, trainer)
    trainer.forget()
    return TrainedLatent(model, trainer.preparation, logs=trainer.logs)


@torch.no_grad()
def published_estimate(trained: TrainedLatent, samples: Samples, draws: int, device: str = "auto") -> LogLikelihood:
    """log p(image) of each sample `[n]` as it was published: z from q(z | image, label), whatever that is worth."""
    model, target = trained.model, resolve_device(device)
    model.to(target).eval()
    generator = torch.Generator(target).manual_seed(0)
    parts = []
    for batch in BatchLoader(samples, trained.preparation, target).in_order(BATCH):
        q, sums = model.posterior(batch), WeightSums()
        pairs = pairs_at_once(model, target)
        while sums.draws < draws:
            z = q.draw(generator, min(max(1, pairs // len(batch)), draws - sums.draws))
            sums.add(log_joint(model, batch, [IMAGE], z) - q.log_density(z))
        found = sums.estimate()
        parts.append((found.value.cpu(), found.standard_error.cpu(), found.effective_samples.cpu()))
    return LogLikelihood(*(torch.cat(each) for each in zip(*parts)))
