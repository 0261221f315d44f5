"""Every setting of training: declared once, with its type, range, default and help.

`Trainer`, the estimators, `compare`, its tuning and the command line derive their arguments from here.

What a user leaves open (None, or "auto") follows the data: `resolve` decides it when a run starts, from the number of
training samples and the optimizer. A budget in steps of the optimizer serves small and large sets alike; one in epochs
does not: a hundred epochs in batches of 64 are two hundred steps on 100 samples, and ninety thousand on 60 000.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from consilience.core.errors import InputError
from consilience.core.settings import Interval, NonNegativeFloat, PositiveFloat, PositiveInt, check_fields
from consilience.corruption.augmentation import Augment, read_augment
from consilience.training.part_names import BY_PART, REST

Optimizer = Literal["adam", "adamw", "sgd", "adagrad", "rmsprop"]
Schedule = Literal["constant", "plateau", "cosine"]
Precision = Literal["32", "bf16", "bf16-true", "16", "64", "bf16-mixed", "16-mixed"]
Balance = Literal["ogm-ge", "mmpareto", "pmr", "agm"]
Decay = Annotated[float, Interval(0, 1, above=True)]
Average = Literal["mean"] | Annotated[float, Interval(0, 1, above=True, below=True)]

# What `resolve` decides by. The budget in steps of the optimizer, where neither steps nor epochs are given:
STEPS = 4000
# Early stopping acts no earlier, where patience is "auto":
LEAST_STEPS = 300
# It then waits for a lower validation loss for so many steps, and so many epochs, at least:
PATIENCE_STEPS, PATIENCE_EPOCHS = 500, 5
# A validation loss of a classification that falls by no more than this, in nats, is no reason to go on: where classes
# are separable it falls for ever.
WORTHWHILE = 1e-3
# A batch is the power of two nearest to this share of the training samples, within these limits:
BATCH_SHARE = 1 / 100
SMALLEST_BATCH, LARGEST_BATCH = 64, 256
# The learning rate of each optimizer:
LEARNING_RATES: dict[Optimizer, float] = {"adam": 1e-3, "adamw": 1e-3, "rmsprop": 1e-3, "adagrad": 1e-2, "sgd": 1e-2}


def _say(rates: Mapping[Optimizer, float]) -> str:
    """In words: the learning rate of adam, and of each optimizer that has another one."""
    others = [f"{rate:g} for {name}" for name, rate in rates.items() if rate != rates["adam"]]
    return ", ".join([f"{rates['adam']:g}", *others])


# What trainings of several models at once must be trained with; a float stands for any number.
ALL_PARTS_ALIKE: dict[str, tuple[Any, ...]] = {
    "lr": (None, float),
    "weight_decay": (float,),
    "layer_decay": (None,),
    "freeze": (None,),
    "gradient_checkpointing": (False,),
}
# Optimizers that take momentum.
WITH_MOMENTUM = ("sgd", "rmsprop")
# What a step that is recorded as a CUDA graph must be trained with.
RECORDED = {
    "precision": ("32", "bf16", "bf16-mixed", "bf16-true", "64"),
    "optimizer": ("adam", "adamw", "sgd", "rmsprop"),
    "accumulate": (1,),
    "devices": (1,),
    "nodes": (1,),
    "strategy": ("auto",),
    "gradient_checkpointing": (False,),  # which saves and restores the device's random state in every step
}
# What a training that freezes parts must be trained with: which gradients processes exchange is settled at its start.
FROZEN = {"devices": (1,), "nodes": (1,), "strategy": ("auto",)}
# What a training that balances modalities must be trained with.
BALANCED = {
    "precision": ("32", "bf16", "bf16-mixed", "64"),
    "accumulate": (1,),
    "devices": (1,),
    "nodes": (1,),
    "cuda_graphs": (False,),
}
# Its strength: α of ogm-ge, pmr and agm, and the factor on the gradients of mmpareto.
BALANCE_STRENGTHS: dict[Balance, float] = {"ogm-ge": 0.3, "mmpareto": 1.5, "pmr": 1.0, "agm": 1.0}
# Settings that change how fast or where a model is trained, but not the numbers that come out.
WITHOUT_EFFECT_ON_NUMBERS = frozenset(
    {
        *("checkpoint_seconds", "verbose", "on_interrupt", "resident", "cuda_graphs", "keep_memory"),
        "gradient_checkpointing",
    }
)


@dataclass(kw_only=True)
class TrainingSettings:
    """How to train. Every field is declared with its type, range and help; values are checked when it is built."""

    epochs: Annotated[
        Annotated[int, Interval(1)] | None,
        "at most this many passes over the training samples; None: as many as `steps` takes",
    ] = None
    steps: Annotated[
        Annotated[int, Interval(1)] | None, f"at most this many steps of the optimizer; None: {STEPS}, or `epochs`"
    ] = None
    time_limit: Annotated[
        Annotated[float, Interval(0, above=True)] | None,
        "seconds after which training ends with the best weights so far, at least one epoch of every run; the result "
        "depends on the machine; None: no limit",
    ] = None
    batch_size: Annotated[
        Annotated[int, Interval(1)] | None,
        f"samples per batch; None: the power of two nearest to a share of {BATCH_SHARE:g} of the training samples, "
        f"{SMALLEST_BATCH} to {LARGEST_BATCH}",
    ] = None
    lr: Annotated[
        PositiveFloat | Mapping[str, PositiveFloat] | None,
        f"learning rate, or one for each part, such as text=2e-5,head=1e-3; None: {_say(LEARNING_RATES)}",
    ] = None
    optimizer: Annotated[Optimizer, "adam, adamw, sgd, adagrad or rmsprop"] = "adam"
    weight_decay: Annotated[
        NonNegativeFloat | Mapping[str, NonNegativeFloat],
        "strength of the pull of the weights towards 0, or one for each part",
    ] = 0.0
    layer_decay: Annotated[
        Decay | Mapping[str, Decay] | None,
        "the learning rate of each layer of a pretrained encoder is that of the next layer times this; by modality for "
        "some encoders, of any kind; None: all layers have the same",
    ] = None
    freeze: Annotated[
        Mapping[str, PositiveInt | str] | None,
        "parts that are frozen for the first epochs: text=3; text=100steps; text=3..6 unfreezes layer by layer; "
        "None: none",
    ] = None
    momentum: Annotated[float, Interval(0, 1, below=True), "momentum of sgd and rmsprop"] = 0.0
    schedule: Annotated[Schedule, "of the learning rate after the warm-up: constant, plateau or cosine"] = "constant"
    warmup: Annotated[float, Interval(0), "epochs over which the learning rate rises"] = 0.0
    patience: Annotated[
        Annotated[int, Interval(1)] | Literal["auto"] | None,
        "epochs without a lower validation loss after which training stops; "
        f"auto: those of {PATIENCE_STEPS} steps, at least {PATIENCE_EPOCHS}, without one that is lower by "
        f"{WORTHWHILE:g} in a classification; None: never",
    ] = "auto"
    least_steps: Annotated[
        Annotated[int, Interval(0)] | None,
        f"early stopping does not end training before that many steps; None: {LEAST_STEPS} if patience is auto, else 0",
    ] = None
    average: Annotated[
        Average | None, "keep averaged weights: mean (of all steps), or the decay of a moving average such as 0.99"
    ] = None
    clip: Annotated[Annotated[float, Interval(0, above=True)] | None, "largest norm of the gradient"] = None
    accumulate: Annotated[int, Interval(1), "batches per step of the optimizer"] = 1
    modality_dropout: Annotated[
        float, Interval(0, 1, below=True), "probability of hiding a modality of a training sample"
    ] = 0.0
    augment: Annotated[
        Augment | None,
        "corruptions of training samples, such as gaussian:0..0.5 or audio=missing:10@0.2",
    ] = None
    balance: Annotated[
        Balance | None,
        "let modalities that learn slowly catch up: ogm-ge, mmpareto, pmr or agm, for methods whose encoders are "
        "trained together; None: no",
    ] = None
    balance_strength: Annotated[
        Annotated[float, Interval(0, above=True)] | None,
        f"how strongly balance acts; None: {', '.join(f'{x:g} for {name}' for name, x in BALANCE_STRENGTHS.items())}",
    ] = None
    precision: Annotated[Precision, "32, bf16, bf16-true, 16 or 64"] = "32"
    device: Annotated[str, "auto, cpu, cuda, cuda:1, …"] = "auto"
    devices: Annotated[int, Interval(1), "devices that train one model"] = 1
    nodes: Annotated[int, Interval(1), "machines that train one model"] = 1
    strategy: Annotated[str, "how several devices share the work, as Lightning Fabric has it: ddp, fsdp, …"] = "auto"
    resident: Annotated[bool | None, "keep a whole set on the device; None: if it fits"] = None
    cuda_graphs: Annotated[bool, "on a CUDA device replay the steps of an epoch from a recorded one"] = False
    gradient_checkpointing: Annotated[
        bool, "compute the layers of pretrained encoders and transformers twice, which takes less memory"
    ] = False
    keep_memory: Annotated[bool, "on a CPU keep the memory that a step frees for the next step"] = True
    seed: Annotated[int, Interval(0), "of initial weights, the order of samples and dropout"] = 0
    checkpoint_seconds: Annotated[float, Interval(0), "seconds between two checkpoints"] = 10.0
    on_interrupt: Annotated[Literal["keep", "raise"], "on Ctrl-C keep the best weights, or raise"] = "keep"
    verbose: Annotated[int, Interval(0), "0: silent, 1: progress, 2: every epoch and part"] = 0

    def __post_init__(self) -> None:
        check_fields(self, "training", TrainingSettings)
        read_augment(self.augment)
        for name in BY_PART:
            if getattr(self, name) == {}:
                raise InputError(f"training: {name} is a mapping without entries: name a part, or give None")
        for part, when in (self.freeze or {}).items():
            read_freeze(part, when)
        if self.freeze is not None and (refusal := self.outside(FROZEN)):
            raise InputError(f"training: with freeze={self.freeze!r} {refusal}")
        if self.cuda_graphs and (refusal := self.outside(RECORDED)):
            raise InputError(f"training: with cuda_graphs=True {refusal}")
        if self.balance is not None and (refusal := self.outside(BALANCED)):
            raise InputError(f"training: with balance={self.balance!r} {refusal}")
        if self.balance is None and self.balance_strength is not None:
            raise InputError(f"training: balance_strength={self.balance_strength} needs a balance to be strong in")
        if self.momentum and self.optimizer not in WITH_MOMENTUM:
            raise InputError(f"training: momentum is for {' and '.join(WITH_MOMENTUM)}, not for {self.optimizer!r}")
        if self.time_limit is not None and self.devices * self.nodes > 1:
            raise InputError("training: a time_limit is for one device, as several would not stop at the same step")
        if self.epochs is not None and self.steps is not None:
            raise InputError(
                f"training: steps={self.steps} and epochs={self.epochs} are two budgets; give one of them, the other "
                "None"
            )
        budget = STEPS if self.steps is None else self.steps
        if self.epochs is None and self.least_steps is not None and self.least_steps > budget:
            raise InputError(f"training: least_steps must be at most steps, {budget}, got {self.least_steps}")

    def outside(self, accepted: Mapping[str, Sequence[Any]]) -> str | None:
        """Return which setting has none of its accepted values, as a message; None if there is no such setting."""
        for name, allowed in accepted.items():
            value = getattr(self, name)
            if value not in allowed and not (type(value) is float and float in allowed):
                words = ["one number for all parts" if each is float else repr(each) for each in allowed]
                return f"{name} must be {' or '.join(words)}, got {value!r}"
        return None

    @property
    def evaluation_batch(self) -> int:
        """Samples per batch where no gradients are needed: larger, since no activations are kept."""
        return max(4 * (self.batch_size or LARGEST_BATCH), 256)

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of a training, for the fingerprint of a checkpoint."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(TrainingSettings)
            if field.name not in WITHOUT_EFFECT_ON_NUMBERS
        }


@dataclass(kw_only=True)
class ResolvedSettings(TrainingSettings):
    """Settings of one run, none of them open. `steps` is None: `epochs` are as many as it takes.

    `lr` and `weight_decay` are those of the parts that `lr_by_part` and `weight_decay_by_part` do not name. Patience
    begins anew when the loss of a classification has fallen by more than `worthwhile`.
    """

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float = 0.0
    patience: int | None
    least_steps: int
    worthwhile: float = 0.0
    lr_by_part: Mapping[str, float] = field(default_factory=dict)
    weight_decay_by_part: Mapping[str, float] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of a training, with those by part as they were given."""
        by_part = {"lr": self.lr_by_part, "weight_decay": self.weight_decay_by_part}
        given = {name: {**parts, REST: getattr(self, name)} for name, parts in by_part.items() if parts}
        return super().settings() | given


