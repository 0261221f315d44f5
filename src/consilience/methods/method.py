"""The base class of methods, and of the two usual kinds: those that join features, and those that join opinions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Kind, Samples
from consilience.core.settings import DeclaredSettings, NonNegativeFloat
from consilience.core.targets import TaskKind
from consilience.encoders import Encoded, Encoder, gives_features
from consilience.methods.losses import expert_losses, task_losses, weighted_mean
from consilience.methods.spec import PerModality, Spec

if TYPE_CHECKING:  # training lies below; a method only names its types
    from consilience.training import LossHistory, Trainer


@dataclass
class Prediction:
    """What a method returns for a batch.

    Args:
        output: Logits `[batch, class]`, or numbers `[batch, target]`.
        opinions: Logits of each expert `[batch, modality, class]`.
        weights: Unnormalised fusion weights `[batch, modality]`, 0 where a modality is missing.
        features: Name → `Encoded`.
        joint: Fused representation `[batch, width]`.
        extra: Anything else.
    """

    output: Tensor
    opinions: Tensor | None = None
    weights: Tensor | None = None
    features: Mapping[str, Encoded] | None = None
    joint: Tensor | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Step:
    """The state of training: epoch (from 0), number of epochs, name of the phase, and the loss history if kept."""

    epoch: int = 0
    epochs: int = 1
    phase: str = "fit"
    history: LossHistory | None = None


class Method(DeclaredSettings, nn.Module):
    """The base class of all methods.

    A subclass takes a `Spec` and its settings as keyword-only arguments, which are checked against their annotations,
    and defines `forward`. It may override the loss (`objective`) and the training (`fit`).

    Attributes:
        tasks: Supported kinds of task.
        reads: Supported kinds of modality.
        min_modalities: Smallest number of modalities.
        size: The setting that makes the method wider, if that is not the width of its encoders.
        needs_targets: Whether it cannot be trained without y.
        takes_trees: Whether it has experts that are trained one by one, which may be decision trees.
        trains_by_gradients: Whether the training loop trains it. If not, `learn_at_once` does.
        cross_entropy_alone: Whether its objective for a classification is the cross-entropy of one perceptron, whose
            input `stacked_input` returns. A subclass must say so itself.
        common_expert: Whether it is an expert that several methods train in the same way, so that a comparison trains
            it once for all of them.
        ignored_worst: Share of the validation samples, at most 0.05, whose large losses early stopping ignores.
        by_turns: Whether its modalities are trained by turns, so that no training can balance them.
        keeps_history: Whether `objective` uses `step.history`, which needs opinions.
        logs_shares: Whether `objective` leaves shares for the training log in `prediction.extra["shares"]`.
        weights_are_reliabilities: Whether the weights are the probabilities that a modality is sound.
        history_start: First epoch that the history counts, from 1.
        history_length: Number of epochs that the history counts; None: all.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    equation: ClassVar[str] = ""
    tasks: ClassVar[tuple[TaskKind, ...]] = ("classification", "regression")
    reads: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence", "tokens")
    min_modalities: ClassVar[int] = 1
    size: ClassVar[str | None] = None
    needs_targets: ClassVar[bool] = True
    takes_trees: ClassVar[bool] = False
    trains_by_gradients: ClassVar[bool] = True
    cross_entropy_alone: ClassVar[bool] = False
    common_expert: ClassVar[bool] = False
    ignored_worst: ClassVar[float] = 0.0
    weights_are_reliabilities: ClassVar[bool] = False
    by_turns: ClassVar[bool] = False
    keeps_history: bool = False
    logs_shares: bool = False
    history_start: int = 1
    history_length: int | None = None

    def __init__(self, spec: Spec):
        super().__init__()
        self.names = tuple(spec.modalities)
        self.modalities = dict(spec.modalities)
        self.task = spec.task

    def forward(self, batch: Batch) -> Prediction:
        """Fuse a batch. A missing modality is zeros in the batch and False in `batch.present`."""
        raise NotImplementedError

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Return named losses, whose sum is minimised. By default the loss of the task on the output."""
        return {"task": weighted_mean(task_losses(self.task, prediction.output, batch), batch.weight)}

    def validation_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """Return the loss of each sample `[batch]` for early stopping. By default the loss of the task."""
        return task_losses(self.task, prediction.output, batch)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Train on samples. By default one run of the training loop."""
        trainer.run(self, train, validation)

    def check_samples(self, samples: Samples) -> None:
        """Raise an error for training or validation samples that the method must not be trained with; by default none.

        Called before every run of the training loop.
        """

    def needs_validation(self, train: Samples, trainer: Trainer) -> bool:
        """Return whether training on these samples is stopped by validation samples, if there are any."""
        return True

    def stacked_input(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return what the perceptron reads `[trial, batch, feature]`, if it is all there is (`cross_entropy_alone`)."""
        raise NotImplementedError

    def stacked_presence(self, present: Tensor | None) -> Tensor | None:
        """Return which samples `[trial, batch]` its objective counts, from `[trial, batch, modality]`; None: all."""
        return None

    def learn_at_once(self, train: Samples, trainer: Trainer) -> None:
        """Learn from samples without the training loop, for a method that does not train by gradients."""
        raise NotImplementedError

    def refit(self, samples: Samples, trainer: Trainer) -> None:
        """Train once more on all samples, those that stopped training early among them, for a known number of steps.

        By default `fit` without validation samples. The trainer ends each of its runs after the steps that the run in
        the same place took where early stopping chose them, so `fit` must train in the same order as with validation
        samples. Experts that are cross-fitted in lockstep are stopped by their own held-out samples, as always. A
        method that chooses anything else by validation samples overrides this.

        Args:
            samples: Training and validation samples.
            trainer: Its `refit_steps` are those of each run.
        """
        self.fit(samples, None, trainer)

    def held_out_output(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Return outputs for training samples by parts of the method that did not learn from them.

        A method that cross-fits has them after `fit`, until `forget_held_out` is called; others return None.

        Args:
            rows: Training samples `[k]`.
            present: Which of their modalities to use, booleans `[k, modality]`.

        Returns:
            The output `[k, output]`, or None.
        """
        return None

    def held_out_variance(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Return the variances `[k, target]` of the numbers that `held_out_output` returns, if the method has them."""
        return None

    def held_out_weights(self, rows: np.ndarray, present: np.ndarray) -> Tensor | None:
        """Return the weights `[k, modality]` that belong to `held_out_output`, if the method has them."""
        return None

    def forget_held_out(self) -> None:
        """Free what `held_out_output` needs."""

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """Return the possible arguments of a family (`name:argument`)."""
        return []

    @classmethod
    def member(cls, argument: str) -> type[Method] | None:
        """Return the class of a member of a family; None if this class takes the argument."""
        return None

    def saved_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for saving: those by which the method is built again without any other file."""
        return dict(settings)

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Return why the method does not support a spec, or None if it does."""
        if spec.task.kind not in cls.tasks:
            return f"it serves {' and '.join(cls.tasks)}, not {spec.task.kind}"
        if len(spec.modalities) < cls.min_modalities:
            return f"it needs at least {cls.min_modalities} modalities, got {len(spec.modalities)}"
        for modality in spec.modalities.values():
            if modality.kind not in cls.reads:
                return f"it reads {', '.join(cls.reads)}, not {modality.describe()}"
        return cls._reason_against_trees(spec)

    @classmethod
    def _reason_against_trees(cls, spec: Spec) -> str | None:
        """Why the method cannot use an encoder without features that was chosen, if one was."""
        without = [name for name, choice in spec.encoders.items() if not gives_features(spec.modalities[name], choice)]
        if not without:
            return None
        if not spec.task.classification:
            return f"the encoder 'trees' of modality {without[0]!r} serves classification, not {spec.task.kind}"
        if cls.takes_trees:
            return None
        from consilience.methods.registration import METHODS  # it imports this file

        taking = ", ".join(f"{name}NAME" if name[-1] == ":" else name for name in METHODS if METHODS[name].takes_trees)
        return (
            f"the encoder 'trees' of modality {without[0]!r} gives an opinion and no features to train through. "
            f"Methods with separate experts take it: {taking}"
        )


class JointMethod(Method):
    """A method that joins features: encoders → fusion → head.

    A subclass sets `self.fusion`, a module that takes name → `Encoded` and the batch and returns the joint
    representation `[batch, width]`, and `self.head`. To change more, override `represent`, `read` or `opine`, not
    `forward`: progressive fusion repeats `represent` and the fusion, and calls `read` once.
    """

    fusion: nn.Module
    head: nn.Module

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.encoders = spec.build_encoders()
        # Choices of the user or the method that can be built again, which a module of the user's cannot.
        self.choices = {name: choice for name, choice in spec.encoders.items() if not isinstance(choice, nn.Module)}

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """Return the features of each modality."""
        return {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """Return the prediction from the joint representation `[batch, width]`."""
        return Prediction(self.head(joint), features=features, joint=joint)

    def opine(self, features: Mapping[str, Encoded]) -> Tensor | None:
        """Return the opinions of each modality alone `[batch, modality, class]`, if the method has heads for that.

        Progressive fusion calls this in the first pass: later, the features of a modality depend on the others.
        """
        return None

    def forward(self, batch: Batch) -> Prediction:
        """Encode each modality, fuse, predict."""
        features = self.represent(batch)
        prediction = self.read(self.fusion(features, batch), features, batch)
        if prediction.opinions is None:
            prediction.opinions = self.opine(features)
        return prediction


class ExpertMethod(Method):
    """A method that joins opinions: an expert (encoder and linear head) per modality, then `combine`.

    Args:
        spec: The modalities, the task and the encoders.
        expert_loss: Weight of the losses of the single experts beside the loss of the fused output. Without them an
            expert only learns what the others do not explain, and is of little use when one of them is missing.
    """

    def __init__(self, spec: Spec, *, expert_loss: NonNegativeFloat = 1.0):
        super().__init__(spec)
        self.encoders = spec.build_encoders()
        self.heads = PerModality(
            {name: nn.Linear(encoder.width, spec.task.outputs) for name, encoder in self.encoders.items()}
        )
        self.expert_loss = expert_loss

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return output `[batch, class]` and weights `[batch, modality]` of opinions `[batch, modality, class]`."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Prediction:
        """Compute the opinion of every expert, and combine them."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        opinions = torch.stack([head(features[name].pooled) for name, head in self.heads.items()], dim=1)
        output, weights = self.combine(opinions, batch)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Return the loss of the fused output, and of every expert on the samples that have its modality."""
        losses = super().objective(prediction, batch, step)
        if self.expert_loss:
            assert prediction.opinions is not None
            own = expert_losses(self.task, prediction.opinions, batch)
            if self.keeps_history:  # which uses the same losses
                prediction.extra = {**prediction.extra, "expert_losses": own.detach()}
            losses["experts"] = self.expert_loss * weighted_mean((own * batch.present).sum(dim=1), batch.weight)
        return losses


def encode(encoder: Encoder, batch: Batch, name: str) -> Encoded:
    """Encode one modality of a batch: the encoder runs on the samples that have it, the others get zeros.

    A missing image then does not change batch statistics, and attention never sees an empty text.
    """
    x, lengths = batch[name], batch.lengths.get(name)
    if name in batch.complete:
        return encoder(x, lengths)
    present = batch.present_in(name)
    if batch.stacked:  # rows cannot be selected: encode all of them, and set those without the modality to zero
        return _zero_missing(encoder(x, None if lengths is None else lengths.clamp(min=1)), present)
    rows = present.nonzero()[:, 0]
    if len(rows) == len(batch):
        return encoder(x, lengths)
    if len(rows) == 0:
        like = next(encoder.parameters(), x if x.is_floating_point() else torch.empty(0))
        nothing = torch.zeros(len(batch), 1, encoder.width, dtype=like.dtype, device=x.device)
        return Encoded(nothing[:, 0], nothing, torch.zeros(len(batch), 1, dtype=torch.bool, device=x.device))
    some = encoder(x[rows], None if lengths is None else lengths[rows])

    def spread(part: Tensor) -> Tensor:
        return part.new_zeros(len(batch), *part.shape[1:]).index_copy(0, rows, part)

    return Encoded(
        spread(some.pooled),
        None if some.sequence is None else spread(some.sequence),
        None if some.mask is None else spread(some.mask),
    )


def _zero_missing(encoded: Encoded, present: Tensor) -> Encoded:
    def zero(part: Tensor | None) -> Tensor | None:
        if part is None:
            return None
        there = present.view(-1, *[1] * (part.ndim - 1))
        return part & there if part.dtype is torch.bool else part.masked_fill(~there, 0)  # ONNX selects no booleans

    pooled = zero(encoded.pooled)
    assert pooled is not None
    return Encoded(pooled, zero(encoded.sequence), zero(encoded.mask))
