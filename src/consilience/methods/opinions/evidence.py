"""Evidence: what an expert's logits say for each class, and two rules that join it over modalities.

Subjective logic reads a Dirichlet with parameters α_k = e_k + 1, S = Σ α, as an opinion: evidence e_k ≥ 0 for class k,
belief b_k = e_k / S in it, and uncertainty u = K / S, which together make 1. No evidence is the vacuous opinion u = 1.
All functions take and give ln α `[..., class]`: zeros are the vacuous opinion, softmax(ln α) is the mean α / S.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Evidence = Literal["softplus", "exp", "relu"]

# From here on eᵗ − 1 and eᵗ are the same to double precision, whatever multiplies them.
_LARGE = 40.0


def log_dirichlet(logits: Tensor, evidence: Evidence = "softplus") -> Tensor:
    """Logits as ln α = ln(1 + e), in at least 32 bits; e = softplus(z), exp(z) or relu(z).

    >>> log_dirichlet(torch.tensor([-1e4, 0.0, 1e4]), "exp").tolist()
    [0.0, 0.69..., 10000.0]
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if evidence == "exp":
        return functional.softplus(wide)  # ln(1 + eᶻ), without passing through eᶻ
    return torch.log1p(functional.softplus(wide) if evidence == "softplus" else functional.relu(wide))


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

    An opinion's mass lies on single classes (b_k) and on all of them together (u), and so does that of several joined:
    b_k ∝ Π_m (b_mk + u_m) − Π_m u_m and u ∝ Π_m u_m, for the intersection is class k if every opinion says k or
    nothing, and some say k. In evidence, where e_k = K b_k / u, the constant cancels:

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
    heard = present.any(dim=-1, keepdim=True)
    # Where no one is heard every term would be −inf, and its gradient nan.
    kept = (present | ~heard)[..., None]
    total = torch.logsumexp(log_alpha.masked_fill(~kept, -math.inf), dim=-2)
    mean = total - kept.sum(dim=-2).to(total.dtype).log()
    return torch.where(heard, mean, torch.zeros_like(mean))