def resolve(settings: TrainingSettings, samples: int) -> ResolvedSettings:
    """Return the settings of a run on so many training samples; what the user chose stays as it is.

    Args:
        settings: Settings, some of them open. A `Trainer` is one too.
        samples: Number of training samples of the run.

    Example:
        >>> found = resolve(TrainingSettings(), samples=600)
        >>> found.batch_size, found.epochs, found.patience, found.least_steps, found.lr
        (64, 400, 50, 300, 0.001)
        >>> resolve(TrainingSettings(epochs=7, patience=3), samples=600).epochs
        7
    """
    chosen: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(TrainingSettings)}
    if settings.batch_size is None:
        chosen["batch_size"] = default_batch(samples)
    by_part = {name: getattr(settings, f"{name}_by_part", {}) for name in ("lr", "weight_decay")}
    for name in by_part:
        if isinstance(chosen[name], Mapping):
            by_part[name] = {part: value for part, value in chosen[name].items() if part != REST}
            chosen[name] = chosen[name].get(REST, None if name == "lr" else 0.0)
    if chosen["lr"] is None:
        chosen["lr"] = LEARNING_RATES[settings.optimizer]
    in_epoch = steps_per_epoch(samples, chosen["batch_size"], settings.accumulate)
    budget = STEPS if settings.steps is None else settings.steps
    if settings.epochs is None:
        chosen["epochs"] = math.ceil(budget / in_epoch)
    if settings.least_steps is None:  # a patience in epochs is meant as it is given
        chosen["least_steps"] = min(LEAST_STEPS, budget) if settings.patience == "auto" else 0
    chosen["worthwhile"] = getattr(settings, "worthwhile", None)
    if chosen["worthwhile"] is None:
        chosen["worthwhile"] = WORTHWHILE if settings.patience == "auto" else 0.0
    if settings.patience == "auto":
        chosen["patience"] = max(PATIENCE_EPOCHS, math.ceil(PATIENCE_STEPS / in_epoch))
    chosen |= {f"{name}_by_part": values for name, values in by_part.items()}
    return ResolvedSettings(**{**chosen, "steps": None})


