"""What a method is: what it is built from, what it returns, what it learns from, and the registry of all of them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.batches import Batch
from consilience.encoders import Encoded, Encoder, EncoderChoice, build_encoder
from consilience.errors import ConsilienceError, InputError, UnsupportedError, unknown_name
from consilience.samples import Kind, Modality, Samples
from consilience.settings import number
from consilience.targets import Task, TaskKind

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


@dataclass
class Spec:
    """What a method is built from: the modalities it will see, the task, and the encoder chosen for each modality."""

    modalities: Mapping[str, Modality]
    task: Task
    encoders: Mapping[str, EncoderChoice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.encoders:
            if name not in self.modalities:
                raise unknown_name("modality", name, self.modalities, "It was given in encoders")

    def build_encoders(self) -> PerModality:
        """One encoder for each modality."""
        return PerModality({name: self.build_encoder(name) for name in self.modalities})

    def build_encoder(self, name: str) -> Encoder:
        """The encoder of one modality: the one chosen, or the default of its kind."""
        return build_encoder(self.modalities[name], self.encoders.get(name))

    def preferring(self, encoders: Mapping[str, EncoderChoice]) -> Spec:
        """The same spec with these encoders for the modalities that none was chosen for."""
        chosen = {name: choice for name, choice in self.encoders.items() if choice is not None}
        return Spec(self.modalities, self.task, {**encoders, **chosen})

    def only(self, *names: str) -> Spec:
        """The same spec with fewer modalities."""
        for name in names:
            if name not in self.modalities:
                raise unknown_name("modality", name, self.modalities)
        return Spec(
            {name: self.modalities[name] for name in names},
            self.task,
            {name: choice for name, choice in self.encoders.items() if name in names},
        )


class PerModality(nn.Module):
    """One module for each modality, found by name.

    Unlike `nn.ModuleDict` it accepts any name ("temp.1", "keys"): the user's columns are named by the user.
    """

    def __init__(self, modules: Mapping[str, nn.Module]):
        super().__init__()
        self.names = tuple(modules)
        self.each = nn.ModuleList(modules.values())

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise unknown_name("modality", name, self.names)
        return self.each[self.names.index(name)]

    def __len__(self) -> int:
        return len(self.names)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and modules in order."""
        return zip(self.names, self.each)

    def values(self) -> Iterator[Any]:
        """Modules in order."""
        return iter(self.each)


class Method(nn.Module):
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
    def reason_against(cls, modalities: Mapping[str, Modality], task: Task) -> str | None:
        """Why this method cannot serve these modalities and this task, or None if it can."""
        if task.kind not in cls.tasks:
            return f"it serves {' and '.join(cls.tasks)}, not {task.kind}"
        if len(modalities) < cls.min_modalities:
            return f"it needs at least {cls.min_modalities} modalities, got {len(modalities)}"
        for modality in modalities.values():
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

    def __init__(self, spec: Spec, *, expert_loss: float = 1.0):
        super().__init__(spec)
        self.encoders = spec.build_encoders()
        self.heads = PerModality(
            {name: nn.Linear(encoder.width, spec.task.outputs) for name, encoder in self.encoders.items()}
        )
        self.expert_loss = number("expert_loss", expert_loss, "≥ 0")

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


def task_losses(task: Task, output: Tensor, batch: Batch) -> Tensor:
    """Each sample's loss `[batch]`: cross entropy of logits, or squared error averaged over targets."""
    assert batch.y is not None
    if task.classification:
        return functional.cross_entropy(output, batch.y, reduction="none")
    return (output - batch.y).square().mean(dim=1)


def expert_losses(task: Task, opinions: Tensor, batch: Batch) -> Tensor:
    """Each expert's loss on each sample: opinions `[batch, modality, class]` → `[batch, modality]`."""
    assert batch.y is not None
    if task.classification:
        targets = batch.y[:, None].expand(opinions.shape[:2])
        return functional.cross_entropy(opinions.transpose(1, 2), targets, reduction="none")
    return (opinions - batch.y[:, None]).square().mean(dim=2)


def weighted_mean(values: Tensor, weight: Tensor, dim: int | None = None) -> Tensor:
    """Σ w·v / Σ w, and 0 where nothing is counted.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])).item()
    1.5
    """
    weight = weight.to(values.dtype)
    total = weight.sum() if dim is None else weight.sum(dim)
    weighed = (values * weight).sum() if dim is None else (values * weight).sum(dim)
    return weighed / torch.where(total > 0, total, 1)  # not a small constant: only ratios of weights may matter


