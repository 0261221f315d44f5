"""Conversion between the user's units and those of a likelihood: standardised or raw numbers, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.methods.latent.likelihoods.likelihood import LikelihoodChoice, find_likelihood
from consilience.preparation.transforms import Standardise, Transform, Words, read_moments, register_transform


class AsIs(Standardise):
    """Raw numbers, for likelihoods of counts, probabilities and classes.

    Their moments and range are learned nevertheless: corruptions are scaled by them.
    """

    name: ClassVar[str] = "as-is"

    def __init__(self, output: Modality, mean: Tensor, std: Tensor, low: Tensor, high: Tensor):
        super().__init__(output, mean, std, low, high)
        self._set_units(torch.zeros_like(mean), torch.ones_like(std))


@register_transform(AsIs.name)
def _load_as_is(output: Modality, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    return AsIs(output, **read_moments(output, tensors))


def own_transforms(
    modalities: Mapping[str, Modality], likelihoods: Mapping[str, LikelihoodChoice]
) -> dict[str, Callable[[Samples, str], Transform]]:
    """Return, for `Preparation.fit`, the transforms of modalities whose likelihood needs raw numbers."""
    found: dict[str, Callable[[Samples, str], Transform]] = {}
    for name, modality in modalities.items():
        raw = not find_likelihood(modality, likelihoods.get(name))[0].standardised
        if raw and modality.kind in ("vector", "image", "sequence"):
            found[name] = partial(AsIs.fit, weight=None)
    return found


def in_users_units(transform: Transform, values: Tensor) -> np.ndarray:
    """Return prepared values `[..., *shape]` in the user's units: numbers, ids, or texts `[...]`.

    Numbers are float32, or float64 where 32 bits have too few digits, as for times in seconds since 1970.
    """
    if isinstance(transform, Words):
        known = np.array(["", "?", *transform.words], dtype=object)
        ids = values.cpu().numpy()
        texts = [" ".join(filter(None, known[row])) for row in ids.reshape(-1, ids.shape[-1])]
        return np.array(texts, dtype=object).reshape(ids.shape[:-1])
    if not isinstance(transform, Standardise):
        return values.cpu().numpy()
    shift, scale = map(torch.from_numpy, transform.units)
    numbers = values.to("cpu", torch.float64, copy=True).mul_(scale).add_(shift)
    return (numbers if transform.needs_64_bits else numbers.float()).numpy()


def within_range(transform: Transform, values: np.ndarray) -> np.ndarray:
    """Return values `[…, *shape]` in the user's units, kept within the range of the training values."""
    if not isinstance(transform, Standardise):
        return values
    around = (-1, 1, 1) if transform.output.kind == "image" else (-1,)
    low, high = (end.numpy().reshape(around).astype(values.dtype) for end in (transform.low, transform.high))
    return np.clip(values, low, high)


def log_volume(transform: Transform, n: int, lengths: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
    """Return log |dx / dx'| of each sample `[n]`, x' being the prepared x: log p(x) = log p(x') − log_volume.

    Without it the likelihood would depend on the scale of the training data, and models could not be compared.
    Features that are `hidden` `[n, feature]` have no density and do not count.
    """
    if not isinstance(transform, Standardise):
        return torch.zeros(n, dtype=torch.float64)
    scale, modality = torch.from_numpy(transform.units[1]), transform.output
    if modality.kind == "sequence":
        steps = torch.full((n,), modality.shape[0]) if lengths is None else lengths.cpu()
        return scale.log().sum() * steps.double()
    if hidden is not None:
        return scale.expand(modality.shape).log().expand(n, -1).masked_fill(hidden.cpu(), 0).sum(-1)
    return scale.expand(modality.shape).log().sum().expand(n)
