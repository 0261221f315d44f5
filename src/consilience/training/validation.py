"""How good a method is on samples that it does not learn from: what early stopping goes by."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from consilience.core.batches import Batch
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
    row = {"validation_loss": mean_without_worst(losses, weight, method.ignored_worst)}
    if method.task.classification:
        row["validation_accuracy"] = float(weighted_mean(right, weight))
    return row


def mean_without_worst(losses: Tensor, weight: Tensor, share: float) -> float:
    """The weighted mean of losses `[n]` but for the largest, a share of those that count.

    The share is rounded up to a whole number of samples, and is never more than one in twenty: of fewer samples than
    that none is left out. One that is left out may be infinite; where any is NaN, so is the mean.

    >>> mean_without_worst(torch.tensor([1.0] * 19 + [1e9]), torch.ones(20), 0.01)
    1.0
    """
    if not share:
        return float(weighted_mean(losses, weight))
    counted = weight > 0
    count = int(counted.sum())
    ignored = losses.masked_fill(~counted, -math.inf).topk(min(math.ceil(share * count), count // 20)).indices
    finite = losses.index_fill(0, ignored[losses[ignored].isinf()], 0)
    return float(weighted_mean(finite, weight.index_fill(0, ignored, 0)))


def correct(method: Method, output: Tensor, batch: Batch) -> Tensor:
    """1 where a classification is right, `[batch]`; zeros for a regression."""
    if not method.task.classification:
        return torch.zeros_like(batch.weight)
    assert batch.y is not None
    return (output.argmax(dim=1) == batch.y).to(batch.weight.dtype)
