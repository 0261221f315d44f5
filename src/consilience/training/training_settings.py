"""Every setting of training: declared once, with its type, range, default and help.

`Trainer`, the estimators, `compare`, its tuning and the command line derive their arguments from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from consilience.core.errors import InputError
from consilience.core.settings import Interval, check_fields
from consilience.corruption.augmentation import Augment, read_augment

Optimizer = Literal["adam", "adamw", "sgd", "adagrad", "rmsprop"]
Schedule = Literal["constant", "plateau", "cosine"]
Precision = Literal["32", "bf16", "bf16-true", "16", "64", "bf16-mixed", "16-mixed"]
Average = Literal["mean"] | Annotated[float, Interval(0, 1, above=True, below=True)]

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
}
# Settings that change how fast or where a model is trained, but not the numbers that come out.
WITHOUT_EFFECT_ON_NUMBERS = frozenset(
    {"checkpoint_seconds", "verbose", "on_interrupt", "resident", "cuda_graphs", "keep_memory"}
)


@dataclass(kw_only=True)
class TrainingSettings:
    """How to train. Every field is declared with its type, range and help; values are checked when it is built."""

    epochs: Annotated[int, Interval(1), "at most this many passes over the training samples"] = 100
    batch_size: Annotated[int, Interval(1), "samples per batch"] = 64
    lr: Annotated[float, Interval(0, above=True), "learning rate"] = 1e-3
    optimizer: Annotated[Optimizer, "adam, adamw, sgd, adagrad or rmsprop"] = "adam"
    weight_decay: Annotated[float, Interval(0), "strength of the pull of the weights towards 0"] = 0.0
    momentum: Annotated[float, Interval(0, 1, below=True), "momentum of sgd and rmsprop"] = 0.0
    schedule: Annotated[Schedule, "of the learning rate after the warm-up: constant, plateau or cosine"] = "constant"
    warmup: Annotated[float, Interval(0), "epochs over which the learning rate rises"] = 0.0
    patience: Annotated[
        Annotated[int, Interval(1)] | None,
        "epochs without a lower validation loss after which training stops; None: never",
    ] = 15
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
    precision: Annotated[Precision, "32, bf16, bf16-true, 16 or 64"] = "32"
    device: Annotated[str, "auto, cpu, cuda, cuda:1, …"] = "auto"
    devices: Annotated[int, Interval(1), "devices that train one model"] = 1
    nodes: Annotated[int, Interval(1), "machines that train one model"] = 1
    strategy: Annotated[str, "how several devices share the work, as Lightning Fabric has it: ddp, fsdp, …"] = "auto"
    resident: Annotated[bool | None, "keep a whole set on the device; None: if it fits"] = None
    cuda_graphs: Annotated[bool, "on a CUDA device replay the steps of an epoch from a recorded one"] = False
    keep_memory: Annotated[bool, "on a CPU keep the memory that a step frees for the next step"] = True
    seed: Annotated[int, Interval(0), "of initial weights, the order of samples and dropout"] = 0
    checkpoint_seconds: Annotated[float, Interval(0), "seconds between two checkpoints"] = 10.0
    on_interrupt: Annotated[Literal["keep", "raise"], "on Ctrl-C keep the best weights, or raise"] = "keep"
    verbose: Annotated[int, Interval(0), "0: silent, 1: progress"] = 0

    def __post_init__(self) -> None:
        check_fields(self, "training", TrainingSettings)
        read_augment(self.augment)
        if self.cuda_graphs and (refusal := self.outside(RECORDED)):
            raise InputError(f"training: with cuda_graphs=True {refusal}")
        if self.momentum and self.optimizer not in WITH_MOMENTUM:
            raise InputError(f"training: momentum is for {' and '.join(WITH_MOMENTUM)}, not for {self.optimizer!r}")

    def outside(self, accepted: Mapping[str, Sequence[Any]]) -> str | None:
        """Return which setting has none of its accepted values, as a message; None if there is no such setting."""
        for name, allowed in accepted.items():
            if (value := getattr(self, name)) not in allowed:
                return f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}"
        return None

    @property
    def evaluation_batch(self) -> int:
        """Samples per batch where no gradients are needed: larger, since no activations are kept."""
        return max(4 * self.batch_size, 256)

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of a training, for the fingerprint of a checkpoint."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(TrainingSettings)
            if field.name not in WITHOUT_EFFECT_ON_NUMBERS
        }
