"""Small methods and sets to train them on. A module of its own, so that spawned processes can import it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.batches import Batch
from consilience.core.errors import TrainingError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Method, Prediction, Spec, Step
from consilience.methods.opinions.late import Late
from consilience.preparation import Preparation
from consilience.training import Callback, Trainer, TrainingRun


class Straight(Method):
    """One linear map of all modalities side by side. `trap` is called at every step of training."""

    def __init__(self, spec: Spec, *, dropout: float = 0.0):
        super().__init__(spec)
        width = sum(int(np.prod(modality.shape)) for modality in spec.modalities.values())
        self.drop = nn.Dropout(dropout)
        self.map = nn.Linear(width, spec.task.outputs)
        self.trap: Callable[[Step], None] = _nothing

    def forward(self, batch: Batch) -> Prediction:
        x = torch.cat([batch[name].flatten(1) for name in batch.names], dim=1)
        return Prediction(self.map(self.drop(x)))

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        self.trap(step)
        return super().objective(prediction, batch, step)


class Witness(Late):
    """Late fusion that keeps a loss history, and notes the one it sees at the first step of the last epoch."""

    keeps_history = True
    seen: Tensor

    def __init__(self, spec: Spec, samples: int, **settings: Any):
        super().__init__(spec, **settings)
        self.register_buffer("seen", torch.full((samples, len(self.names)), -1.0))
        self.trap: Callable[[Step], None] = _nothing

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        self.trap(step)
        assert step.history is not None
        if step.epoch == step.epochs - 1 and self.seen[0, 0] < 0:
            self.seen.copy_(step.history.average())
        losses = super().objective(prediction, batch, step)
        hard = step.history.past(batch.index, normalised=True).to(prediction.output.dtype)
        return {**losses, "hard": 0.1 * (hard * prediction.opinions.square().mean(2)).mean()}


class Explosive(Straight):
    """Its second loss term is not finite from the second epoch on."""

    def objective(self, prediction: Prediction, batch: Batch, step: Step) -> dict[str, Tensor]:
        losses = super().objective(prediction, batch, step)
        return {**losses, "fuse": losses["task"] * (float("nan") if step.epoch == 1 else 0.0)}


def _nothing(step: Step) -> None:
    pass


class At:
    """A trap that springs at one batch of one epoch of one phase."""

    def __init__(self, error: BaseException, epoch: int, batch: int = 0, phase: str = "fit"):
        self.error, self.where, self.left = error, (phase, epoch), batch

    def __call__(self, step: Step) -> None:
        if (step.phase, step.epoch) == self.where:
            if self.left == 0:
                raise self.error
            self.left -= 1


class NoteRank(Callback):
    """Writes an empty file for each epoch, named by process and epoch."""

    def __init__(self, folder: Path):
        self.folder = folder

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        (self.folder / f"process {run.fabric.global_rank} epoch {run.epoch}").touch()


class NoteEveryRank(NoteRank):
    """The same in every process."""

    every_process = True


def make_samples(n: int = 64, seed: int = 0, regression: bool = False, **given: Any) -> Samples:
    """Two vectors, of 3 and 2 features, and what they predict with some noise."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(n, 3)), random.normal(size=(n, 2))
    score = a @ [1.0, -1.0, 0.5] + b @ [0.5, 1.0] + random.normal(size=n)
    y = score if regression else np.digitize(score, [-0.8, 0.8])
    return Samples.of({"a": a, "b": b}, y, **given)


def prepare(samples: Samples, kind: Any = None) -> Preparation:
    return Preparation.fit(samples, Task.of(samples.y, kind, samples.weight))


def make(cls: Any, preparation: Preparation, *arguments: Any, seed: int = 0, **settings: Any) -> Any:
    """A method with weights drawn from a seed, the same at every call."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        encoders = {name: {"name": "mlp", "hidden": [8], "dropout": 0.0} for name in preparation.modalities}
        return cls(Spec(preparation.modalities, preparation.task, encoders), *arguments, **settings)


def trainer(preparation: Preparation, **given: Any) -> Trainer:
    return Trainer(preparation, **{"epochs": 3, "batch_size": 16, "lr": 0.05, "device": "cpu", **given})


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Waiting(Straight):
    """Asks the device for a number in the middle of a step."""

    def forward(self, batch) -> Prediction:
        made = super().forward(batch)
        return Prediction(made.output * float(made.output.detach().abs().max() > 0))


def train_waiting() -> str:
    """What is said of it."""
    samples = make_samples(64)
    preparation = prepare(samples)
    module = Waiting(Spec(preparation.modalities, preparation.task))
    trainer = Trainer(preparation, epochs=1, batch_size=16, device="cuda", cuda_graphs=True)
    try:
        trainer.run(module, samples)
    except TrainingError as error:
        return str(error)
    return ""
