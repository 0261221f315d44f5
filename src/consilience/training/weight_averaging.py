"""Averaged weights: training continues from the last weights, but their mean over the steps is validated and kept.

Small batches make the weights fluctuate; their mean over many steps fluctuates less (Polyak and Juditsky 1992,
Acceleration of Stochastic Approximation by Averaging).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun
    from consilience.training.training_settings import Average


class WeightAveraging(Callback):
    """Averages the weights over the steps of each phase in at least 32 bits; validates the average and keeps it.

    Buffers that are saved with the module, such as the running statistics of a batch norm, are averaged too; entries
    without a finite mean, such as a mask of −inf, stay as they are.

    Args:
        rule: "mean" (all steps count equally), or the decay of an exponential moving average, 0 < decay < 1, which is
            the mean for the first 1 / (1 − decay) steps.

    Example:
        >>> line = nn.Linear(1, 1, bias=False)
        >>> average = WeightAveraging("mean")
        >>> average.start(line, line.parameters())
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = line.weight.data.fill_(value)
        ...     average.update()
        >>> with average.applied():
        ...     line.weight.item()
        3.0
        >>> line.weight.item()
        6.0
    """

    every_process = True

    def __init__(self, rule: Average):
        self.rule = rule
        self._validating = ExitStack()

    def start(self, module: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
        """Begin a new average of these parameters of a module, and of its buffers."""
        self.module, self.parameters, self.steps = module, list(parameters), 0
        kept = module.state_dict().keys()
        # By name: a module may put another tensor in a buffer's place.
        self.buffers = [name for name, buffer in module.named_buffers() if name in kept and buffer.is_floating_point()]
        self.means = [
            tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True) for tensor in self._current()
        ]

    def update(self) -> None:
        """Add the weights as they are after a step."""
        update_means(self.means, self._current(), self.rule, self.steps)
        self.steps += 1

    def apply(self) -> None:
        """Replace the module's weights by the mean."""
        weights = len(self.parameters)
        for number, (own, mean) in enumerate(zip(self._current(), self.means)):
            own.copy_(mean if number < weights else torch.where(mean.isfinite(), mean, own))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the module the mean within a block, and its own weights again afterwards."""
        saved = [own.clone() for own in self._current()]
        self.apply()
        try:
            yield
        finally:
            for own, value in zip(self._current(), saved):
                own.copy_(value)

    def on_phase_start(self, run: TrainingRun) -> None:
        """Start an average."""
        self.start(run.module, run.parameters)

    def on_step_end(self, run: TrainingRun) -> None:
        """Add the weights."""
        self.update()

    def on_validation_start(self, run: TrainingRun) -> None:
        """Put the average in the module."""
        self._validating.enter_context(self.applied())

    def on_validation_end(self, run: TrainingRun) -> None:
        """Put the weights back."""
        self._validating.close()

    def on_phase_end(self, run: TrainingRun) -> None:
        """Without validation, keep the average."""
        if run.best_weights is None:
            self.apply()
            run.weights_kept = "the average of its steps so far"

    def state(self) -> dict[str, Any]:
        """Return the average so far."""
        return {"steps": self.steps, "means": self.means}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue a saved average."""
        self.steps = state["steps"]
        for mean, saved in zip(self.means, state["means"], strict=True):
            mean.copy_(saved)

    def _current(self) -> list[Tensor]:
        """The averaged tensors as they are now, without gradients."""
        buffers = dict(self.module.named_buffers()) if self.buffers else {}
        return [tensor.detach() for tensor in (*self.parameters, *(buffers[name] for name in self.buffers))]


def update_means(means: list[Tensor], current: list[Tensor], rule: Average, steps: int) -> None:
    """Update means over `steps` steps in place by one more step."""
    plain = rule == "mean" or steps + 1 < 1 / (1 - rule)
    update = get_swa_multi_avg_fn() if plain else get_ema_multi_avg_fn(rule)
    update(means, [tensor.to(mean.dtype) for tensor, mean in zip(current, means)], steps)
