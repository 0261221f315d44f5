"""How to train: every knob in one place, and runs of the loop on one device or many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples
from consilience.core.settings import yes_or_no
from consilience.core.targets import Task
from consilience.methods import Method, Prediction
from consilience.preparation import Preparation
from consilience.training.cuda_graphs import OPTIMIZERS as RECORDED_OPTIMIZERS
from consilience.training.cuda_graphs import PRECISIONS as RECORDED_PRECISIONS
from consilience.training.devices import INPUT_TYPES, PRECISIONS, build_fabric, launch, memory_advice, resolve_device
from consilience.training.feed import Feed
from consilience.training.loop import Log, Loop
from consilience.training.memory import kept_memory
from consilience.training.optimizers import OPTIMIZERS, SCHEDULES, WITH_MOMENTUM
from consilience.training.phases import Phase
from consilience.training.seeding import seeded
from consilience.training.weight_averaging import Average, is_average

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_INTERRUPT = ("keep", "raise")


@dataclass
class Trainer:
    """The settings of training, and `run`.

    preparation: how samples become batches · epochs, batch_size, lr, optimizer ("adam", "adamw", "sgd", "adagrad",
    "rmsprop"), weight_decay, momentum · schedule ("constant", "plateau", "cosine") after `warmup` epochs ·
    patience: stop when validation has not improved for so many epochs (None: never); the best weights are restored ·
    average: validate, stop by and keep averaged weights, the "mean" of the run's steps so far or an exponential moving
    average with this decay, such as 0.99 (None: the weights as they are) · clip: largest gradient norm ·
    accumulate: batches per step · modality_dropout: probability of hiding a modality of a training sample ·
    precision ("32", "bf16", "bf16-true", "16", "64") · device, devices, nodes, strategy: as Lightning Fabric has them ·
    resident: whether a set lies on the device whole (None: if it fits) ·
    cuda_graphs: on a CUDA device replay the steps of an epoch from a recorded one, which makes small networks several
    times as fast; elsewhere, and in epochs in which the learning rate moves, it changes nothing ·
    keep_memory: on a CPU have the C library keep what a step frees for the next, where it can be told to, until
    training ends: what else the process frees meanwhile is kept too ·
    checkpoint: a folder to save to and go on from · on_interrupt: "keep" the best weights on Ctrl-C, or "raise".
    """

    preparation: Preparation | None = None
    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-3
    optimizer: str = "adam"
    weight_decay: float = 0.0
    momentum: float = 0.0
    schedule: str = "constant"
    warmup: float = 0.0
    patience: int | None = 15
    average: Average | None = None
    clip: float | None = None
    accumulate: int = 1
    modality_dropout: float = 0.0
    precision: str = "32"
    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    resident: bool | None = None
    cuda_graphs: bool = False
    keep_memory: bool = True
    seed: int = 0
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 10.0
    on_interrupt: Literal["keep", "raise"] = "keep"
    verbose: int = 0
    logs: list[Log] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._feeds: dict[int, Feed] = {}
        for one in fields(self):  # from a grid of settings, say; a checkpoint holds plain numbers only
            if isinstance(value := getattr(self, one.name), np.generic):
                setattr(self, one.name, value.item())
        choices = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "precision": PRECISIONS, "on_interrupt": _INTERRUPT}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise unknown_name(name, getattr(self, name), allowed)
        for name, least in (
            ("epochs", 1),
            ("batch_size", 1),
            ("accumulate", 1),
            ("devices", 1),
            ("nodes", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"training: {name} must be a whole number ≥ {least}, got {value!r}")
        for name, holds, allowed in (
            ("lr", lambda value: 0 < value < math.inf, "> 0"),
            ("weight_decay", lambda value: 0 <= value < math.inf, "≥ 0"),
            ("momentum", lambda value: 0 <= value < 1, "in [0, 1)"),
            ("modality_dropout", lambda value: 0 <= value < 1, "in [0, 1)"),
            ("warmup", lambda value: 0 <= value < math.inf, "a number of epochs ≥ 0"),
            ("checkpoint_seconds", lambda value: value >= 0, "≥ 0"),
            (
                "average",
                lambda value: value is None or is_average(value),
                "'mean', or the decay of a moving average between 0 and 1 (unset: the weights as they are)",
            ),
            ("clip", lambda value: value is None or value > 0, "> 0, or None for no clipping"),
            ("patience", lambda value: value is None or value >= 1, "≥ 1, or None for no early stopping"),
        ):
            try:
                fine = holds(getattr(self, name))
            except TypeError:  # no number
                fine = False
            if not fine:
                raise InputError(f"training: {name} must be {allowed}, got {getattr(self, name)!r}")
        yes_or_no("keep_memory", self.keep_memory)
        if yes_or_no("cuda_graphs", self.cuda_graphs):
            self._check_recording()
        if self.momentum and self.optimizer not in WITH_MOMENTUM:
            raise InputError(f"training: momentum is for {' and '.join(WITH_MOMENTUM)}, not for {self.optimizer!r}")

    def _check_recording(self) -> None:
        """Refuse what cannot be part of a CUDA graph, on whatever device."""
        for name, allowed in (
            ("precision", RECORDED_PRECISIONS),
            ("optimizer", RECORDED_OPTIMIZERS),
            ("accumulate", (1,)),
            ("devices", (1,)),
            ("nodes", (1,)),
            ("strategy", ("auto",)),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"training: with cuda_graphs=True {name} must be {' or '.join(map(repr, allowed))}, got "
                    f"{getattr(self, name)!r}"
                )

    @property
    def evaluation_batch(self) -> int:
        """Samples at once where no gradients are needed, nor what they would be computed from."""
        return max(4 * self.batch_size, 256)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended a run; those that would follow are skipped."""
        return any(log.interrupted for log in self.logs)

    def settings(self) -> dict[str, Any]:
        """What decides the numbers that come out, for a checkpoint's fingerprint."""
        beside = {
            "preparation",
            "logs",
            "checkpoint",
            "checkpoint_seconds",
            "verbose",
            "on_interrupt",
            "resident",
            "cuda_graphs",
            "keep_memory",
        }
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in beside}

    def run(
        self, module: Method, train: Samples, validation: Samples | None = None, phases: list[Phase] | None = None
    ) -> Log:
        """Train a module in place and say how it went. The user's own random state stays as it was."""
        if self.interrupted:
            return Log(interrupted=True)
        check_set("training", train, module.needs_targets)
        if validation is not None:
            check_set("validation", validation, module.needs_targets)
        path = None if self.checkpoint is None else Path(self.checkpoint) / f"run-{len(self.logs)}.pt"
        phases = phases or [Phase()]
        chosen = [phase.chosen(module) for phase in phases]
        nameless = [replace(phase, parameters=None) for phase in phases]  # a function may not reach other processes
        fabric = build_fabric(self.device, self.devices, self.nodes, self.strategy, self.precision)
        done = launch(fabric, _work, self, module, train, validation, nameless, chosen, path)
        module.load_state_dict(done["state"])  # a no-op unless it was trained in another process
        log = Log(**done["log"])
        self.logs.append(log)
        return log

    def feed(self, samples: Samples, device: torch.device) -> Feed:
        """The batches of a set, prepared once however many runs read it."""
        if id(samples) not in self._feeds:
            dtype = INPUT_TYPES.get(self.precision)
            self._feeds[id(samples)] = Feed(samples, self._prepared(), device, self.resident, dtype)
        return self._feeds[id(samples)]

    def forget(self) -> None:
        """Let go of the data."""
        self._feeds.clear()

    def predict(self, module: Method, samples: Samples) -> Prediction:
        """A trained module's prediction for every sample, on the CPU."""
        device = resolve_device(self.device)
        feed = Feed(samples, self._prepared(), device, self.resident, input_type(module))
        return predict(module.to(device), feed, self.evaluation_batch)

    def cross_fit(
        self, make: Callable[[], Method], train: Samples, folds: int = 5
    ) -> tuple[Prediction, list[Method], np.ndarray]:
        """Train on all folds but one, predict that one, for every fold: out-of-fold predictions of all samples.

        Returns the predictions in the order of `train`, the trained modules, and each sample's fold `[n]`. Folds are
        stratified for a classification. Early stopping is off: the held-out fold must decide nothing, so every fold
        trains for `epochs`.
        """
        fold_of = split_folds(train, self._prepared().task, folds, self.seed)
        parts: list[Prediction] = []
        modules: list[Method] = []
        for fold in range(folds):
            with seeded(self.seed * folds + fold):
                module = make()
            log = self.run(module, train.select(np.flatnonzero(fold_of != fold)))
            if log.interrupted:
                raise KeyboardInterrupt(f"cross-fitting was interrupted in fold {fold + 1} of {folds}")
            parts.append(self.predict(module, train.select(np.flatnonzero(fold_of == fold))))
            modules.append(module)
            self.forget()
        order = np.argsort(np.concatenate([np.flatnonzero(fold_of == fold) for fold in range(folds)]))
        return concatenate(parts, torch.from_numpy(order)), modules, fold_of

    def _prepared(self) -> Preparation:
        if self.preparation is None:
            raise InputError("training: the trainer has no preparation; give Trainer(preparation=Preparation.fit(...))")
        return self.preparation

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feeds": {}}