def equal_weights(present: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """1 / (number present), 0 where missing: `[batch, modality]`.

    >>> equal_weights(torch.tensor([[True, True], [False, True]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    there = present.to(dtype)
    return there / there.sum(dim=1, keepdim=True).clamp(min=1)


_Class = TypeVar("_Class", bound=type[Method])
_REGISTRY: dict[str, type[Method]] = {}
# The rooms where methods live. The registry knows the rooms, never what is in them.
_ROOMS = ("fusion", "decision", "feedback", "generative")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*:?")


def register(name: str, *, paper: str = "", equation: str = "") -> Callable[[_Class], _Class]:
    """Put a method into the registry under a name, from the file that defines it.

    A name that ends in a colon is a family: its members are `name:argument` ("unimodal:image"), and its class takes
    the argument after the spec and lists what is possible in `arguments`.
    """
    if not _NAME.fullmatch(name):
        raise ConsilienceError(f"method name {name!r} must be lower-case words joined by hyphens")

    def enter(cls: _Class) -> _Class:
        if name in _REGISTRY:
            raise ConsilienceError(
                f"method {name!r} is registered twice: {_REGISTRY[name].__qualname__} and {cls.__qualname__}"
            )
        cls.name, cls.paper, cls.equation = name, paper, equation
        _REGISTRY[name] = cls
        return cls

    return enter


def load_room(package: str, path: Iterable[str]) -> None:
    """Import every module of a room, so that the methods in it register themselves."""
    for module in pkgutil.iter_modules(path, package + "."):
        importlib.import_module(module.name)


def registry() -> dict[str, type[Method]]:
    """All methods by name, in alphabetical order; other packages join through entry points `consilience.methods`."""
    from importlib.metadata import entry_points

    for room in _ROOMS:
        importlib.import_module(f"consilience.{room}")
    for plugin in entry_points(group="consilience.methods"):
        plugin.load()
    return dict(sorted(_REGISTRY.items()))


def available(modalities: Iterable[str] = ("MODALITY",)) -> list[str]:
    """The names that can be asked for; families are spelled out for the given modalities.

    >>> "unimodal:audio" in available(["audio", "image"])
    True
    """
    names: list[str] = []
    for name, cls in registry().items():
        names += [name + argument for argument in cls.arguments(modalities)] if name.endswith(":") else [name]
    return names


def find(name: str, modalities: Iterable[str] = ("MODALITY",)) -> tuple[type[Method], str | None]:
    """The class of a method, and the argument of a family's member where the class takes one."""
    known = registry()
    family, colon, argument = name.partition(":")
    if colon and family + colon in known:
        member = known[family + colon].member(argument)
        return (known[family + colon], argument) if member is None else (member, None)
    if name + ":" in known:
        members = [f"{name}:{one}" for one in known[name + ":"].arguments(modalities)]
        raise unknown_name("method", name, members, "It is a family: say which of them")
    if name not in known or colon:
        raise unknown_name("method", name, available(modalities))
    return known[name], None


def check_settings(name: str, cls: type[Method], settings: Mapping[str, Any]) -> None:
    """Refuse a setting that the method does not have: its settings are its keyword-only arguments."""
    known = [
        parameter.name
        for parameter in inspect.signature(cls.__init__).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for setting in settings:
        if setting not in known:
            raise unknown_name("setting", setting, known, f"It was given for method {name!r}")


def build(name: str, spec: Spec, settings: Mapping[str, Any] | None = None) -> Method:
    """Build a method by name, checking that it serves the task and that its settings exist.

    >>> import numpy as np
    >>> spec = Spec({"a": Modality("a", "vector", (3,))}, Task.of_labels(np.array([0, 1])))
    >>> type(build("concat", spec, {"width": 8})).__name__
    'Concat'
    """
    cls, argument = find(name, spec.modalities)
    given = dict(settings or {})
    check_settings(name, cls, given)
    reason = cls.reason_against(spec.modalities, spec.task)
    if reason is not None:
        raise UnsupportedError(f"method {name!r} cannot be used here: {reason}")
    try:
        return cls(spec, **given) if argument is None else cls(spec, argument, **given)  # type: ignore[call-arg]
    except ConsilienceError as error:
        if type(error) is not InputError or str(error).startswith(("method", "encoder")):
            raise
        raise InputError(f"method {name!r}: {error}") from error
    except (TypeError, ValueError, RuntimeError) as error:  # what torch says to a width of -1 or a dropout of 2
        raise InputError(f"method {name!r} does not accept these settings {given}: {error}") from error
