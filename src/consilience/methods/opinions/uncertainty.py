"""Uncertainty of an expert from its logits alone: opinions `[…, modality, class]` → uncertainty `[…, modality]`.

The estimators that Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, compare (fig. 3,
table 3). The temperature, one number or one for each modality, divides the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from consilience.methods.opinions.evidence import log_dirichlet

Temperature = float | Tensor


def energy(opinions: Tensor, temperature: Temperature = 1.0) -> Tensor:
    """The free energy −T ln Σ_k exp(z_k / T) (eq. 13): any real number, low where some logit is large.

    Unlike the other estimators it changes when a constant is added to all logits, which changes no probability, and it
    falls without bound as logits grow: features that grow with the noise make a noisy input look certain.

    >>> energy(torch.tensor([[0.0, 0.0], [5.0, 5.0]])).tolist()
    [-0.693..., -5.693...]
    """
    return -temperature * torch.logsumexp(_divided(opinions, temperature), dim=-1)


def lack_of_confidence(opinions: Tensor, temperature: Temperature = 1.0) -> Tensor:
    """One minus the largest probability (MSP): 0 … 1 − 1/K.

    >>> lack_of_confidence(torch.zeros(1, 4)).item()
    0.75
    """
    return 1 - torch.softmax(_divided(opinions, temperature), dim=-1).amax(dim=-1)


def entropy(opinions: Tensor, temperature: Temperature = 1.0) -> Tensor:
    """−Σ p ln p / ln K, the share of what K classes can have at most: 0 … 1.

    >>> entropy(torch.tensor([[0.0, 0.0], [3.0, 0.0]])).tolist()
    [1.0, 0.27...]
    """
    log = functional.log_softmax(_divided(opinions, temperature), dim=-1)
    return -(log.exp() * log).sum(dim=-1) / math.log(opinions.shape[-1])


def vacuity(opinions: Tensor, temperature: Temperature = 1.0) -> Tensor:
    """The uncertainty mass K / S of the Dirichlet with S = Σ_k (1 + softplus(z_k)), evidence as in TMC: 0 … 1.

    >>> vacuity(torch.tensor([[-99.0, -99.0], [6.0, -99.0]])).tolist()
    [1.0, 0.249...]
    """
    alpha = log_dirichlet(_divided(opinions, temperature)).exp()
    return opinions.shape[-1] / alpha.sum(dim=-1)


UNCERTAINTIES: dict[str, Callable[[Tensor, Temperature], Tensor]] = {
    "energy": energy,
    "msp": lack_of_confidence,
    "entropy": entropy,
    "evidence": vacuity,
}


def _divided(opinions: Tensor, temperature: Temperature) -> Tensor:
    """The logits divided by the temperature of their modality."""
    if isinstance(temperature, Tensor):
        return opinions / temperature.unsqueeze(-1)
    return opinions if temperature == 1 else opinions / temperature
