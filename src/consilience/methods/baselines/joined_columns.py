"""All columns side by side, which is what the baselines `linear` and `boosted` read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.samples import Kind, Samples
from consilience.methods import Method, Spec
from consilience.training import Trainer
from consilience.training.whole_set import whole_batches


class Baseline(Method):
    """A baseline that is not trained by gradients. It builds no encoder, so choices of encoders do not change it."""

    trains_by_gradients = False

    @classmethod
    def _reason_against_trees(cls, spec: Spec) -> str | None:
        """None: no encoder is built."""
        return None


class ColumnBaseline(Baseline):
    """A baseline that reads the standardised values of all vector modalities side by side."""

    reads: ClassVar[tuple[Kind, ...]] = ("vector",)

    def __init__(self, spec: Spec):
        super().__init__(spec)
        self.columns = sum(math.prod(modality.shape) for modality in spec.modalities.values())


def join_columns(batch: Batch, names: Sequence[str], missing: float) -> tuple[Tensor, Tensor]:
    """Put the values of modalities side by side.

    Args:
        batch: The samples.
        names: The modalities, in order.
        missing: What stands for the values of a missing modality.

    Returns:
        Values `[batch, column]`, and which modalities are missing `[batch, modality]`, as numbers.
    """
    there = torch.stack([batch.present_in(name) for name in names], dim=1)
    values = [batch[name].flatten(1).masked_fill(~there[:, place, None], missing) for place, name in enumerate(names)]
    joined = torch.cat(values, dim=1)
    return joined, (~there).to(joined.dtype)


def training_columns(
    train: Samples, names: Sequence[str], trainer: Trainer, missing: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return all samples of weight > 0, which are noisy copies with augmentation.

    Returns:
        Values `[n, column]`, missing modalities `[n, modality]`, encoded targets, and weights `[n]` with mean 1.
    """
    parts = []
    for batch in whole_batches(train, trainer):
        assert batch.y is not None
        used = batch.weight > 0
        inputs = [part[used].double().numpy() for part in join_columns(batch, names, missing)]
        parts.append((*inputs, batch.y[used].numpy(), batch.weight[used].double().numpy()))
    values, absent, y, weight = map(np.concatenate, zip(*parts))
    return values, absent, y, weight * len(weight) / weight.sum()
