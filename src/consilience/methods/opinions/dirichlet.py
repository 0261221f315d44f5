"""Dirichlet distributions by the logarithm of their parameters: the expected cross entropy and the divergence.

Evidence is multiplied when opinions are joined, so that parameters outgrow 32-bit numbers, and lnΓ of them outgrows
what it is subtracted from. Everything here is a function of ln α ≥ 0, written so that no large terms cancel.
softmax(ln α) is the distribution's mean α / S, S = Σ α: ln α can stand wherever logits are wanted.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Where Stirling's series take over from torch.lgamma and torch.digamma: they are exact to 1e-11 from here on.
_LARGE = math.log(50.0)


def evidential_losses(log_alpha: Tensor, y: Tensor, annealing: float) -> Tensor:
    """Expected cross entropy plus `annealing` × divergence of what speaks for wrong classes from saying nothing.

    Sensoy et al. 2018, *Evidential Deep Learning to Quantify Classification Uncertainty*, and Han et al. 2021, *Trusted
    Multi-View Classification*: ψ(S) − ψ(α_y) + λ_t · KL(Dir(α̃) ‖ Dir(1)), where α̃ is α with the evidence for the true
    class taken away. log_alpha: `[..., class]`, y: `[...]` class indices.
    """
    misleading = log_alpha.scatter(-1, y[..., None], 0.0)
    return expected_cross_entropy(log_alpha, y) + annealing * divergence_from_uniform(misleading)


def expected_cross_entropy(log_alpha: Tensor, y: Tensor) -> Tensor:
    """E[−ln p_y] for p drawn from Dir(α), ψ(S) − ψ(α_y): `[..., class]`, `[...]` → `[...]`.

    >>> expected_cross_entropy(torch.zeros(1, 2), torch.tensor([0]))  # p_y uniform: ∫ −ln p = 1
    tensor([1.0000])
    """
    own = log_alpha.gather(-1, y[..., None])[..., 0]
    return digamma_of_exp(torch.logsumexp(log_alpha, dim=-1)) - digamma_of_exp(own)


def divergence_from_uniform(log_alpha: Tensor) -> Tensor:
    """KL(Dir(α) ‖ Dir(1)) `[..., class]` → `[...]`: how far a Dirichlet is from no opinion.

    The usual form lnΓ(S) − Σ lnΓ(α_k) − lnΓ(K) + Σ (α_k − 1)(ψ(α_k) − ψ(S)) subtracts terms of size S ln S. With
    r(x) = lnΓ(x) − (x − 1) ψ(x) + x, which grows like ½ ln x, it is r(S) − Σ r(α_k) + (K − 1) ψ(S) − lnΓ(K).

    >>> divergence_from_uniform(torch.tensor([[2.0, 1.0]]).log()).item()  # density 2p: ∫ 2p ln 2p = ln 2 − ½
    0.1931...
    """
    classes = log_alpha.shape[-1]
    log_total = torch.logsumexp(log_alpha, dim=-1)
    spread = _gamma_remainder(log_total) - _gamma_remainder(log_alpha).sum(-1)
    return spread + (classes - 1) * digamma_of_exp(log_total) - math.lgamma(classes)


def digamma_of_exp(t: Tensor) -> Tensor:
    """ψ(eᵗ), finite for every t ≥ 0, as are its gradients."""
    x = t.clamp(max=_LARGE).exp()
    inverse = (-t.clamp(min=_LARGE)).exp()
    series = t - inverse / 2 - inverse**2 / 12 + inverse**4 / 120
    return torch.where(t < _LARGE, torch.digamma(x), series)


def _gamma_remainder(t: Tensor) -> Tensor:
    """r(eᵗ) with r(x) = lnΓ(x) − (x − 1) ψ(x) + x."""
    x = t.clamp(max=_LARGE).exp()
    inverse = (-t.clamp(min=_LARGE)).exp()
    series = (t + 1 + math.log(2 * math.pi)) / 2 - inverse / 3 - inverse**2 / 12 - inverse**3 / 90 + inverse**4 / 120
    return torch.where(t < _LARGE, torch.lgamma(x) - (x - 1) * torch.digamma(x) + x, series)
