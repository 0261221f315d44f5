"""`unimodal:NAME` and `best-unimodal`: the experts alone, and the best of them. The baselines of every fusion."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.errors import UnsupportedError, unknown_name
from consilience.core.samples import Samples
from consilience.data.folds import most_folds
from consilience.encoders import expert_kind
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
from consilience.training import Log, Trainer
from consilience.training.lockstep import CrossFit, cross_fit_as_in, cross_fit_in_lockstep, reason_alone
from consilience.training.trainer import split_folds

logger = logging.getLogger("consilience")
FOR_EXPERTS = 0.85  # of a time limit: what is learned from their opinions takes the rest
_RANKING_FOLDS = 5  # of a refit, one of which ranks the experts


@register("unimodal:", equation="z = P h_NAME")
class Unimodal(Method):
    """The expert of one modality, an encoder and a linear head.

    It is trained on the samples that have the modality; where the modality is missing, the output is the head's bias.

        z = P h_NAME         L = ℓ(z, y)

    The encoders `trees`, `linear` and `auto` have experts of their own for a classification: decision trees, a logistic
    regression, and a pool of both with a network.
    """

    takes_trees = True
    cross_entropy_alone = True
    common_expert = True

    def __new__(cls, spec: Spec | None = None, modality: str = "") -> Unimodal:
        """Choose the class of the expert by the modality's encoder; without arguments, as in copying, this one."""
        if spec is None or modality not in spec.modalities:
            return super().__new__(cls)
        kind = expert_kind(spec.modalities[modality], spec.encoders.get(modality))
        if kind == "trees" and not spec.task.classification:
            raise UnsupportedError(
                f"the encoder 'trees' of modality {modality!r} serves classification, not {spec.task.kind}"
            )
        if kind is None or not spec.task.classification:  # an expert of numbers may be of a class with variances
            return super().__new__(cls)
        return super().__new__(_expert_class(kind))

    def __init__(self, spec: Spec, modality: str):
        super().__init__(spec)
        if modality not in spec.modalities:
            raise unknown_name("modality", modality, spec.modalities, "It was given in 'unimodal:NAME'")
        self.modality = modality
        self.encoder = spec.build_encoder(modality)
        self.head = nn.Linear(self.encoder.width, spec.task.outputs)

    def forward(self, batch: Batch) -> Prediction:
        """Encode the one modality, apply the head."""
        encoded = encode(self.encoder, batch, self.modality)
        return Prediction(self.head(encoded.pooled), features={self.modality: encoded}, joint=encoded.pooled)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The task's loss on the samples that have the modality."""
        losses = task_losses(self.task, prediction.output, batch) * batch.present_in(self.modality)
        return {"task": weighted_mean(losses, batch.weight)}

    def stacked_input(self, values: Mapping[str, Tensor]) -> Tensor:
        """The one modality."""
        return values[self.modality].flatten(2)

    def stacked_presence(self, present: Tensor | None) -> Tensor | None:
        """The samples that have it; no other modality is there."""
        return None if present is None else present[..., 0]

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Learn from the samples that have the modality, and stop early by them."""
        self.run(train, validation, trainer)

    def run(self, train: Samples, validation: Samples | None, trainer: Trainer) -> Log:
        """Fit, and return the log of the training."""
        rows = samples_with(train, self.modality)
        held_out = None if validation is None else samples_with(validation, self.modality)
        return trainer.run(self, rows or train, held_out)

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> CrossFit | None:
        """Train on all samples, and a copy without each fold.

        Where they can be stacked, they are trained in lockstep and stopped by their held-out loss. Elsewhere the expert
        is trained alone first, stopped by the validation samples, and each copy then for as many epochs.

        Args:
            make: Builds an untrained copy.
            train: Training samples.
            validation: Samples for early stopping, where it is needed.
            trainer: How to train.
            folds: Number of folds.

        Returns:
            The copies and their held-out opinions; None after an interruption.
        """
        if reason_alone(self, train, trainer) is None:
            return cross_fit_in_lockstep(self, make, train, trainer, folds)
        first = trainer.part(1 / folds)  # of 1 training of all samples and `folds` of a share of 1 − 1/folds
        return cross_fit_as_in(self.run(train, validation, first), make, train, trainer, folds)

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """Any modality."""
        return list(modalities)


class SeparateExperts(Method):
    """A method whose experts are trained alone, one for each modality, before their fusion is learned.

    Args:
        spec: The modalities, the task and the encoders.
        expert: The class of the experts.
    """

    takes_trees = True

    def __init__(self, spec: Spec, expert: type[Unimodal] = Unimodal):
        super().__init__(spec)
        self.spec, self.expert = spec, expert
        self.experts = PerModality({name: expert(spec, name) for name in spec.modalities})

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Each expert's own loss, for a training loop of the user's; `fit` trains them one by one."""
        assert prediction.opinions is not None
        losses = expert_losses(self.task, prediction.opinions, batch) * batch.present
        return {name: weighted_mean(own, batch.weight) for name, own in zip(self.names, losses.T)}

    def needs_validation(self, train: Samples, trainer: Trainer) -> bool:
        """Whether an expert is trained alone before its copies are; in lockstep, held-out samples stop the training."""
        return any(
            expert.trains_by_gradients and reason_alone(expert, train, trainer) is not None
            for expert in self.experts.values()
        )

    def cross_fit(
        self, train: Samples, validation: Samples | None, trainer: Trainer, folds: int
    ) -> Iterator[tuple[np.ndarray, Sequence[Method], np.ndarray]]:
        """Cross-fit one expert after the other.

        Yields:
            Out-of-fold opinions `[n, output]`, the experts of the folds, and each sample's fold `[n]`. An interruption
            ends the iteration early.
        """
        within = trainer.part(FOR_EXPERTS)
        for number, (name, expert) in enumerate(self.experts.items()):
            make = partial(self.expert, self.spec, name)
            found = expert.cross_fit(make, train, validation, within.part(1 / (len(self.experts) - number)), folds)
            if found is None:
                logger.warning("%s was interrupted: experts as trained so far, not calibrated", self.name)
                return
            yield found.held_out.double().numpy(), found.methods, found.fold_of


