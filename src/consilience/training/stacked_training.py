"""Many trainings of one method at once: the weights of all trials stacked, each trial on data of its own.

A small network keeps no machine busy. Stacked by `torch.func`, thirty of them cost little more than a few, and since
the optimizer works element by element, each learns exactly what it would have learned alone; what dropout and the
like draw at random aside. Running statistics are stacked like weights, and each trial keeps its own.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from consilience.core.errors import InputError, TrainingError
from consilience.methods import Method, Prediction, Step, task_losses
from consilience.training.optimizers import build_optimizer
from consilience.training.stacked_data import Trials, own_orders, shared_order, whole_batch

SCHEDULES = ("constant", "cosine")
PRECISIONS = ("32", "bf16")
_ROWS = 2048  # samples of each trial that are measured at once

# A question to a method about its prediction of a batch: tensors by name.
Ask = Callable[[Method, Prediction, Any], dict[str, Tensor]]


@dataclass(frozen=True)
class SideBySide:
    """Trained trials: `weights` name → `[trial, *shape]`, `losses` on the validation data and `epochs`, both `[trial]`.

    weights: and running statistics · losses: the lowest of each trial, the one its weights had · epochs: after how many
    epochs that was · log: for every epoch the `trials` that were trained in it, their `values`, name → `[trial]` of
    every term of the objective and of the validation, and the `seconds` of them all together.
    """

    method: Method
    weights: Mapping[str, Tensor]
    losses: Tensor
    epochs: Tensor
    log: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, data: Trials) -> Tensor:
        """Each trial's mean task loss on its own data: `[trial]`."""
        return _measure(self.method, self.weights, data, _task_loss)["loss"]

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
    optimizer: str = "adam",
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    schedule: str = "constant",
    patience: int | None = 10,
    clip: float | None = None,
    precision: str = "32",
    rows: int = _ROWS,
    seed: int | Sequence[int] = 0,
) -> SideBySide:
    """Train methods of one make, each on its own trial; keep each at its lowest validation loss.

    optimizer, weight_decay, momentum: as `Trainer` has them · schedule: of the learning rate, "constant" or "cosine"
    (to zero over all epochs) · patience: epochs without a lower loss after which a trial ends, and costs nothing more;
    None: none ends · clip: largest norm of a trial's gradient · precision: "32" or "bf16" (mixed) · rows: samples of
    each trial that are measured at once · seed: of the order of samples, one for all trials, or one for each, which
    then sees its samples as `Trainer` orders them.
    """
    check_trials(methods, train, validation, schedule, precision, seed)
    device = train.y.device
    skeleton = copy.deepcopy(methods[0]).to(device).train()
    learned, kept = stack_module_state(list(methods))
    weights = {name: weight.detach().to(device).requires_grad_() for name, weight in learned.items()}
    statistics = {name: buffer.detach().to(device) for name, buffer in kept.items()}
    best = _Best(weights | statistics, len(methods), device)
    going = torch.arange(len(methods), device=device)  # the trials that still train, in the stack's order
    moving = build_optimizer(optimizer, weights.values(), lr, weight_decay, momentum)
    shared = torch.Generator().manual_seed(seed) if isinstance(seed, int) else None
    own = () if isinstance(seed, int) else seed
    log: list[dict[str, Any]] = []
    for epoch in range(epochs):
        began = time.perf_counter()
        if schedule == "cosine":
            moving.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        if shared is not None:
            batches = shared_order(train.samples, batch_size, shared)
        else:
            batches = own_orders(train.samples, batch_size, [own[trial] for trial in going.tolist()], epoch)
        ask = _stacked(skeleton, _objective(Step(epoch=epoch, epochs=epochs)), precision)
        terms: dict[str, Tensor] = {}
        for chosen in batches:
            batch = train.rows(chosen.to(device, non_blocking=True))
            share = batch.samples / train.samples
            found = _step(ask, weights | statistics, batch, moving, clip)
            terms = {name: terms.get(name, 0) + share * value for name, value in found.items()}
        judged = _measure(skeleton, weights | statistics, validation, _judgement, precision, rows)
        best.note(weights | statistics, judged["validation_loss"], going, epoch + 1)
        values = {name: value.tolist() for name, value in (terms | judged).items()}
        log.append({"trials": going.tolist(), "values": values, "seconds": time.perf_counter() - began})
        still = epoch + 1 - best.epochs[going] < (math.inf if patience is None else patience)
        if not still.any():
            break
        if not still.all():
            going, train, validation = going[still], train.only(still), validation.only(still)
            statistics = {name: buffer[still] for name, buffer in statistics.items()}
            _drop(moving, still)
    if not best.losses.isfinite().all():
        lost = (~best.losses.isfinite()).nonzero()[:, 0].tolist()
        raise TrainingError(f"side by side: the loss of trials {lost} was never finite; lower lr, now {lr:g}")
    return SideBySide(skeleton.eval(), best.weights, best.losses, best.epochs, log)


class _Best:
    """Every trial's weights at its lowest validation loss, that loss, and after how many epochs it was."""

    def __init__(self, weights: Mapping[str, Tensor], trials: int, device: torch.device):
        self.weights = {name: weight.detach().clone() for name, weight in weights.items()}
        self.losses = torch.full((trials,), math.inf, device=device)
        self.epochs = torch.zeros(trials, dtype=torch.long, device=device)

    def note(self, weights: Mapping[str, Tensor], losses: Tensor, going: Tensor, epoch: int) -> None:
        """Keep what has become better. weights, losses: of the trials that are `going`, in this order."""
        better = losses < self.losses[going]
        improved = going[better]
        self.losses[improved], self.epochs[improved] = losses[better], epoch
        for name, weight in weights.items():
            self.weights[name][improved] = weight.detach()[better]


