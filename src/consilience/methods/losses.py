"""Losses per sample and per expert, and weighted averages over the present modalities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.batches import Batch
from consilience.core.targets import Task


def task_losses(task: Task, output: Tensor, batch: Batch) -> Tensor:
    """Return the loss of each sample `[batch]`: cross entropy, or squared error averaged over targets."""
    assert batch.y is not None
    if task.classification:
        return functional.cross_entropy(output, batch.y, reduction="none")
    return (output - batch.y).square().mean(dim=1)


def expert_losses(task: Task, opinions: Tensor, batch: Batch) -> Tensor:
    """Return the loss of each expert on each sample: opinions `[batch, modality, class]` → `[batch, modality]`."""
    assert batch.y is not None
    if task.classification:
        targets = batch.y[:, None].expand(opinions.shape[:2])
        return functional.cross_entropy(opinions.transpose(1, 2), targets, reduction="none")
    return (opinions - batch.y[:, None]).square().mean(dim=2)


def weighted_mean(values: Tensor, weight: Tensor, dim: int | None = None) -> Tensor:
    """Return Σ w·v / Σ w, or 0 where all weights are 0.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([3.0, 1.0])).item()
    1.5
    """
    weight = weight.to(values.dtype)
    total = weight.sum() if dim is None else weight.sum(dim)
    weighted = (values * weight).sum() if dim is None else (values * weight).sum(dim)
    return weighted / torch.where(total > 0, total, 1)  # only ratios of weights matter


def equal_weights(present: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 / (number of present modalities), 0 where missing: `[batch, modality]`.

    >>> equal_weights(torch.tensor([[True, True], [False, True]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    there = present.to(dtype)
    return there / there.sum(dim=1, keepdim=True).clamp(min=1)
