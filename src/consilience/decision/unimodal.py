"""One modality at a time: the experts alone, and the best of them. What every fusion has to beat."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.batches import Batch
from consilience.errors import unknown_name
from consilience.methods import (
    Method,
    PerModality,
    Prediction,
    Spec,
    Step,
    encode,
    expert_losses,
    register,
    task_losses,
    weighted_mean,
)
from consilience.samples import Samples
from consilience.training import Trainer


@register("unimodal:")
class Unimodal(Method):
    """The expert of one modality, `unimodal:NAME`. Where its modality is missing it knows nothing but its bias."""

    def __init__(self, spec: Spec, modality: str):
        super().__init__(spec)
        if modality not in spec.modalities:
            raise unknown_name("modality", modality, spec.modalities, "It was given in 'unimodal:NAME'")
        self.modality = modality
        self.encoder = spec.build_encoder(modality)
        self.head = nn.Linear(self.encoder.width, spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """Encode the one modality, read out."""
        encoded = encode(self.encoder, batch, self.modality)
        return Prediction(self.head(encoded.pooled), features={self.modality: encoded}, joint=encoded.pooled)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss on the samples that have the modality."""
        counted = batch.weight * batch.present_in(self.modality)
        return {"task": weighted_mean(task_losses(self.task, prediction.output, batch), counted)}

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """Any modality."""
        return list(modalities)


@register("best-unimodal")
class BestUnimodal(Method):
    """Every expert trained alone; the one with the lowest validation loss decides, or the next best that is present."""

    ranking: Tensor

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.experts = PerModality({name: Unimodal(spec, name) for name in spec.modalities})
        self.register_buffer("ranking", torch.arange(len(self.experts)))

    def forward(self, batch: Batch) -> Prediction:
        """The opinion of the best expert whose modality is present."""
        opinions = torch.stack([expert(batch).output for expert in self.experts.values()], dim=1)
        ranked = batch.present[:, self.ranking]
        chosen = self.ranking[ranked.to(torch.uint8).argmax(dim=1)]
        weights = functional.one_hot(chosen, len(self.experts)).to(opinions.dtype) * batch.present
        output = opinions[torch.arange(len(batch), device=batch.device), chosen]
        return Prediction(output, opinions=opinions, weights=weights)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Each expert's own loss, for a loop of one's own; `fit` trains them one by one."""
        assert prediction.opinions is not None
        counted = batch.weight[:, None] * batch.present
        losses = weighted_mean(expert_losses(self.task, prediction.opinions, batch), counted, dim=0)
        return dict(zip(self.names, losses))

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert with its own early stopping, then rank them by validation loss (or training loss)."""
        scores = []
        for expert in self.experts.values():
            rows = trainer.run(expert, train, validation).rows
            if not rows:  # interrupted before it began: an untrained expert comes last
                scores.append(math.inf)
            elif validation is None:  # the weights of the last epoch stayed
                scores.append(rows[-1]["task"])
            else:  # those of the best one did
                scores.append(min(row["validation_loss"] for row in rows))
        self.ranking.copy_(torch.tensor(scores, dtype=torch.float64).argsort(stable=True))