def _work(
    fabric: Fabric,
    trainer: Trainer,
    module: Method,
    train: Samples,
    validation: Samples | None,
    phases: list[Phase],
    chosen: list[list[str]],
    checkpoint: Path | None,
) -> dict[str, Any]:
    """What each process does: train the module, and hand over plain values and tensors."""
    try:
        with (
            default_type(torch.float64 if trainer.precision == "64" else None),
            seeded(trainer.seed, fabric.device),
            memory_advice(trainer.batch_size, trainer.precision),
            kept_memory(trainer.keep_memory and fabric.device.type == "cpu"),
        ):
            feed = trainer.feed(train, fabric.device)
            held_out = None if validation is None else trainer.feed(validation, fabric.device)
            log = Loop(fabric, trainer, module, feed, held_out, checkpoint).run(phases, chosen)
    finally:
        if trainer.precision == "bf16-true":  # batches to predict and saved weights are in float32
            module.float()
    return {"log": vars(log), "state": module.state_dict()}


def check_set(role: str, samples: Samples, needs_targets: bool = True) -> None:
    """Refuse a set that nothing can be learned from."""
    if not len(samples):
        raise InputError(f"the {role} set is empty")
    if samples.y is None and needs_targets:
        raise InputError(f"training needs targets: the {role} samples have no y")
    if samples.weight is not None and not samples.weight.sum() > 0:
        raise InputError(f"the sample weights of the {role} set are all zero")


