"""AdamW for stacked models, each with a learning rate and weight decay of its own: a search trained side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from consilience.core.errors import InputError


@dataclass(frozen=True)
class TrialRates:
    """The learning rate and the decoupled weight decay of each model.

    Args:
        lr: Positive, one for each model.
        weight_decay: Not negative, one for each model.

    Raises:
        InputError: If they are not equally many, or out of range.

    Example:
        >>> TrialRates([1e-3, 1e-2], [0.0, 1e-4]).only([1])
        TrialRates(lr=(0.01,), weight_decay=(0.0001,))
    """

    lr: Sequence[float]
    weight_decay: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", tuple(map(float, self.lr)))
        object.__setattr__(self, "weight_decay", tuple(map(float, self.weight_decay)))
        if len(self.lr) != len(self.weight_decay):
            raise InputError(
                f"trial rates: one weight decay for each learning rate, got {len(self.weight_decay)} for {len(self.lr)}"
            )
        for name, values, allowed in (("lr", self.lr, "above 0"), ("weight_decay", self.weight_decay, "at least 0")):
            wrong = [value for value in values if not (math.isfinite(value) and value >= 0 and (value or name != "lr"))]
            if wrong:
                raise InputError(f"trial rates: each {name} must be a finite number {allowed}, got {wrong[0]!r}")

    def __len__(self) -> int:
        return len(self.lr)

    def only(self, trials: Sequence[int]) -> TrialRates:
        """Return those of some models, given as numbers."""
        return TrialRates([self.lr[trial] for trial in trials], [self.weight_decay[trial] for trial in trials])


class TrialAdamW(torch.optim.Optimizer):
    """AdamW on weights `[trial, …]`: each trial is updated as `torch.optim.AdamW` with its own rates updates it.

    The rate of a step is that of the parameter group, as a multiple of `base`, times the trial's own: a schedule that
    sets the group's rate acts on all trials alike.

    Args:
        parameters: Stacked weights; the first dimension is the trial.
        rates: Of the trials.
        base: The group's rate at which each trial has exactly its own.
        betas: Of the running means of gradients and of their squares.
        eps: Added to the root of the latter.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter | Tensor],
        rates: TrialRates,
        base: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        super().__init__(list(parameters), {"lr": base})
        weights = self.param_groups[0]["params"]
        if wrong := [tuple(weight.shape) for weight in weights if weight.shape[:1] != (len(rates),)]:
            raise InputError(
                f"trial rates: rates for {len(rates)} models, but stacked weights have the shape {list(wrong[0])}; the "
                "first dimension must be the model"
            )
        self.betas, self.eps, self.taken = betas, eps, 0
        device = weights[0].device
        self.relative = torch.tensor(rates.lr, device=device) / base
        self.decay = torch.tensor(rates.weight_decay, device=device)

    def keep(self, still: Tensor) -> None:
        """Forget the rates of all trials but some, given as booleans `[trial]`."""
        self.relative, self.decay = self.relative[still], self.decay[still]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        if closure is not None:
            raise InputError("TrialAdamW: step takes no closure")
        (group,) = self.param_groups
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        means, squares = ([self.state[weight][name] for weight in weights] for name in ("mean", "square"))
        self.taken += 1
        first, second = self.betas
        rate = group["lr"] * self.relative
        torch._foreach_mul_(weights, [_spread(1 - rate * self.decay, weight) for weight in weights])
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, math.sqrt(1 - second**self.taken))
        torch._foreach_add_(roots, self.eps)
        updates = torch._foreach_div(means, roots)
        torch._foreach_mul_(updates, [_spread(rate / (1 - first**self.taken), weight) for weight in weights])
        torch._foreach_sub_(weights, updates)


def _spread(values: Tensor, weight: Tensor) -> Tensor:
    """`[trial]` → `[trial, 1, …]`, as many dimensions as the weight has."""
    return values.view(-1, *[1] * (weight.ndim - 1)).to(weight.dtype)
