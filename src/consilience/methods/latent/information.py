"""Entropies, mutual information and variation of information of modalities, from a model's likelihoods (nats)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, show, unknown_name
from consilience.core.samples import Samples

# Modalities → log p of each sample `[n]`.
LogLikelihoods = Callable[[list[str]], Tensor]


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


def entropy(log_likelihood: LogLikelihoods, of: Sequence[str], given: Sequence[str] = ()) -> Information:
    """H(A | B) = −E log p(A | B), as the mean over samples.

    Args:
        log_likelihood: Modalities → log p `[n]`.
        of: The modalities A.
        given: The modalities B.
    """
    whole = log_likelihood([*of, *given])
    return mean_information(-whole if not given else log_likelihood(list(given)) - whole)


def mutual_information(
    log_likelihood: LogLikelihoods, a: Sequence[str], b: Sequence[str], given: Sequence[str] = ()
) -> Information:
    """I(A; B | C) = H(A | C) − H(A | B, C), the mean of log p(A, B, C) + log p(C) − log p(A, C) − log p(B, C).

    Unlike entropies of continuous modalities it does not depend on their units. It is at least 0 under the model; a
    mean over samples may be below.

    Args:
        log_likelihood: Modalities → log p `[n]`.
        a: The modalities A.
        b: The modalities B.
        given: The modalities C.
    """
    each = log_likelihood([*a, *b, *given]) - log_likelihood([*a, *given]) - log_likelihood([*b, *given])
    return mean_information(each + log_likelihood(list(given)) if given else each)


def split_parts(
    parts: Sequence[str | Iterable[str]], known: Sequence[str], operation: str, least: int = 1
) -> list[list[str]]:
    """Return the modalities of each part, of at least so many; none may be empty, and no modality may be in two."""
    groups = [[part] if isinstance(part, str) else list(part) for part in parts]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in known:
            raise unknown_name("modality", name, known, f"It was given to {operation}")
    if len(groups) < least or not all(groups) or len(set(named)) < len(named):
        count = "" if least == 1 else f"at least {least} "
        raise InputError(f"{operation} needs {count}parts, each of modalities that no other has, got {show(groups)}")
    return groups


def complete_samples(samples: Samples, names: Sequence[str], operation: str) -> Samples:
    """Return the samples that have all of these modalities."""
    whole = samples.present_among(names).all(axis=1)
    if not whole.any():
        raise InputError(f"{operation}: no sample has all of {', '.join(names)}")
    return samples[np.flatnonzero(whole)]


def variation_of_parts(groups: Sequence[list[str]], log_likelihood: LogLikelihoods) -> Information:
    """Return the variation of information of parts, each some modalities; log_likelihood: modalities → log p `[n]`."""
    without = [log_likelihood([name for other in groups if other is not group for name in other]) for group in groups]
    joint = log_likelihood([name for group in groups for name in group])
    return variation_of_information(joint, torch.stack(without))
