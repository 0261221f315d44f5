"""How good a method is on samples that it does not learn from: what early stopping goes by."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from consilience.batches import Batch
from consilience.methods import Method, weighted_mean
from consilience.training.feed import Feed


@torch.no_grad()
def validate(model: Any, method: Method, feed: Feed, batch_size: int) -> dict[str, float]:
    """The mean loss that early stopping goes by, and the accuracy of a classification, on a whole set."""
    model.eval()
    pieces = []
    for batch in feed.in_order(batch_size):
        prediction = model(batch)
        losses = method.validation_losses(prediction, batch)
        losses = losses.to(torch.promote_types(losses.dtype, torch.float32))
        right = correct(method, prediction.output, batch)
        pieces.append(torch.stack([losses, right.to(losses), batch.weight.to(losses)]))
    losses, right, weight = torch.cat(pieces, dim=1).cpu().double()
    row = {"validation_loss": float(weighted_mean(losses, without_worst(weight, losses, method.ignored_worst)))}
    if method.task.classification:
        row["validation_accuracy"] = float(weighted_mean(right, weight))
    return row


def without_worst(weight: Tensor, losses: Tensor, share: float) -> Tensor:
    """The weights `[n]`, 0 for a share of the samples: those with the largest losses; of fewer than twenty, for none.

    >>> without_worst(torch.ones(100), torch.arange(100.0), 0.01).sum().item()
    99.0
    """
    worst = losses.topk(min(math.ceil(share * len(losses)), len(losses) // 20)).indices
    return weight.index_fill(0, worst, 0)  # a loss that is not a number stays one: 0 · NaN


def correct(method: Method, output: Tensor, batch: Batch) -> Tensor:
    """1 where a classification is right, `[batch]`; zeros for a regression."""
    if not method.task.classification:
        return torch.zeros_like(batch.weight)
    assert batch.y is not None
    return (output.argmax(dim=1) == batch.y).to(batch.weight.dtype)
