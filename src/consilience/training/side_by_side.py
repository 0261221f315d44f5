"""Many trainings of one method at once: the weights of all trials stacked, each trial on data of its own.

A small network keeps no machine busy. Stacked by `torch.func`, thirty of them cost little more than a few, and since
the optimizer works element by element, each learns exactly what it would have learned alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from consilience.batches import Batch
from consilience.errors import InputError, TrainingError, UnsupportedError
from consilience.methods import Method, Step, task_losses

SCHEDULES = ("constant", "cosine")
_ROWS = 2048  # samples of each trial that are measured at once


@dataclass(frozen=True)
class Trials:
    """As many samples for every trial: values name → `[trial, sample, *shape]`, y `[trial, sample]` or with targets.

    Every modality is there for every sample.
    """

    values: Mapping[str, Tensor]
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    @property
    def samples(self) -> int:
        """How many each trial has."""
        return self.y.shape[1]

    def rows(self, rows: Tensor | slice) -> Trials:
        """The same samples of every trial."""
        return Trials({name: value[:, rows] for name, value in self.values.items()}, self.y[:, rows])

    def only(self, trials: Tensor) -> Trials:
        """Some of the trials."""
        return Trials({name: value[trials] for name, value in self.values.items()}, self.y[trials])

    def to(self, device: torch.device | str) -> Trials:
        """The same on another device."""
        return Trials({name: value.to(device) for name, value in self.values.items()}, self.y.to(device))


@dataclass(frozen=True)
class SideBySide:
    """Trained trials: `weights` name → `[trial, *shape]`, `losses` on the validation data and `epochs`, both `[trial]`.

    losses: the lowest of each trial, the one its weights had · epochs: after how many epochs that was.
    """

    method: Method
    weights: Mapping[str, Tensor]
    losses: Tensor
    epochs: Tensor

    def measure(self, data: Trials) -> Tensor:
        """Each trial's mean task loss on its own data: `[trial]`."""
        return measure(self.method, self.weights, data)

    def trained(self, trial: int) -> Method:
        """The method as one trial left it."""
        one = copy.deepcopy(self.method)
        one.load_state_dict({name: weight[trial] for name, weight in self.weights.items()})
        return one


def train_side_by_side(
    methods: Sequence[Method],
    train: Trials,
    validation: Trials,
    *,
    epochs: int = 100,
    batch_size: int = 256,
    lr: float = 5e-3,
    schedule: str = "constant",
    patience: int = 10,
    seed: int = 0,
) -> SideBySide:
    """Train methods of one make, each on its own trial, with Adam; keep each at its lowest validation loss.

    patience: epochs without a lower loss after which a trial ends; it then costs nothing more · schedule: of the
    learning rate, "constant" or "cosine" (to zero over all epochs) · seed: of the order of samples, the same for all.
    """
    check_trials(methods, train, validation, schedule)
    skeleton = copy.deepcopy(methods[0]).train()
    stacked, _ = stack_module_state(list(methods))
    weights = {name: weight.detach().to(train.y.device).requires_grad_() for name, weight in stacked.items()}
    best = {name: weight.detach().clone() for name, weight in weights.items()}
    losses = torch.full((len(methods),), math.inf, device=train.y.device)
    lasted = torch.zeros(len(methods), dtype=torch.long, device=train.y.device)
    going = torch.arange(len(methods), device=train.y.device)  # the trials that still train, in the stack's order
    optimizer = torch.optim.Adam(weights.values(), lr=lr)
    order = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        if schedule == "cosine":
            optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        objective = _stacked(skeleton, _objective(Step(epoch=epoch, epochs=epochs)))
        for rows in torch.randperm(train.samples, generator=order).to(train.y.device).split(batch_size):
            batch = train.rows(rows)
            optimizer.zero_grad()
            objective(weights, batch.values, batch.y).sum().backward()  # no weight is in two trials' losses
            optimizer.step()
        now = measure(skeleton, weights, validation)
        better = now < losses[going]
        found = going[better]
        losses[found], lasted[found] = now[better], epoch + 1
        for name, weight in weights.items():
            best[name][found] = weight.detach()[better]
        still = epoch + 1 - lasted[going] < patience
        if not still.any():
            break
        if not still.all():
            going, train, validation = going[still], train.only(still), validation.only(still)
            _drop(optimizer, still)
    if not losses.isfinite().all():
        lost = (~losses.isfinite()).nonzero()[:, 0].tolist()
        raise TrainingError(f"side by side: the loss of trials {lost} was never finite; lower lr, now {lr:g}")
    return SideBySide(skeleton.eval(), best, losses, lasted)


