"""Validation figures of a method, and early stopping by the lowest validation loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods import Method, Prediction, weighted_mean
from consilience.training.batch_loader import BatchLoader


@torch.no_grad()
def validate(model: Any, method: Method, loader: BatchLoader, batch_size: int) -> dict[str, float]:
    """Return the validation figures of a whole set.

    Args:
        model: The method as it is called, possibly in a wrapper.
        method: The method itself.
        loader: The set.
        batch_size: Samples per batch.
    """
    model.eval()
    pieces = [per_sample(method, model(batch), batch) for batch in loader.in_order(batch_size)]
    return figures(method, torch.cat(pieces, dim=1))


def per_sample(method: Method, prediction: Prediction, batch: Batch) -> Tensor:
    """Return the loss, whether a classification is right, and the weight of each sample: `[3, batch]`."""
    losses = method.validation_losses(prediction, batch)
    losses = losses.to(torch.promote_types(losses.dtype, torch.float32))
    right = correct(method, prediction.output, batch)
    return torch.stack([losses, right.to(losses), batch.weight.to(losses)])


def figures(method: Method, values: Tensor) -> dict[str, float]:
    """Return the mean validation loss, which early stopping uses, and the accuracy of a classification.

    Args:
        method: Says which share of the worst samples is ignored.
        values: What `per_sample` returned for all samples, `[3, n]`.
    """
    losses, right, weight = values.cpu().double()
    row = {"validation_loss": mean_without_worst(losses, weight, method.ignored_worst)}
    if method.task.classification:
        row["validation_accuracy"] = float(weighted_mean(right, weight))
    return row


def mean_without_worst(losses: Tensor, weight: Tensor, share: float) -> float:
    """Return the weighted mean of losses without the largest ones.

    Args:
        losses: `[n]`. An ignored loss may be infinite; if any loss is NaN, the mean is NaN.
        weight: `[n]`.
        share: Share of the samples of positive weight that is ignored, rounded up to a whole number of samples, but
            never more than one sample in twenty.

    Example:
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
    """Return 1 where a classification is right, `[batch]`; zeros for a regression."""
    if not method.task.classification:
        return torch.zeros_like(batch.weight)
    assert batch.y is not None
    return (output.argmax(dim=1) == batch.y).to(batch.weight.dtype)


class EarlyStopping:
    """The lowest validation loss of each model, its epoch, and how many epochs have passed since.

    Args:
        patience: Epochs without a lower loss after which a model has ended. None: it never ends.
        models: How many models are trained at once.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.improves(loss, epoch) for epoch, loss in enumerate([0.5, 0.4, 0.6, 0.4])]
        [True, True, False, False]
        >>> stopping.best_epoch, stopping.ended()
        ([1], True)
    """

    def __init__(self, patience: int | None, models: int = 1):
        self.patience = patience
        self.best = [math.inf] * models
        self.best_epoch: list[int | None] = [None] * models
        self.stale = [0] * models

    def improves(self, loss: float, epoch: int, model: int = 0) -> bool:
        """Take note of a model's validation loss in an epoch (from 0); return whether it is the lowest so far."""
        if loss < self.best[model]:
            self.best[model], self.best_epoch[model], self.stale[model] = loss, epoch, 0
            return True
        self.stale[model] += 1
        return False

    def ended(self, model: int = 0) -> bool:
        """Whether the loss of a model has not fallen for `patience` epochs."""
        return self.patience is not None and self.stale[model] >= self.patience

    def state(self) -> dict[str, Any]:
        """Return what changes over time."""
        return {"best": self.best, "best_epoch": self.best_epoch, "stale": self.stale}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.best, self.best_epoch, self.stale = state["best"], state["best_epoch"], state["stale"]