@register("best-unimodal", equation="z = z_k, k the first in S of the experts ranked by validation loss")
class BestUnimodal(SeparateExperts):
    """Every expert trained alone; the one with the lowest validation loss decides, or the next best that is present.

    Each expert has early stopping of its own. Without a validation set the training loss ranks them. The weight is 1
    for the expert that decided and 0 for the others.

        z = z_k,   k = the first in S of the experts ranked by validation loss
    """

    ranking: Tensor

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.register_buffer("ranking", torch.arange(len(self.experts)))

    def forward(self, batch: Batch) -> Prediction:
        """The opinion of the best expert whose modality is present."""
        opinions = torch.stack([expert(batch).output for expert in self.experts.values()], dim=1)
        ranked = batch.present[:, self.ranking]
        chosen = self.ranking[ranked.to(torch.uint8).argmax(dim=1)]
        weights = functional.one_hot(chosen, len(self.experts)).to(opinions.dtype) * batch.present
        output = opinions[torch.arange(batch.n, device=batch.device), chosen]
        return Prediction(output, opinions=opinions, weights=weights)

    def needs_validation(self, train: Samples, trainer: Trainer) -> bool:
        """Yes, to rank the experts."""
        return True

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train each expert with its own early stopping, then rank them by validation loss (or training loss)."""
        scores = []
        for number, expert in enumerate(self.experts.values()):
            rows = expert.run(train, validation, trainer.part(1 / (len(self.experts) - number))).rows
            validated = [row["validation_loss"] for row in rows if "validation_loss" in row]
            if validated:  # the weights of the best epoch were kept
                scores.append(min(validated))
            elif rows and validation is None:  # those of the last epoch were
                scores.append(rows[-1]["task"])
            else:  # interrupted before it began, or nothing to rank it by: it comes last
                scores.append(math.inf)
        self.ranking.copy_(torch.tensor(scores, dtype=torch.float64).argsort(stable=True))

    def refit(self, samples: Samples, trainer: Trainer) -> None:
        """Rank experts that have not seen a fifth of the samples by that fifth, then train them on all samples."""
        fold = split_folds(samples, self.task, most_folds(samples, _RANKING_FOLDS), trainer.seed)
        learned, held_out = (samples.select(np.flatnonzero(chosen)) for chosen in (fold != 0, fold == 0))
        ranked = deepcopy(self)
        ranked.fit(learned, held_out, replace(trainer, logs=[]))  # as the losses of the training rank overfitting
        self.fit(samples, None, trainer)
        self.ranking.copy_(ranked.ranking)


def samples_with(samples: Samples, modality: str) -> Samples | None:
    """Return the samples that have a modality, or None if none has it."""
    present = samples.present_in(modality)
    if present.all():
        return samples
    return samples[present] if present.any() else None


def _expert_class(kind: str) -> type[Unimodal]:
    """The class of an expert that is not a network; their files import this one."""
    from consilience.methods.opinions.linear_expert import LinearExpert
    from consilience.methods.opinions.pooled_expert import PooledExpert
    from consilience.methods.opinions.tree_expert import TreeExpert

    return {"trees": TreeExpert, "linear": LinearExpert, "pool": PooledExpert}[kind]
