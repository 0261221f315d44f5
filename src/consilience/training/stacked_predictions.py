"""What stacked models predict: whatever is asked of the predictions of each, all of them computed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from consilience.core.batches import Batch
from consilience.methods import Method, Prediction
from consilience.training.stacked_data import Trials, trial_batch

ROWS = 2048  # samples of each trial that are evaluated at once

# A function of a method and its prediction of a batch that returns a tensor, or tensors by name.
Ask = Callable[[Method, Prediction, Batch], Any]
Weights = dict[str, Tensor]


class _Asked(nn.Module):
    """A method and a function of its prediction, so that both use the same stacked weights."""

    def __init__(self, method: Method, ask: Ask, complete: frozenset[str] | None):
        super().__init__()
        self.method, self.ask, self.complete = method, ask, complete

    def forward(self, values: Weights, y: Tensor, present: Tensor | None, weight: Tensor | None) -> Any:
        batch = trial_batch(values, y, present, weight, self.complete)
        return self.ask(self.method, self.method(batch), batch)


def ask_trials(method: Method, ask: Ask, weights: Mapping[str, Tensor], batch: Trials, precision: str) -> Any:
    """Return what is asked of every trial's prediction of its batch, with the stacked weights: `[trial, …]`."""
    asked = _Asked(method, ask, batch.complete)

    def single(weights: Weights, *data: Any) -> Any:
        return functional_call(asked, {f"method.{name}": weight for name, weight in weights.items()}, data)

    data = (dict(batch.values), batch.y, batch.present, batch.weight)
    dimensions = (0, *(None if part is None else 0 for part in data))
    with torch.autocast(batch.y.device.type, torch.bfloat16, enabled=precision.startswith("bf16")):
        return vmap(single, in_dims=dimensions, randomness="different")(dict(weights), *data)


@torch.no_grad()
def evaluate(
    method: Method, weights: Mapping[str, Tensor], data: Trials, ask: Ask, precision: str = "32", rows: int = ROWS
) -> list[Any]:
    """Return what is asked of the predictions in evaluation mode, for each piece of `rows` samples."""
    training = method.training
    method.eval()
    pieces = (slice(start, start + rows) for start in range(0, data.samples, rows))
    try:
        return [ask_trials(method, ask, weights, data.rows(piece), precision) for piece in pieces]
    finally:
        method.train(training)
