"""What a method is: what it returns and what it learns from; and the two usual sorts, joining features or opinions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.samples import Kind, Samples
from consilience.core.settings import DeclaredSettings, NonNegativeFloat
from consilience.core.targets import TaskKind
from consilience.encoders import Encoded, Encoder
from consilience.methods.losses import expert_losses, task_losses, weighted_mean
from consilience.methods.spec import PerModality, Spec

if TYPE_CHECKING:  # training lies below; a method only names its types
    from consilience.training import LossHistory, Trainer


@dataclass
class Prediction:
    """What a method has to say about a batch.

    output: `[batch, class]` logits (their softmax is the probability) or `[batch, target]` numbers ·
    opinions: `[batch, modality, class]` each expert's logits · weights: `[batch, modality]` the raw fusion weights, 0
    where missing · features: name → `Encoded` · joint: `[batch, width]` the fused representation · extra: the rest.
    """

    output: Tensor
    opinions: Tensor | None = None
    weights: Tensor | None = None
    features: Mapping[str, Encoded] | None = None
    joint: Tensor | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Step:
    """Where training stands: epoch (from 0) of epochs, the phase's name, the loss history if the method keeps one."""

    epoch: int = 0
    epochs: int = 1
    phase: str = "fit"
    history: LossHistory | None = None


class Method(DeclaredSettings, nn.Module):
    """A named way to fuse that can be trained and compared: the smallest contract that expresses all of them.

    A subclass takes a `Spec` and its own settings as keyword-only arguments, and defines `forward`. It may change
    what is learned (`objective`) and how (`fit`). Class attributes say what it serves.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    equation: ClassVar[str] = ""
    tasks: ClassVar[tuple[TaskKind, ...]] = ("classification", "regression")
    reads: ClassVar[tuple[Kind, ...]] = ("vector", "image", "sequence", "tokens")
    min_modalities: ClassVar[int] = 1
    size: ClassVar[str | None] = None  # the setting that makes it wider, where that is not its encoders' width
    needs_targets: ClassVar[bool] = True  # whether there is nothing to learn from samples without y
    ignored_worst: ClassVar[float] = 0.0  # share of validation samples, at most .05, too bad to stop by
    keeps_history: bool = False  # whether objective() wants step.history (needs opinions)
    history_start: int = 1  # the first epoch that the history counts, from 1
    history_length: int | None = None  # how many epochs it counts from there, all if None

    def __init__(self, spec: Spec):
        super().__init__()
        self.names = tuple(spec.modalities)
        self.modalities = dict(spec.modalities)
        self.task = spec.task

    def forward(self, batch: Batch) -> Prediction:
        """Fuse a batch. Missing modalities are zeros in the batch and False in `batch.present`."""
        raise NotImplementedError

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """Named losses, whose sum is minimised. By default the task's own loss on the output."""
        return {"task": weighted_mean(task_losses(self.task, prediction.output, batch), batch.weight)}

    def validation_losses(self, prediction: Prediction, batch: Batch) -> Tensor:
        """What early stopping goes by, each sample's loss `[batch]`. By default the task's own."""
        return task_losses(self.task, prediction.output, batch)

    def fit(self, train: Samples, validation: Samples | None, trainer: Trainer) -> None:
        """Learn from samples. By default one run of the training loop."""
        trainer.run(self, train, validation)

    @classmethod
    def arguments(cls, modalities: Iterable[str]) -> list[str]:
        """For a family (`name:argument`): the arguments it can be asked for with."""
        return []

    @classmethod
    def member(cls, argument: str) -> type[Method] | None:
        """For a family whose members are classes of their own: one of them. None: this class takes the argument."""
        return None

    @classmethod
    def reason_against(cls, spec: Spec) -> str | None:
        """Why this method cannot serve such modalities, task and encoders, or None if it can."""
        if spec.task.kind not in cls.tasks:
            return f"it serves {' and '.join(cls.tasks)}, not {spec.task.kind}"
        if len(spec.modalities) < cls.min_modalities:
            return f"it needs at least {cls.min_modalities} modalities, got {len(spec.modalities)}"
        for modality in spec.modalities.values():
            if modality.kind not in cls.reads:
                return f"it reads {', '.join(cls.reads)}, not {modality.describe()}"
        return None


