"""The theorem's arithmetic on tensors: what each expert contributes, and the posterior their sum gives.

Differentiable, and right in every corner (Remark 1 of the theorem, missing experts, infinite logits): the reference for
the faster ways in `blocks` and `kernels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from consilience.core.errors import InputError, name_rows


def speakers(weights: Tensor | None, reliability: Tensor | None) -> Tensor | None:
    """Who is heard, `[row, expert]`: an expert of weight or reliability 0 is as good as missing. None: everyone."""
    if weights is None or reliability is None:
        given = reliability if weights is None else weights
        return None if given is None else given != 0
    return (weights != 0) & (reliability != 0)


def weigh(
    logits: Tensor,
    log_prior: Tensor,
    weights: Tensor | None = None,
    reliability: Tensor | None = None,
    *,
    label: Callable[[int], str] = "expert {}".format,
    first_row: int = 0,
) -> tuple[Tensor, Tensor]:
    """Each expert's evidence w (z − ln π) up to a constant, and the classes it rules out: `[row, expert, class]` twice.

    logits: `[row, expert, class]` · log_prior: `[expert or 1, class]` · weights, reliability: `[row, expert]`, 0 where
    the expert is missing. The evidence is finite throughout; nothing that a silent expert says reaches values or
    gradients. With reliability ρ an expert says ln(ρ p + (1 − ρ) π) instead of ln p.
    """
    heard = speakers(weights, reliability)
    finite = logits.isfinite()
    _refuse_broken(logits, finite, heard, label, first_row)
    unseen = log_prior.isneginf()
    base = log_prior.masked_fill(unseen, 0)
    spoken = torch.where(finite, logits, -math.inf)
    if reliability is None:
        top = spoken.detach().amax(-1, keepdim=True)
        said = torch.where(finite, logits, 0) - top.masked_fill(top.isneginf(), 0)
        possible = finite & ~said.isneginf()
        said = said - base
    else:
        # An expert who rules everything out has no probabilities: ρ < 1 then says that it must be broken.
        nothing = ~finite.any(-1, keepdim=True)
        log_p = functional.log_softmax(spoken.masked_fill(nothing, 0), -1).masked_fill(nothing, -math.inf)
        said = _Soften.apply(log_p - base, reliability[..., None].expand_as(log_p))
        possible = ~said.isneginf()
    possible = possible & ~unseen
    barred = ~possible if heard is None else ~possible & heard[..., None]
    if heard is not None:
        # Where a silent expert rules a class out, the posterior jumps, and no slope is right: it gets none.
        possible = possible & (heard | possible.all(-1))[..., None]
    evidence = torch.where(possible, said, 0)
    if weights is not None:
        evidence = evidence * weights[..., None]
    # Far enough from the type's end for thousands of such to be added.
    most = torch.finfo(evidence.dtype).max / 2**14
    return evidence.clamp(-most, most), barred


def conclude(
    evidence: Tensor, barred: Tensor, log_target: Tensor, log_kappa: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The log-posterior `[row, class]`, −inf where a class is barred, and where all were: `[row]`, given the prior.

    evidence, barred: summed over the experts, `[row, class]` · log_target: `[class]` · log_kappa: `[row, class]`.
    """
    never = log_target.isneginf()
    barred = barred | never
    scores = evidence + log_target.masked_fill(never, 0)
    if log_kappa is not None:
        barred = barred | log_kappa.isneginf()
        scores = scores + log_kappa.masked_fill(log_kappa.isneginf(), 0)
    conflict = barred.all(-1)
    scores = torch.where(conflict[..., None], log_target, scores.masked_fill(barred, -math.inf))
    # Once more −inf after the softmax: what is certain passes no gradient on, whatever a loss makes of −inf.
    return functional.log_softmax(scores, -1).masked_fill(scores.isneginf(), -math.inf), conflict


class _Soften(torch.autograd.Function):
    """ln(ρ eᵃ + 1 − ρ), with the gradients that its pieces lose at ρ = 0 and ρ = 1."""

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
        most = torch.finfo(out.dtype).max / 2**14
        by_a = rho * (a - out).exp().clamp(max=most)
        by_rho = (a - out).exp().clamp(max=most) - (-out).exp().clamp(max=most)
        return grads[0] * by_a, grads[0] * by_rho.masked_fill(lost, 0)


def _refuse_broken(
    logits: Tensor, finite: Tensor, heard: Tensor | None, label: Callable[[int], str], first_row: int
) -> None:
    broken = ~(finite | logits.isneginf()).all(-1)
    broken = broken if heard is None else broken & heard
    if broken.any():
        expert = int(broken.any(0).nonzero()[0])
        rows = first_row + broken[:, expert].nonzero().flatten().cpu().numpy()
        raise InputError(
            f"opinions of {label(expert)} hold NaN or +inf ({name_rows(rows)}); where it is missing, say so in present"
        )
