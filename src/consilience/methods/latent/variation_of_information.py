"""The variation of information between modalities, estimated with a model's likelihoods."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Samples


@dataclass(frozen=True)
class Information:
    """An amount of information in nats, a mean over samples, and its standard error."""

    value: float
    standard_error: float


def variation_of_information(joint: Tensor, without: Tensor) -> Information:
    """Σ_m H(m | all others) = N·H(all) − Σ_m H(all without m), as the mean over samples of −log-likelihoods.

    For two modalities this is eq. 93 of Korthals 2019, M²VAE, H(A|B) + H(B|A); for three it is H(A|BC) + H(B|AC) +
    H(C|AB). The middle form of eq. 94 does not equal it; correct is 3H(ABC) − H(AB) − H(BC) − H(AC).

    For discrete modalities it is ≥ 0, and 0 if each follows from the others. For continuous ones the entropies are
    differential: they depend on the units and may be negative, so compare them only between models of the same data.

    Args:
        joint: Log p of all N modalities, `[n]`.
        without: Log p of all modalities but one, `[modality, n]`.
    """
    if joint.ndim != 1 or without.ndim != 2 or without.shape[1:] != joint.shape or len(without) < 2:
        raise InputError(
            "variation of information needs log-likelihoods [n] of all modalities and [modality, n] of all but one, of "
            f"at least two modalities, got {list(joint.shape)} and {list(without.shape)}"
        )
    return mean_information((without - joint).sum(0))


def mean_information(each: Tensor) -> Information:
    """Return the mean over samples `[n]` and its standard error, NaN for a single sample."""
    error = float(each.std() / math.sqrt(len(each))) if len(each) > 1 else math.nan
    return Information(float(each.mean()), error)


def split_parts(parts: Sequence[str | Sequence[str]], known: Sequence[str]) -> list[list[str]]:
    """Return the modalities of each part; there must be at least two parts, and no modality may be in two."""
    groups = [[part] if isinstance(part, str) else list(part) for part in parts]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in known:
            raise unknown_name("modality", name, known, "It was given to variation_of_information")
    if len(groups) < 2 or not all(groups) or len(set(named)) < len(named):
        raise InputError(
            f"variation_of_information needs at least two parts, each of modalities that no other has, got {parts}"
        )
    return groups


def complete_samples(samples: Samples, names: Sequence[str]) -> Samples:
    """Return the samples that have all of these modalities."""
    whole = samples.present_among(names).all(axis=1)
    if not whole.any():
        raise InputError(f"variation_of_information: no sample has all of {', '.join(names)}")
    return samples[np.flatnonzero(whole)]


def variation_of_parts(groups: Sequence[list[str]], log_likelihood: Callable[[list[str]], Tensor]) -> Information:
    """Return the variation of information of parts, each some modalities; log_likelihood: modalities → log p `[n]`."""
    without = [log_likelihood([name for other in groups if other is not group for name in other]) for group in groups]
    joint = log_likelihood([name for group in groups for name in group])
    return variation_of_information(joint, torch.stack(without))