class JointMethod(Method):
    """A method that joins features: encoders → fusion → head.

    A subclass sets `self.fusion`, a module called with name → `Encoded` and the batch that returns the joint
    representation `[batch, width]`, and `self.head`. Where more happens it overrides `represent`, `read` or `opine`,
    not `forward`: progressive fusion repeats `represent` and the fusion, and reads once.
    """

    fusion: nn.Module
    head: nn.Module

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.encoders = spec.build_encoders()
        # As chosen by the user or preferred by the method; a module of the user's own is no choice to repeat.
        self.choices = {name: one for name, one in spec.encoders.items() if not isinstance(one, nn.Module)}

    def represent(self, batch: Batch) -> dict[str, Encoded]:
        """Each modality's features, as the fusion wants them."""
        return {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}

    def read(self, joint: Tensor, features: Mapping[str, Encoded], batch: Batch) -> Prediction:
        """The joint representation `[batch, width]` as a prediction."""
        return Prediction(self.head(joint), features=features, joint=joint)

    def opine(self, features: Mapping[str, Encoded]) -> Tensor | None:
        """Opinions of each modality alone, `[batch, modality, class]`, where a method has heads for that.

        In a loop they are asked of the first pass: after it, no modality's features are its own alone.
        """
        return None

    def forward(self, batch: Batch) -> Prediction:
        """Encode each modality, join, read out."""
        features = self.represent(batch)
        prediction = self.read(self.fusion(features, batch), features, batch)
        if prediction.opinions is None:
            prediction.opinions = self.opine(features)
        return prediction


class ExpertMethod(Method):
    """A method that joins opinions: an expert (encoder and linear head) per modality, then `combine`.

    expert_loss: weight of the experts' own losses beside the loss of the fused output. Without them the experts
    only learn what the others leave over, and are of little use when one of them is missing.
    """

    def __init__(self, spec: Spec, *, expert_loss: NonNegativeFloat = 1.0):
        super().__init__(spec)
        self.encoders = spec.build_encoders()
        self.heads = PerModality(
            {name: nn.Linear(encoder.width, spec.task.outputs) for name, encoder in self.encoders.items()}
        )
        self.expert_loss = expert_loss

    def combine(self, opinions: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Opinions `[batch, modality, class]` → output `[batch, class]` and weights `[batch, modality]`."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Prediction:
        """Hear every expert, then combine."""
        features = {name: encode(encoder, batch, name) for name, encoder in self.encoders.items()}
        opinions = torch.stack([head(features[name].pooled) for name, head in self.heads.items()], dim=1)
        output, weights = self.combine(opinions, batch)
        return Prediction(output, opinions=opinions, weights=weights, features=features)

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        """The loss of the fused output, and of every expert on the samples that have its modality."""
        losses = super().objective(prediction, batch, step)
        if self.expert_loss:
            assert prediction.opinions is not None
            own = expert_losses(self.task, prediction.opinions, batch)
            if self.keeps_history:  # which wants the same numbers
                prediction.extra = {**prediction.extra, "expert_losses": own.detach()}
            losses["experts"] = self.expert_loss * weighted_mean((own * batch.present).sum(dim=1), batch.weight)
        return losses


def encode(encoder: Encoder, batch: Batch, name: str) -> Encoded:
    """Encode one modality of a batch, running the encoder on the samples that have it; the others get zeros.

    So that an absent image moves no batch statistics, and an absent text is no empty sequence to attend to.
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
        like = next(encoder.parameters(), torch.empty(0))
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
        return None if part is None else part.masked_fill(~present.view(-1, *[1] * (part.ndim - 1)), 0)

    pooled = zero(encoded.pooled)
    assert pooled is not None
    return Encoded(pooled, zero(encoded.sequence), zero(encoded.mask))