def measure(method: Method, weights: Mapping[str, Tensor], data: Trials) -> Tensor:
    """Each trial's mean task loss, in evaluation mode: `[trial]`."""
    training = method.training
    method.eval()
    try:
        with torch.no_grad():
            judge = _stacked(method, _total_loss)
            pieces = (data.rows(slice(start, start + _ROWS)) for start in range(0, data.samples, _ROWS))
            totals = [judge(weights, piece.values, piece.y) for piece in pieces]
    finally:
        method.train(training)
    return torch.stack(totals).sum(dim=0) / data.samples


def check_trials(methods: Sequence[Method], train: Trials, validation: Trials, schedule: str) -> None:
    """Refuse what cannot be stacked, and trials that do not match the methods."""
    if schedule not in SCHEDULES:
        raise InputError(f"side by side: schedule must be {' or '.join(map(repr, SCHEDULES))}, got {schedule!r}")
    if not methods or not len(methods) == len(train) == len(validation):
        raise InputError(
            f"side by side: one method for each trial, got {len(methods)} methods, data of {len(train)} trials to "
            f"train on and of {len(validation)} to validate on"
        )
    kept = [name for name, _ in methods[0].named_buffers()]
    if kept:
        raise UnsupportedError(
            f"side by side: method {methods[0].name!r} keeps {', '.join(kept)} besides its weights, which training "
            "changes in place: choose layers without running statistics"
        )


def _stacked(method: Method, ask: Callable[[Method, Any, Batch], Tensor]) -> Callable[..., Tensor]:
    """A question to one method on one batch, asked of all trials at once: (weights, values, y) → `[trial]`."""

    def one(weights: Mapping[str, Tensor], values: Mapping[str, Tensor], y: Tensor) -> Tensor:
        batch = whole_batch(values, y)
        return ask(method, functional_call(method, dict(weights), (batch,)), batch)

    return vmap(one, randomness="different")


def _objective(step: Step) -> Callable[[Method, Any, Batch], Tensor]:
    def ask(method: Method, prediction: Any, batch: Batch) -> Tensor:
        return torch.stack(list(method.objective(prediction, batch, step).values())).sum()

    return ask


def _total_loss(method: Method, prediction: Any, batch: Batch) -> Tensor:
    return task_losses(method.task, prediction.output, batch).sum()


def whole_batch(values: Mapping[str, Tensor], y: Tensor) -> Batch:
    """A batch in which every modality is there for every sample."""
    samples, device = len(y), y.device
    return Batch(
        values,
        torch.ones(samples, len(values), dtype=torch.bool, device=device),
        index=torch.arange(samples, device=device),
        weight=torch.ones(samples, device=device),
        y=y,
        complete=frozenset(values),
    )


def _drop(optimizer: torch.optim.Optimizer, still: Tensor) -> None:
    """Take the trials that ended out of the stacked weights and of what Adam remembers of them."""
    for weight in optimizer.param_groups[0]["params"]:
        weight.grad = None
        weight.data = weight.data[still]
        memory = optimizer.state[weight]
        memory["exp_avg"], memory["exp_avg_sq"] = memory["exp_avg"][still], memory["exp_avg_sq"][still]
