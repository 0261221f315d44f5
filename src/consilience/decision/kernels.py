"""The theorem on a GPU in one pass over the logits: Triton kernels, forward and backward.

They give what `posterior` gives, without reliability. A program takes R rows and, N_STEP experts at a time, all
their classes; everything between the logits and the answer stays in registers. `_plain` is straight arithmetic, few
instructions for each logit; rows that it turns into NaN (Remark 1 of the theorem, or broken logits) go through
`_careful`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.decision.opinions import Opinions

# Triton's language, once a kernel is needed: importing it takes long, and it exists for few machines.
tl: Any = None
# Logits that a program and a warp hold at a time, as measured best; more classes than the most do not fit in registers.
TILE, PER_WARP, MOST_CLASSES = 8192, 1024, 32768
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def serves(opinions: Opinions) -> bool:
    """Whether the kernel takes these opinions: CUDA tensors of an ordinary type, where Triton is installed.

    The environment variable CONSILIENCE_TRITON=0 switches it off.
    """
    return (
        opinions.device.type == "cuda"
        and opinions.dtype in TYPES
        and len(opinions) > 0
        and opinions.classes <= MOST_CLASSES
        and os.environ.get("CONSILIENCE_TRITON", "1") != "0"
        and _installed()
    )


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def fuse_rows(
    logits: Tensor,
    prior: np.ndarray,
    target: np.ndarray,
    weights: Tensor | None,
    log_kappa: Tensor | None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, bool]:
    """The log-posterior `[row, class]`, where all classes were barred `[row]`, and whether an opinion is NaN or +inf.

    logits: `[row, expert, class]` · prior: `[expert or 1, class]` · target: `[class]` · weights: `[row, expert]`, 0
    where missing · log_kappa: `[row, class]`.
    """
    logits = logits.contiguous()
    weights, log_kappa = (None if one is None else one.contiguous() for one in (weights, log_kappa))
    table = _tabulate(prior, target, logits)
    followed = [one is not None and one.requires_grad for one in (logits, weights, log_kappa)]
    if torch.is_grad_enabled() and any(followed):
        posterior, conflict, broken = _Fuse.apply(logits, weights, log_kappa, table)
        posterior = posterior.to(logits.dtype)
    else:
        posterior = torch.empty_like(logits[:, 0]) if out is None else out
        conflict, broken = _forward(logits, weights, log_kappa, table, posterior)
    return posterior, conflict, broken


def _tabulate(prior: np.ndarray, target: np.ndarray, logits: Tensor) -> Tensor:
    """What depends on the class alone, in one transfer: each expert's ln π_j, then ln π_target, then ln π_target −
    Σ_j ln π_j for when everyone is heard: `[1 + 2 or expert + 2, class]`.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    possible = (prior > 0).all(axis=0) & (target > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs, log_target = np.log(prior), np.log(target)
        everyone = np.where(
            possible, log_target - np.broadcast_to(logs, (logits.shape[1], len(target))).sum(0), -np.inf
        )
    table = torch.from_numpy(np.concatenate([logs, log_target[None], everyone[None]]))
    return table.to(logits.device, wide)


class _Fuse(torch.autograd.Function):
    """The kernels with their backward; the answer in at least 32 bits, because the backward reads it again."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Any, log_kappa: Any, table: Tensor) -> Any:
        posterior = torch.empty_like(logits[:, 0], dtype=table.dtype)
        conflict, broken = _forward(logits, weights, log_kappa, table, posterior)
        ctx.save_for_backward(posterior, conflict, logits, weights, table)
        ctx.mark_non_differentiable(conflict)
        return posterior, conflict, broken

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        posterior, conflict, logits, weights, table = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grads = (
            torch.empty_like(logits) if needs[0] else None,
            torch.empty_like(weights) if needs[1] else None,
            torch.empty_like(posterior) if needs[2] else None,
        )
        given = (grad.contiguous(), posterior, conflict.view(torch.int8), logits, weights, table)
        _launch("_backward", logits, table, *given, *grads)
        return (*grads, None)


def _forward(
    logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, table: Tensor, posterior: Tensor
) -> tuple[Tensor, bool]:
    """Write the posterior; where all classes were barred, and whether logits are broken."""
    conflict = torch.empty(len(logits), dtype=torch.int8, device=logits.device)
    odd = torch.zeros(1, dtype=torch.int32, device=logits.device)
    given = (logits, weights, log_kappa, table, posterior, conflict, odd)
    _launch("_plain", logits, table, *given)
    if not odd.item():
        return conflict.view(torch.bool), False
    _launch("_careful", logits, table, *given)
    return conflict.view(torch.bool), odd.item() > 1


def _launch(kernel: str, logits: Tensor, table: Tensor, *given: Tensor | None) -> None:
    rows, experts, classes = logits.shape
    padded = _power_of_two(classes)
    step, height, warps = _tile(experts, padded)
    with torch.cuda.device(logits.device):
        _compiled(kernel)[(-(-rows // height),)](
            *given,
            rows,
            N=experts,
            C=classes,
            PRIORS=len(table) - 2,
            LEAST=torch.finfo(table.dtype).min / 2**14,
            R=height,
            N_STEP=step,
            C_PAD=padded,
            num_warps=warps,
        )


def _tile(experts: int, padded: int) -> tuple[int, int, int]:
    """How many experts at a time, how many rows, and how many warps share them.

    >>> _tile(4, 16), _tile(4, 1024), _tile(4, 16384)
    ((4, 16, 1), (4, 1, 4), (1, 1, 4))
    """
    step = min(_power_of_two(experts), max(1, TILE // padded))
    height = max(1, PER_WARP // (step * padded))
    size = step * height * padded
    # Few warps with much in flight beat many that wait for each other, as long as it fits in their registers.
    return step, height, max(min(4, size // PER_WARP), size // (4 * PER_WARP))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


@functools.cache
def _compiled(kernel: str) -> Any:
    global tl
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
    return triton.jit(globals()[kernel])


# What follows is Triton's: compiled on first use, never run by Python.


def _plain(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    posterior,
    conflict,
    odd,
    rows,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    LEAST: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
):
    nothing = float("-inf")
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.arange(0, C_PAD)
    inside = column < C
    constant = PRIORS if weights is not None else PRIORS + 1
    base = tl.load(table + constant * C + column, mask=inside, other=nothing)
    total = tl.zeros([R, C_PAD], dtype=base.dtype)
    heard = tl.zeros([R], dtype=base.dtype)
    # A silent expert is not read: zeros stand for it. Padding is −inf, so that it never is the greatest.
    silence = tl.where(inside, 0.0, nothing)[None, None, :]
    for first in range(0, N, N_STEP):
        expert = first + tl.arange(0, N_STEP)
        seat = row[:, None] * N + expert[None, :]
        real = (row < rows)[:, None] & (expert < N)[None, :]
        if weights is not None:
            w = tl.load(weights + seat, mask=real, other=0)
            real = real & (w != 0)
        there = real[:, :, None] & inside[None, None, :]
        place = seat[:, :, None] * C + column[None, None, :]
        z = tl.load(logits + place, mask=there, other=silence).to(base.dtype)
        said = z - tl.max(z, axis=2)[:, :, None]
        if weights is not None:
            if PRIORS > 1:
                known = (expert < N)[:, None] & inside[None, :]
                said -= tl.load(table + expert[:, None] * C + column[None, :], mask=known, other=0)[None, :, :]
            else:
                heard += tl.sum(w, axis=1)
            said *= w[:, :, None]
        total += tl.sum(said, axis=1)
    total += base[None, :]
    if weights is not None and PRIORS == 1:
        total -= heard[:, None] * tl.load(table + column, mask=inside, other=0)[None, :]
    cell = row[:, None] * C + column[None, :]
    written = (row < rows)[:, None] & inside[None, :]
    if log_kappa is not None:
        total += tl.load(log_kappa + cell, mask=written, other=0)
    scores = tl.where(inside[None, :], total, nothing)
    scores -= tl.max(scores, axis=1)[:, None]
    mass = tl.sum(tl.exp(scores), axis=1)
    answer = scores - tl.log(mass)[:, None]
    tl.store(posterior + cell, answer.to(posterior.dtype.element_ty), mask=written)
    strange = mass != mass
    tl.store(conflict + row, strange.to(tl.int8), mask=row < rows)
    tl.store(odd + row * 0, tl.full([R], 1, dtype=tl.int32), mask=(row < rows) & strange)


def _careful(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    posterior,
    conflict,
    odd,
    rows,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    LEAST: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
):
    nothing = float("-inf")
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    strange = tl.load(conflict + row, mask=row < rows, other=0) != 0
    if tl.sum(strange.to(tl.int32), axis=0) > 0:
        column = tl.arange(0, C_PAD)
        inside = column < C
        target = tl.load(table + PRIORS * C + column, mask=inside, other=nothing)
        total = tl.zeros([R, C_PAD], dtype=target.dtype)
        barred = tl.zeros([R, C_PAD], dtype=tl.int32)
        broken = tl.zeros([R, C_PAD], dtype=tl.int32)
        for first in range(0, N, N_STEP):
            expert = first + tl.arange(0, N_STEP)
            seat = row[:, None] * N + expert[None, :]
            there = (strange[:, None] & (expert < N)[None, :])[:, :, None] & inside[None, None, :]
            z = tl.load(logits + seat[:, :, None] * C + column[None, None, :], mask=there, other=nothing)
            z = z.to(target.dtype)
            heard = there
            if weights is not None:
                w = tl.load(weights + seat, mask=strange[:, None] & (expert < N)[None, :], other=0)
                heard = there & (w != 0)[:, :, None]
            finite = (z > nothing) & (z < float("inf"))
            broken += tl.sum((heard & (finite == 0) & ((z == nothing) == 0)).to(tl.int32), axis=1)
            top = tl.max(tl.where(finite, z, nothing), axis=2)
            which = tl.where(expert < PRIORS, expert, 0) if PRIORS > 1 else expert * 0
            prior = tl.load(table + which[:, None] * C + column[None, :], mask=inside[None, :], other=0)
            said = tl.where(finite, z, 0) - tl.where(top == nothing, 0, top)[:, :, None]
            possible = finite & (said > nothing) & (prior > nothing)[None, :, :]
            said -= tl.where(prior == nothing, 0, prior)[None, :, :]
            said = tl.where(possible, said, 0)
            if weights is not None:
                said *= w[:, :, None]
            total += tl.sum(tl.minimum(tl.maximum(said, LEAST), -LEAST), axis=1)
            barred += tl.sum((heard & (possible == 0)).to(tl.int32), axis=1)
        never = (barred > 0) | (target == nothing)[None, :]
        total += tl.where(target == nothing, 0, target)[None, :]
        cell = row[:, None] * C + column[None, :]
        written = strange[:, None] & inside[None, :]
        if log_kappa is not None:
            kappa = tl.load(log_kappa + cell, mask=written, other=0)
            never = never | (kappa == nothing)
            total += tl.where(kappa == nothing, 0, kappa)
        scores = tl.where(never, nothing, total)
        contradiction = tl.max(scores, axis=1) == nothing
        scores = tl.where(contradiction[:, None], target[None, :], scores)
        scores -= tl.max(scores, axis=1)[:, None]
        answer = scores - tl.log(tl.sum(tl.exp(scores), axis=1))[:, None]
        tl.store(posterior + cell, answer.to(posterior.dtype.element_ty), mask=written)
        tl.store(conflict + row, contradiction.to(tl.int8), mask=strange)
        refused = strange & (tl.sum(broken, axis=1) > 0)
        tl.store(odd + row * 0, tl.full([R], 2, dtype=tl.int32), mask=refused)


def _backward(  # type: ignore[no-untyped-def]
    grad,
    posterior,
    conflict,
    logits,
    weights,
    table,
    grad_logits,
    grad_weights,
    grad_kappa,
    rows,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    LEAST: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
):
    nothing = float("-inf")
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.arange(0, C_PAD)
    inside = column < C
    cell = row[:, None] * C + column[None, :]
    written = (row < rows)[:, None] & inside[None, :]
    answer = tl.load(posterior + cell, mask=written, other=nothing)
    contradiction = tl.load(conflict + row, mask=row < rows, other=1) != 0
    certain = (answer == nothing) | contradiction[:, None]
    came = tl.where(certain, 0, tl.load(grad + cell, mask=written, other=0))
    flow = tl.where(certain, 0, came - tl.exp(answer) * tl.sum(came, axis=1)[:, None])
    if grad_kappa is not None:
        tl.store(grad_kappa + cell, flow, mask=written)
    for first in range(0, N, N_STEP):
        expert = first + tl.arange(0, N_STEP)
        real = (row < rows)[:, None] & (expert < N)[None, :]
        there = real[:, :, None] & inside[None, None, :]
        seat = row[:, None] * N + expert[None, :]
        place = seat[:, :, None] * C + column[None, None, :]
        if weights is not None:
            w = tl.load(weights + seat, mask=real, other=0)
        if grad_logits is not None:
            back = tl.broadcast_to(flow[:, None, :], [R, N_STEP, C_PAD])
            if weights is not None:
                back = back * w[:, :, None]
            tl.store(grad_logits + place, back.to(grad_logits.dtype.element_ty), mask=there)
        if grad_weights is not None:
            z = tl.load(logits + place, mask=there, other=nothing).to(answer.dtype)
            finite = (z > nothing) & (z < float("inf"))
            top = tl.max(tl.where(finite, z, nothing), axis=2)
            which = tl.where(expert < PRIORS, expert, 0) if PRIORS > 1 else expert * 0
            prior = tl.load(table + which[:, None] * C + column[None, :], mask=inside[None, :], other=0)
            said = tl.where(finite, z, 0) - tl.where(top == nothing, 0, top)[:, :, None]
            possible = finite & (said > nothing) & (prior > nothing)[None, :, :]
            said = tl.where(possible, said - tl.where(prior == nothing, 0, prior)[None, :, :], 0)
            slope = tl.sum(said * flow[:, None, :], axis=2)
            # Where a silent expert rules a class out, the posterior jumps, and no slope is right.
            jumps = (w == 0) & (tl.sum((there & (possible == 0)).to(tl.int32), axis=2) > 0)
            tl.store(grad_weights + seat, tl.where(jumps, 0, slope), mask=real)
