"""The theorem's arithmetic on tensors: each expert's evidence, and the posterior that their sum gives.

Differentiable, and exact in every special case (Remark 1 of the theorem, missing experts, infinite logits): the
reference for the faster `cpu_fuse` and `gpu_fuse`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.errors import InputError, name_rows
from consilience.core.tracing import is_traced


def active_experts(weights: Tensor | None, reliability: Tensor | None) -> Tensor | None:
    """Which experts count, `[row, expert]`: those whose weight and reliability are not 0. None: all of them."""
    if weights is None or reliability is None:
        given = reliability if weights is None else weights
        return None if given is None else given != 0
    return (weights != 0) & (reliability != 0)


def kappa_of_several(log_kappa: Tensor | None, active: Tensor | None, experts: int) -> Tensor | None:
    """ln κ `[row, class]`, 0 where fewer than two experts are active: there is no dependence between fewer.

    Args:
        log_kappa: `[row, class]`.
        active: `[row, expert]`. None: all of them.
        experts: The number of experts.
    """
    if log_kappa is None or (active is None and experts > 1):
        return log_kappa
    few = log_kappa.new_ones((), dtype=torch.bool) if active is None else active.sum(1, keepdim=True) < 2
    return log_kappa.masked_fill(few, 0)


def expert_evidence(
    logits: Tensor,
    log_prior: Tensor,
    weights: Tensor | None = None,
    reliability: Tensor | None = None,
    *,
    label: Callable[[int], str] = "expert {}".format,
    first_row: int = 0,
) -> tuple[Tensor, Tensor]:
    """Each expert's evidence w (z − ln π) up to a constant, and the classes that it excludes.

    With reliability ρ, ln(ρ p + (1 − ρ) π) takes the place of ln p.

    Args:
        logits: `[row, expert, class]`.
        log_prior: `[expert or 1, class]`.
        weights, reliability: `[row, expert]`, 0 where the expert is missing.
        label: An expert's name in error messages.
        first_row: The number of the first row in error messages.

    Returns:
        Evidence and excluded classes, `[row, expert, class]` each. The evidence is finite; values and gradients do not
        depend on the logits of inactive experts.

    Raises:
        InputError: If the logits of an active expert hold NaN or +inf.
    """
    active = active_experts(weights, reliability)
    finite = logits.isfinite()
    _refuse_broken(logits, finite, active, label, first_row)
    impossible = log_prior.isneginf()
    base = log_prior.masked_fill(impossible, 0)
    lowered = torch.where(finite, logits, -math.inf)
    if reliability is None:
        top = lowered.detach().amax(-1, keepdim=True)
        ratio = torch.where(finite, logits, 0) - top.masked_fill(top.isneginf(), 0)
        possible = finite & ~ratio.isneginf()
        ratio = ratio - base
    else:
        # An expert that excludes every class has no probabilities: with ρ < 1 it must be broken.
        nothing = ~finite.any(-1, keepdim=True)
        log_p = functional.log_softmax(lowered.masked_fill(nothing, 0), -1).masked_fill(nothing, -math.inf)
        ratio = _Soften.apply(log_p - base, reliability[..., None].expand_as(log_p))
        possible = ~ratio.isneginf()
    possible = possible & ~impossible
    excluded = ~possible if active is None else ~possible & active[..., None]
    if active is not None:
        # Where an inactive expert excludes a class, the posterior jumps as its weight leaves 0: it gets no gradient.
        possible = possible & (active | possible.all(-1))[..., None]
    evidence = torch.where(possible, ratio, 0)
    if weights is not None:
        evidence = evidence * weights[..., None]
    # Thousands of such terms can be added without an overflow.
    largest = torch.finfo(evidence.dtype).max / 2**14
    return evidence.clamp(-largest, largest), excluded


def log_posterior(
    evidence: Tensor, excluded: Tensor, log_target: Tensor, log_kappa: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The log-posterior of evidence that is summed over the experts.

    Args:
        evidence, excluded: `[row, class]`.
        log_target: `[class]`.
        log_kappa: `[row, class]`.

    Returns:
        The log-posterior `[row, class]`, −inf where a class is excluded; and the conflicts `[row]`, where all classes
        are excluded and the answer is the target prior.
    """
    impossible = log_target.isneginf()
    excluded = excluded | impossible
    scores = evidence + log_target.masked_fill(impossible, 0)
    if log_kappa is not None:
        excluded = excluded | log_kappa.isneginf()
        scores = scores + log_kappa.masked_fill(log_kappa.isneginf(), 0)
    conflict = excluded.all(-1)
    scores = torch.where(conflict[..., None], log_target, scores.masked_fill(excluded, -math.inf))
    # −inf once more after the softmax, so that excluded classes pass no gradient on.
    return functional.log_softmax(scores, -1).masked_fill(scores.isneginf(), -math.inf), conflict


class _Soften(torch.autograd.Function):
    """ln(ρ eᵃ + 1 − ρ), with the gradients that its parts lose at ρ = 0 and ρ = 1."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, rho: Tensor) -> Tensor:
        out = torch.logaddexp(a + rho.log(), torch.log1p(-rho))
        ctx.save_for_backward(a, rho, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        a, rho, out = ctx.saved_tensors
        lost = out.isneginf()
        out, a = out.masked_fill(lost, 0), a.masked_fill(lost, -math.inf)
        largest = torch.finfo(out.dtype).max / 2**14
        by_a = rho * (a - out).exp().clamp(max=largest)
        by_rho = (a - out).exp().clamp(max=largest) - (-out).exp().clamp(max=largest)
        return grads[0] * by_a, grads[0] * by_rho.masked_fill(lost, 0)


def _refuse_broken(
    logits: Tensor, finite: Tensor, active: Tensor | None, label: Callable[[int], str], first_row: int
) -> None:
    if is_traced():
        return
    broken = ~(finite | logits.isneginf()).all(-1)
    broken = broken if active is None else broken & active
    if broken.any():
        expert = int(broken.any(0).nonzero()[0])
        rows = first_row + broken[:, expert].nonzero().flatten().cpu().numpy()
        raise InputError(
            f"opinions of {label(expert)} hold NaN or +inf ({name_rows(rows)}); if the expert is missing there, set "
            "present to False"
        )


def least_reliable(reliability: Tensor, present: Tensor) -> Tensor:
    """The reliability of the least reliable present expert, as far as which a joint estimate holds: `[n, 1]`.

    >>> least_reliable(torch.tensor([[0.5, 0.1]]), torch.tensor([[True, False]])).tolist()
    [[0.5]]
    """
    return torch.where(present, reliability, 1.0).amin(1, keepdim=True)


def traced_posterior(
    z: Tensor, prior: Tensor, target: Tensor, weights: Tensor, log_kappa: Tensor | None = None
) -> Tensor:
    """Return the log-posterior `[n, class]` without checks of values, for tracing.

    Args:
        z: Calibrated logits `[n, modality, class]`.
        prior, target: Class shares of the experts, and where the posterior is used, `[class]`.
        weights: `[n, modality]`, 0 where missing.
        log_kappa: `[n, class]`; it counts where at least two experts are active.

    >>> z, even = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]), torch.full((2,), 0.5)
    >>> traced_posterior(z, even, even, torch.ones(1, 2)).exp().round(decimals=3)
    tensor([[0.7310, 0.2690]])
    """
    log_kappa = kappa_of_several(log_kappa, active_experts(weights, None), weights.shape[1])
    evidence, excluded = expert_evidence(z, prior.log()[None], weights)
    return log_posterior(evidence.sum(1), excluded.any(1), target.log(), log_kappa)[0]
