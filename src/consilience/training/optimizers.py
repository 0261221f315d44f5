"""Optimizers by name, and the learning rate over time: warm-up, then plateau or cosine."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from consilience.core.errors import unknown_name

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
WITH_MOMENTUM = ("sgd", "rmsprop")
SCHEDULES = ("constant", "plateau", "cosine")


def build_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float,
    momentum: float = 0.0,
    *,
    fused: bool = True,
    recorded: bool = False,
) -> torch.optim.Optimizer:
    """An optimizer by name, with its update fused where torch can and `fused` allows it.

    recorded: whether its updates are to be part of a CUDA graph.

    >>> build_optimizer("adam", [nn.Parameter(torch.zeros(2))], 1e-3, 0.0).defaults["fused"]
    True
    """
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    held = list(parameters)
    settings: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    if name in WITH_MOMENTUM:
        settings["momentum"] = momentum
    # Fused Adagrad exists on the CPU only, and fused SGD leaves most bfloat16 weights there unmoved (torch 2.13).
    on_cpu = all(one.device.type == "cpu" for one in held)
    wide = all(one.dtype in (torch.float32, torch.float64) for one in held)
    if fused and {"adam": True, "adamw": True, "sgd": wide, "adagrad": on_cpu}.get(name):
        settings["fused"] = True
    if recorded and name != "sgd":  # which counts no steps
        settings["capturable"] = True
    return OPTIMIZERS[name](held, **settings)


def restore_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Go on from a saved state, with updates made as this optimizer makes them: a checkpoint may come from elsewhere.

    optimizer: one of torch's, or Fabric's wrapper of it.
    """
    ways = ("fused", "foreach", "capturable")
    groups = [
        {**saved, **{way: own[way] for way in ways if way in own}}
        for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


class Schedule:
    """What multiplies the learning rate: a linear warm-up over the first steps, then the chosen course.

    plateau: halved whenever the score has not improved for `patience` epochs · cosine: down to 0 at the last step.
    """

    def __init__(self, course: str, warmup_steps: int, total_steps: int, patience: int):
        if course not in SCHEDULES:
            raise unknown_name("schedule", course, SCHEDULES)
        self.course, self.warmup_steps, self.total_steps, self.patience = course, warmup_steps, total_steps, patience
        self.step, self.reduction, self.best, self.stale = 0, 1.0, math.inf, 0

    @property
    def moves(self) -> bool:
        """Whether the rate can change within an epoch."""
        return self.course == "cosine" or self.step < self.warmup_steps

    def factor(self) -> float:
        """The factor for the step to come."""
        warm = min(1.0, (self.step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.course == "cosine":
            after = max(0, self.step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
            return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, after)))
        return warm * self.reduction

    def end_epoch(self, score: float) -> None:
        """Take note of an epoch's score (lower is better)."""
        if score < self.best:
            self.best, self.stale = score, 0
            return
        self.stale += 1
        if self.course == "plateau" and self.stale >= self.patience:
            self.reduction, self.stale = self.reduction / 2, 0

    def state(self) -> dict[str, float]:
        """What changes over time."""
        return {"step": self.step, "reduction": self.reduction, "best": self.best, "stale": self.stale}

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a saved state."""
        self.step, self.stale = int(state["step"]), int(state["stale"])
        self.reduction, self.best = state["reduction"], state["best"]
