"""Evidence for classes as a Dirichlet distribution: from logits, joined over modalities, and its losses.

Subjective logic reads a Dirichlet with parameters α_k = e_k + 1, S = Σ α, as an opinion: evidence e_k ≥ 0 for class k,
belief b_k = e_k / S in it, and uncertainty u = K / S, which together make 1. No evidence is the vacuous opinion u = 1.

All functions take and return ln α ≥ 0, `[..., class]`: zeros are the vacuous opinion, and softmax(ln α) is the mean
α / S, so that ln α can be used like logits. On the log scale nothing overflows when evidence is multiplied, and the
losses are written so that no large terms cancel.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Evidence = Literal["softplus", "exp", "relu"]

# From here on eᵗ − 1 and eᵗ are the same in double precision.
_LARGE = 40.0
# From here on Stirling's series replace torch.lgamma and torch.digamma; they are exact to 1e-11.
_STIRLING = math.log(50.0)


def log_dirichlet(logits: Tensor, evidence: Evidence = "softplus") -> Tensor:
    """Logits as ln α = ln(1 + e), in at least 32 bits; e = softplus(z), exp(z) or relu(z).

    >>> log_dirichlet(torch.tensor([-1e4, 0.0, 1e4]), "exp").tolist()
    [0.0, 0.69..., 10000.0]
    """
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if evidence == "exp":
        return functional.softplus(z)  # ln(1 + eᶻ), without passing through eᶻ
    return torch.log1p(functional.softplus(z) if evidence == "softplus" else functional.relu(z))


def certainty(log_alpha: Tensor) -> Tensor:
    """1 − u, the belief in all classes together: `[..., class]` → `[...]`, from 0 (vacuous) up to 1.

    >>> certainty(torch.tensor([[1.0, 1.0], [7.0, 1.0]]).log())
    tensor([0.0000, 0.7500])
    """
    # Σ_k b_k with b_k = α_k / S · (1 − 1 / α_k): exactly 0 without evidence, and no 1 − K / S that rounds below it.
    return (log_alpha.softmax(dim=-1) * -torch.expm1(-log_alpha)).sum(dim=-1)


def scale_evidence(log_alpha: Tensor, factor: float) -> Tensor:
    """ln(1 + factor · e) from ln α = ln(1 + e): the same opinion with all its evidence multiplied.

    >>> scale_evidence(torch.tensor([0.5, 3.0]).log1p(), 2.0).expm1()
    tensor([1.0000, 6.0000])
    """
    moderate = log_alpha.clamp(max=_LARGE)
    return torch.log1p(factor * torch.expm1(moderate)) + functional.relu(log_alpha - _LARGE)


def dempster(log_alpha: Tensor) -> Tensor:
    """Dempster's rule over the opinions of all modalities: `[..., modality, class]` → `[..., class]`.

    The masses of the joined opinion are b_k ∝ Π_m (b_mk + u_m) − Π_m u_m and u ∝ Π_m u_m. In evidence, where
    e_k = K b_k / u, the constant cancels:

        1 + e_k / K = Π_m (1 + e_mk / K)

    so that the rule is one sum of logarithms, the same in any order, and the vacuous opinion changes nothing.
    Han et al. 2021, *Trusted Multi-View Classification*, apply it to two opinions at a time.

    >>> first, second = torch.tensor([[3.0, 0.0], [1.0, 1.0]])  # (1 + 3/2)(1 + 1/2) = 1 + 5.5/2
    >>> dempster(torch.stack([first, second]).log1p()).expm1()
    tensor([5.5000, 1.0000])
    """
    classes = log_alpha.shape[-1]
    return scale_evidence(scale_evidence(log_alpha, 1 / classes).sum(dim=-2), classes)


def average_evidence(log_alpha: Tensor, present: Tensor) -> Tensor:
    """The mean of the present modalities' evidence: `[..., modality, class]`, `[..., modality]` → `[..., class]`.

    Where nothing is present the mean is vacuous.

    >>> average_evidence(torch.tensor([[4.0, 0.0], [2.0, 6.0]]).log1p(), torch.tensor([True, True])).expm1()
    tensor([3., 3.])
    """
    any_present = present.any(dim=-1, keepdim=True)
    # Where no modality is present every term would be −inf, and its gradient NaN.
    kept = (present | ~any_present)[..., None]
    total = torch.logsumexp(log_alpha.masked_fill(~kept, -math.inf), dim=-2)
    mean = total - kept.sum(dim=-2).to(total.dtype).log()
    return torch.where(any_present, mean, torch.zeros_like(mean))


def evidential_losses(log_alpha: Tensor, y: Tensor, annealing: float) -> Tensor:
    """Expected cross entropy plus `annealing` × the divergence of the evidence for wrong classes from none: `[...]`.

    ψ(S) − ψ(α_y) + λ_t · KL(Dir(α̃) ‖ Dir(1)), where α̃ is α without the evidence for the true class. Sensoy et al.
    2018, *Evidential Deep Learning to Quantify Classification Uncertainty*; Han et al. 2021, *Trusted Multi-View
    Classification*.

    Args:
        log_alpha: ln α, `[..., class]`.
        y: Class indices, `[...]`.
        annealing: λ_t, from 0 to 1.
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
    """KL(Dir(α) ‖ Dir(1)) `[..., class]` → `[...]`: 0 for the vacuous opinion.

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
    x = t.clamp(max=_STIRLING).exp()
    inverse = (-t.clamp(min=_STIRLING)).exp()
    series = t - inverse / 2 - inverse**2 / 12 + inverse**4 / 120
    return torch.where(t < _STIRLING, torch.digamma(x), series)


def _gamma_remainder(t: Tensor) -> Tensor:
    """r(eᵗ) with r(x) = lnΓ(x) − (x − 1) ψ(x) + x."""
    x = t.clamp(max=_STIRLING).exp()
    inverse = (-t.clamp(min=_STIRLING)).exp()
    series = (t + 1 + math.log(2 * math.pi)) / 2 - inverse / 3 - inverse**2 / 12 - inverse**3 / 90 + inverse**4 / 120
    return torch.where(t < _STIRLING, torch.lgamma(x) - (x - 1) * torch.digamma(x) + x, series)