def check_trials(
    methods: Sequence[Method],
    train: Trials,
    validation: Trials,
    schedule: str,
    precision: str,
    seed: int | Sequence[int],
) -> None:
    """Refuse settings that do not exist, and trials that do not match the methods."""
    for name, value, allowed in (("schedule", schedule, SCHEDULES), ("precision", precision, PRECISIONS)):
        if value not in allowed:
            raise InputError(f"side by side: {name} must be {' or '.join(map(repr, allowed))}, got {value!r}")
    if not methods or not len(methods) == len(train) == len(validation):
        raise InputError(
            f"side by side: one method for each trial, got {len(methods)} methods, data of {len(train)} trials to "
            f"train on and of {len(validation)} to validate on"
        )
    if not isinstance(seed, int) and len(seed) != len(methods):
        raise InputError(f"side by side: one seed, or one for each of {len(methods)} trials, got {len(seed)}")
    if selective := next((type(one).__name__ for one in methods if one.ignored_worst), None):
        raise InputError(f"side by side: trials stop by all validation samples, {selective} not by its worst")


class _Asked(nn.Module):
    """A method and what is asked of it, so that prediction and question see the same stacked weights."""

    def __init__(self, method: Method, ask: Ask):
        super().__init__()
        self.method, self.ask = method, ask

    def forward(self, values: Mapping[str, Tensor], y: Tensor) -> dict[str, Tensor]:
        batch = whole_batch(values, y)
        return self.ask(self.method, self.method(batch), batch)


def _stacked(method: Method, ask: Ask, precision: str) -> Callable[[Mapping[str, Tensor], Trials], dict[str, Tensor]]:
    """A question to one method on one batch, asked of all trials at once: (weights, batch) → name → `[trial]`."""
    asked = _Asked(method, ask)

    def one(weights: Mapping[str, Tensor], values: Mapping[str, Tensor], y: Tensor) -> dict[str, Tensor]:
        return functional_call(asked, {f"method.{name}": weight for name, weight in weights.items()}, (values, y))

    def every(weights: Mapping[str, Tensor], batch: Trials) -> dict[str, Tensor]:
        with torch.autocast(batch.y.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return vmap(one, randomness="different")(dict(weights), dict(batch.values), batch.y)

    return every


def _step(
    ask: Callable[..., dict[str, Tensor]],
    weights: Mapping[str, Tensor],
    batch: Trials,
    optimizer: torch.optim.Optimizer,
    clip: float | None,
) -> dict[str, Tensor]:
    """Move all trials' weights by one batch; the terms of their objectives, each `[trial]`."""
    found = ask(weights, batch)
    torch.stack(list(found.values())).sum().backward()  # no weight is in two trials' losses
    if clip is not None:
        _clip([weight.grad for weight in weights.values() if weight.grad is not None], clip)
    optimizer.step()
    optimizer.zero_grad()
    return {name: value.detach() for name, value in found.items()}


def _clip(gradients: Sequence[Tensor], largest: float) -> None:
    """Shorten every trial's gradient to this norm, as `torch.nn.utils.clip_grad_norm_` does for one."""
    norms = torch.stack([one.flatten(1).norm(dim=1) for one in gradients]).norm(dim=0)
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for one in gradients:
        one.mul_(factors.view(-1, *[1] * (one.ndim - 1)))


def _measure(
    method: Method, weights: Mapping[str, Tensor], data: Trials, ask: Ask, precision: str = "32", rows: int = _ROWS
) -> dict[str, Tensor]:
    """Means over each trial's samples of what is asked as a sum over a batch, in evaluation mode: name → `[trial]`."""
    training = method.training
    method.eval()
    judge = _stacked(method, ask, precision)
    try:
        with torch.no_grad():
            pieces = (data.rows(slice(start, start + rows)) for start in range(0, data.samples, rows))
            sums = [judge(weights, piece) for piece in pieces]
    finally:
        method.train(training)
    return {name: torch.stack([one[name] for one in sums]).sum(dim=0) / data.samples for name in sums[0]}


def _objective(step: Step) -> Ask:
    def ask(method: Method, prediction: Prediction, batch: Any) -> dict[str, Tensor]:
        return method.objective(prediction, batch, step)

    return ask


def _judgement(method: Method, prediction: Prediction, batch: Any) -> dict[str, Tensor]:
    """What early stopping goes by, and how many classifications are right."""
    found = {"validation_loss": method.validation_losses(prediction, batch).float().sum()}
    if method.task.classification:
        found["validation_accuracy"] = (prediction.output.argmax(dim=1) == batch.y).float().sum()
    return found


def _task_loss(method: Method, prediction: Prediction, batch: Any) -> dict[str, Tensor]:
    return {"loss": task_losses(method.task, prediction.output, batch).sum()}


def _drop(optimizer: torch.optim.Optimizer, still: Tensor) -> None:
    """Take the trials that ended out of the stacked weights and of what the optimizer remembers of them."""
    for weight in optimizer.param_groups[0]["params"]:
        memory = optimizer.state[weight]
        for name, value in memory.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                memory[name] = value[still]
        weight.grad = None
        weight.data = weight.data[still]
