"""What happened in a training run, and the errors of one that diverged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import TrainingError


@dataclass
class Log:
    """The log of a training run: one row per epoch (phase, epoch, losses, validation figures, seconds) and its end."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int | None = None
    interrupted: bool = False
    finished: bool = False
    seconds: float = 0.0


def diverged(
    title: str, term: str, value: float, lr: float, *, epoch: int, batch: int | None = None, seed: int | None = None
) -> TrainingError:
    """Return the error for a loss term that is not finite.

    Args:
        title: What was trained.
        term: Name of the loss term.
        value: Its value.
        lr: The learning rate, which the error advises to lower.
        epoch: Epoch, from 0.
        batch: Batch within the epoch, from 0, where it is known.
        seed: Seed of the model, where several are trained at once.
    """
    who = "" if seed is None else f"with seed {seed} "
    where = f"epoch {epoch + 1}" + ("" if batch is None else f" (batch {batch + 1})")
    return TrainingError(
        f"training {title}: {who}the loss term {term!r} became {value} in {where}. "
        f"Lower lr (now {lr:g}) or set clip=1.0"
    )


def first_broken(losses: Mapping[str, Tensor]) -> tuple[str, float]:
    """Return the first loss term that is not finite and its value, or the sum if only the sum is not finite."""
    values = {name: value.item() for name, value in losses.items()}
    broken = next((item for item in values.items() if not math.isfinite(item[1])), None)
    return broken or ("sum of " + " + ".join(values), sum(values.values()))


def check_weights(module: nn.Module, lr: float) -> None:
    """Raise an error if trained weights are not finite: no loss follows the last step that would show it."""
    for name, weight in module.named_parameters():
        if weight.requires_grad and not torch.isfinite(weight).all():
            raise TrainingError(
                f"training {type(module).__name__}: the weights {name!r} are not finite after the last step. "
                f"Lower lr (now {lr:g}) or set clip=1.0"
            )
