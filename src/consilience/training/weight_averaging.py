"""Averaged weights: training goes on with the last ones, what is validated and kept is their mean over the steps.

The last weights of a run are one draw from a cloud that small batches keep moving; the cloud's centre is calmer
(Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

Average = Literal["mean"] | float


class WeightAverage:
    """The mean of a module's weights over the steps of a phase so far, in at least 32 bits.

    rule: "mean", in which all steps count alike, or the decay of an exponential moving average, 0 < decay < 1, which
    forgets what lies more than about 1 / (1 − decay) steps back; until as many are done it is the mean.

    What else is saved with the module, such as the running statistics of a batch norm, is averaged as the weights are;
    where it has no finite mean, as a mask of −inf, it is left as it is.

    >>> line = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(line, line.parameters(), "mean")
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = line.weight.data.fill_(value)
    ...     average.update()
    >>> with average.applied():
    ...     line.weight.item()
    3.0
    >>> line.weight.item()
    6.0
    """

    def __init__(self, module: nn.Module, parameters: Iterable[nn.Parameter], rule: Average):
        self.module, self.parameters, self.rule, self.steps = module, list(parameters), rule, 0
        kept = module.state_dict().keys()
        # By name: a module may put another tensor in a buffer's place.
        self.buffers = [name for name, one in module.named_buffers() if name in kept and one.is_floating_point()]
        self.means = [one.to(torch.promote_types(one.dtype, torch.float32), copy=True) for one in self._current()]

    def update(self) -> None:
        """Take in the weights as they are after a step."""
        plain = self.rule == "mean" or self.steps + 1 < 1 / (1 - self.rule)
        mix = get_swa_multi_avg_fn() if plain else get_ema_multi_avg_fn(self.rule)
        mix(self.means, [one.to(mean.dtype) for one, mean in zip(self._current(), self.means)], self.steps)
        self.steps += 1

    def apply(self) -> None:
        """Leave the mean in the module."""
        weights = len(self.parameters)
        for number, (one, mean) in enumerate(zip(self._current(), self.means)):
            one.copy_(mean if number < weights else torch.where(mean.isfinite(), mean, one))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module with the mean for its weights, and afterwards with its own again."""
        own = [one.clone() for one in self._current()]
        self.apply()
        try:
            yield
        finally:
            for one, value in zip(self._current(), own):
                one.copy_(value)

    def state(self) -> dict[str, Any]:
        """What changes over time."""
        return {"steps": self.steps, "means": self.means}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.steps = state["steps"]
        for mean, saved in zip(self.means, state["means"], strict=True):
            mean.copy_(saved)

    def _current(self) -> list[Tensor]:
        """What is averaged, without its gradients."""
        held = dict(self.module.named_buffers()) if self.buffers else {}
        return [one.detach() for one in (*self.parameters, *(held[name] for name in self.buffers))]


def is_average(value: object) -> bool:
    """Whether a value is a way to average weights.

    >>> [is_average(one) for one in ("mean", 0.999, 1.0, "median", True)]
    [True, True, False, False, False]
    """
    if isinstance(value, str):
        return value == "mean"
    return isinstance(value, float) and 0 < value < 1
