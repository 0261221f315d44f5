"""Phases of training, and the optimizer and the learning rate of each: warm-up, then constant, plateau or cosine."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from consilience.core.errors import InputError, show
from consilience.core.settings import PositiveFloat, PositiveInt, check_fields
from consilience.training.training_settings import WITH_MOMENTUM, ResolvedSettings


@dataclass
class Phase:
    """A phase of training.

    Args:
        name: In the log and in `Step.phase`.
        epochs: At most so many. None: as in the training settings.
        lr: Learning rate. None: as in the training settings.
        parameters: Returns the parameters of a module that this phase trains. None: all.
    """

    name: str = "fit"
    epochs: PositiveInt | None = None
    lr: PositiveFloat | None = None
    parameters: Callable[[nn.Module], Iterable[nn.Parameter]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, f"training phase {show(self.name)}")

    def chosen(self, module: nn.Module) -> list[str]:
        """Return the names of the parameters that this phase trains. Unlike a function, names can be pickled."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        wanted = list(module.parameters() if self.parameters is None else self.parameters(module))
        if foreign := [tuple(parameter.shape) for parameter in wanted if id(parameter) not in names]:
            raise InputError(
                f"training phase {self.name!r} is to train parameters that {type(module).__name__} does not have, of "
                f"shapes {foreign}"
            )
        if not any(parameter.requires_grad for parameter in wanted):
            raise InputError(f"training phase {self.name!r} of {type(module).__name__} has no parameters to train")
        return [names[id(parameter)] for parameter in wanted]


@contextmanager
def training_only(module: nn.Module, names: Collection[str]) -> Iterator[list[nn.Parameter]]:
    """Yield the named parameters without gradients; within the block all others are frozen."""
    module.zero_grad(set_to_none=True)
    chosen = set(names)
    named = list(module.named_parameters())
    others = [parameter for name, parameter in named if name not in chosen and parameter.requires_grad]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield [parameter for name, parameter in named if name in chosen]
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
        module.zero_grad(set_to_none=True)


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def build_optimizer(
    settings: ResolvedSettings,
    parameters: Iterable[nn.Parameter] | Sequence[dict[str, Any]],
    lr: float | None = None,
    *,
    fused: bool = True,
    recorded: bool = False,
) -> torch.optim.Optimizer:
    """Build the optimizer that the settings name.

    Args:
        settings: Optimizer, learning rate, weight decay and momentum.
        parameters: What it trains, or groups of it as `parameter_groups` returns them.
        lr: Learning rate, if not that of the settings.
        fused: Whether the update may be fused; it is where torch can.
        recorded: Whether its updates become part of a CUDA graph.

    Example:
        >>> from consilience.training.training_settings import TrainingSettings, resolve
        >>> build_optimizer(resolve(TrainingSettings(), 100), [nn.Parameter(torch.zeros(2))]).defaults["fused"]
        True
    """
    name, trained = settings.optimizer, list[Any](parameters)
    weights = [weight for each in trained for weight in (each["params"] if isinstance(each, dict) else [each])]
    options: dict[str, Any] = {"lr": settings.lr if lr is None else lr, "weight_decay": settings.weight_decay}
    if name in WITH_MOMENTUM:
        options["momentum"] = settings.momentum
    # Fused Adagrad exists on the CPU only, and fused SGD leaves most bfloat16 weights there unmoved (torch 2.13).
    on_cpu = all(weight.device.type == "cpu" for weight in weights)
    wide = all(weight.dtype in (torch.float32, torch.float64) for weight in weights)
    if fused and {"adam": True, "adamw": True, "sgd": wide, "adagrad": on_cpu}.get(name):
        options["fused"] = True
    if recorded and name != "sgd":  # which counts no steps
        options["capturable"] = True
    return OPTIMIZERS[name](trained, **options)


def restore_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Load a saved state, but compute updates as this optimizer does: a checkpoint may come from another device.

    Args:
        optimizer: An optimizer of torch, or Fabric's wrapper of it.
        state: What its `state_dict` returned.
    """
    own_options = ("fused", "foreach", "capturable")
    groups = [
        {**saved, **{option: own[option] for option in own_options if option in own}}
        for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


class LearningRate:
    """The learning rate of each step: a linear warm-up, then the schedule.

    Args:
        base: The learning rate after the warm-up.
        schedule: "constant", "plateau" (halved whenever the score has not improved for `patience` epochs) or "cosine"
            (falls to 0 at the last step).
        warmup_steps: Steps of the warm-up.
        total_steps: Steps of the whole phase.
        patience: Of the plateau schedule.
    """

    def __init__(self, base: float, schedule: str, warmup_steps: int, total_steps: int, patience: int):
        self.base, self.schedule, self.patience = base, schedule, patience
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        self.step, self.reduction, self.best, self.stale = 0, 1.0, math.inf, 0

    @classmethod
    def of(cls, settings: ResolvedSettings, epochs: int, steps: int, lr: float | None = None) -> LearningRate:
        """Return the learning rate of some epochs of so many steps. lr: if not that of the settings."""
        warmup, patience = round(settings.warmup * steps), max(1, (settings.patience or 10) // 2)
        return cls(settings.lr if lr is None else lr, settings.schedule, warmup, epochs * steps, patience)

    @property
    def moves(self) -> bool:
        """Whether the rate can change within an epoch."""
        return self.schedule == "cosine" or self.step < self.warmup_steps

    def factor(self) -> float:
        """Return what multiplies `base` in the next step."""
        warm = min(1.0, (self.step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.schedule == "cosine":
            after = max(0, self.step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
            return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
        return warm * self.reduction

    def set(self, optimizer: Any) -> None:
        """Give every group of an optimizer's parameters the rate of the next step."""
        factor = self.factor()
        for group in optimizer.param_groups:  # a group of its own rate has it as `rate`
            group["lr"] = group.get("rate", self.base) * factor

    def end_epoch(self, score: float) -> None:
        """Take note of an epoch's score (lower is better)."""
        if score < self.best:
            self.best, self.stale = score, 0
            return
        self.stale += 1
        if self.schedule == "plateau" and self.stale >= self.patience:
            self.reduction, self.stale = self.reduction / 2, 0

    def state(self) -> dict[str, float]:
        """Return what changes over time."""
        return {"step": self.step, "reduction": self.reduction, "best": self.best, "stale": self.stale}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a saved state."""
        self.step, self.stale = int(state["step"]), int(state["stale"])
        self.reduction, self.best = state["reduction"], state["best"]