def read_freeze(part: str, when: int | str) -> tuple[int, int, bool]:
    """Return after how many epochs the last layer of a part is trained, and the first one, and whether these are steps.

    Args:
        part: Its name, for messages.
        when: A number of epochs, or a text such as "3", "3..6", "100steps" or "0..100 steps".

    Raises:
        InputError: If the text has another form.

    Example:
        >>> read_freeze("text", 3), read_freeze("text", "0..100 steps")
        ((3, 3, False), (0, 100, True))
    """
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?\s*(steps?|epochs?)?", str(when).strip())
    if found is not None:
        first, last = int(found[1]), int(found[2] or found[1])
        if first <= last and last > 0:
            return first, last, (found[3] or "").startswith("step")
    raise InputError(
        f"training: freeze of {part!r} must be a number of epochs ≥ 1, or have the form FIRST[..LAST][steps] such as "
        f"'3', '3..6' or '100steps', got {when!r}"
    )


def default_batch(samples: int, smallest: int = SMALLEST_BATCH) -> int:
    """Return the samples per batch that follow the number of training samples; the nearest power is by logarithms.

    >>> [default_batch(samples) for samples in (100, 1000, 10_000, 100_000)]
    [64, 64, 128, 256]
    """
    nearest = 2 ** round(math.log2(max(1.0, samples * BATCH_SHARE)))
    return min(max(nearest, smallest), LARGEST_BATCH)


def steps_per_epoch(samples: int, batch_size: int, accumulate: int = 1) -> int:
    """Return the steps of the optimizer in an epoch.

    >>> steps_per_epoch(samples=70, batch_size=8, accumulate=2)
    5
    """
    return max(1, math.ceil(samples / (batch_size * accumulate)))