@torch.no_grad()
def predict(module: Method, feed: Feed, batch_size: int) -> Prediction:
    """Output, opinions, weights and joint representation for every sample of a feed, on the CPU."""
    module.eval()
    parts = []
    for batch in feed.in_order(batch_size):
        made = module(batch)
        kept = (None if one is None else _widened(one) for one in (made.opinions, made.weights, made.joint))
        opinions, weights, joint = kept
        parts.append(Prediction(_widened(made.output), opinions, weights, joint=joint))
    return concatenate(parts)


def _widened(values: torch.Tensor) -> torch.Tensor:
    """Values on the CPU in at least 32 bits."""
    return values.to("cpu", torch.promote_types(values.dtype, torch.float32))


def input_type(module: Method) -> torch.dtype | None:
    """The type of the numbers that a trained module reads, if it is not the usual one."""
    doubles = any(one.dtype == torch.float64 for one in module.parameters())
    return torch.float64 if doubles else None


@contextmanager
def default_type(dtype: torch.dtype | None) -> Iterator[None]:
    """Fabric hands outputs over in torch's default type: in 64 bits that is to be 64 bits too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def concatenate(parts: list[Prediction], order: torch.Tensor | None = None) -> Prediction:
    """Predictions of several batches as one, optionally reordered."""

    def joined(name: str) -> Any:
        pieces = [getattr(part, name) for part in parts]
        if any(piece is None for piece in pieces):
            return None
        whole = torch.cat(pieces)
        return whole if order is None else whole[order]

    return Prediction(joined("output"), joined("opinions"), joined("weights"), joint=joined("joint"))


def split_folds(samples: Samples, task: Task, folds: int, seed: int) -> np.ndarray:
    """Each sample's fold `[n]`, the classes of a classification spread evenly over the folds."""
    if not 2 <= folds <= len(samples):
        raise InputError(f"cross-fitting: folds must be between 2 and {len(samples)} (the samples), got {folds}")
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(samples))
    if task.classification and samples.y is not None:
        labels = task.encode(samples.y)
        shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold_of = np.empty(len(samples), dtype=np.int64)
    fold_of[shuffled] = np.arange(len(samples)) % folds
    return fold_of
