"""The features of a modality from which its reliability is judged."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.samples import Modality
from consilience.encoders import length_mask, masked_mean


def is_numeric(modality: Modality) -> bool:
    """Whether a modality's values are quantities; token ids are not."""
    return modality.kind != "tokens"


def view_size(modality: Modality, width: int) -> int:
    """The number of features that `view` returns for a modality whose encoder has this width."""
    if modality.kind == "sequence":
        return 2 * modality.shape[1]
    return math.prod(modality.shape) if is_numeric(modality) else width


def view(modality: Modality, batch: Batch, features: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The features from which a modality's reliability is judged: `[n, feature]`.

    Vectors and images as they are (standardised); sequences as each feature's mean and standard deviation over time,
    of any length; tokens as the encoder's features `[n, width]`. They are converted before anything is computed: sums
    in 32 bits depend on the size of the batch and on its padding.
    """
    if not is_numeric(modality):
        assert features is not None
        return features.to(dtype)
    x = batch[modality.name].to(dtype)
    if modality.kind != "sequence":
        return x.flatten(1)
    mask = length_mask(batch.lengths.get(modality.name), x)
    mean = masked_mean(x, mask)
    variance = masked_mean((x - mean[:, None]).square(), mask)
    return torch.cat([mean, variance.sqrt()], dim=1)
