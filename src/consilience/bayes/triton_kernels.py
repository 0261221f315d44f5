"""The theorem as Triton kernels, compiled on first use and never run by Python.

A program takes R rows and, N_STEP experts at a time, all their classes; everything between the logits and the answer
stays in registers. `plain` sums the logits as they are, with few instructions for each, and marks the rows where that
loses digits or gives NaN: large offsets, Remark 1 of the theorem, NaN or infinite logits. `careful` answers those.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

# Triton's language, imported when a kernel is needed: the import is slow, and few machines have Triton.
tl: Any = None


@functools.cache
def compiled(kernel: str) -> Any:
    """The compiled kernel `plain`, `careful` or `backward`."""
    return _triton().jit(globals()[kernel])


@functools.cache
def _triton() -> Any:
    global tl
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
    for called in (sum_scores, fuse_marked):  # functions that kernels call must be compiled too
        globals()[called.__name__] = triton.jit(called)
    return triton


def plain(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    posterior,
    conflict,
    status,
    rows,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    LARGE: tl.constexpr,
):
    """Write plain sums; mark the rows for which they are not exact in `conflict`, and set `status` to 1 if any is."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    real = row < rows
    column = tl.arange(0, MAIN)
    scores = sum_scores(logits, weights, log_kappa, table, row, rows, column, N, C, PRIORS, R, N_STEP, MAIN, LARGE)
    most = tl.max(scores, axis=1)
    if REST > 0:
        column_2 = MAIN + tl.arange(0, REST)
        scores_2 = sum_scores(
            logits, weights, log_kappa, table, row, rows, column_2, N, C, PRIORS, R, N_STEP, REST, LARGE
        )
        most = tl.maximum(most, tl.max(scores_2, axis=1))
        scores_2 -= most[:, None]
    scores -= most[:, None]
    mass = tl.sum(tl.exp(scores), axis=1)
    if REST > 0:
        mass += tl.sum(tl.exp(scores_2), axis=1)
    log_mass = tl.log(mass)[:, None]
    tl.store(
        posterior + row[:, None] * C + column[None, :],
        (scores - log_mass).to(posterior.dtype.element_ty),
        mask=real[:, None] & (column < C)[None, :],
    )
    if REST > 0:
        tl.store(
            posterior + row[:, None] * C + column_2[None, :],
            (scores_2 - log_mass).to(posterior.dtype.element_ty),
            mask=real[:, None] & (column_2 < C)[None, :],
        )
    # No term exceeds LARGE. If their mean for the winner is not below −LARGE either, no expert has a large offset, or
    # one expert is strongly against the winner, and digits would be lost whatever offset was removed.
    marked = (mass != mass) | (most < -LARGE * N)
    tl.store(conflict + row, marked.to(tl.int8), mask=real)
    tl.store(status + row * 0, tl.full([R], 1, dtype=tl.int32), mask=real & marked)


def sum_scores(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    row,
    rows,
    column,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    LARGE: tl.constexpr,
):
    """The scores of some classes `[R, WIDTH]`: −inf beyond the last, NaN where an expert's term is large."""
    inside = column < C
    constant = PRIORS if weights is not None else PRIORS + 1
    base = tl.load(table + constant * C + column, mask=inside, other=float("-inf"))
    total = tl.zeros([R, WIDTH], dtype=base.dtype)
    weight_sum = tl.zeros([R], dtype=base.dtype)
    for first in range(0, N, N_STEP):
        expert = first + tl.arange(0, N_STEP)
        index = row[:, None] * N + expert[None, :]
        real = (row < rows)[:, None] & (expert < N)[None, :]
        if weights is not None:
            w = tl.load(weights + index, mask=real, other=0).to(base.dtype)
            w = tl.where(w < 0, float("nan"), w)  # a negative weight would turn +inf into an excluded class
            real = real & (w != 0)
        there = real[:, :, None] & inside[None, None, :]
        place = index[:, :, None] * C + column[None, None, :]
        # The logits of an inactive expert are not read; zeros take their place.
        term = tl.load(logits + place, mask=there, other=0).to(base.dtype)
        if weights is not None:
            if PRIORS > 1:
                known = (expert < N)[:, None] & inside[None, :]
                term -= tl.load(table + expert[:, None] * C + column[None, :], mask=known, other=0)[None, :, :]
            else:
                weight_sum += tl.sum(w, axis=1)
            term *= w[:, :, None]
        total += tl.sum(tl.where(term > LARGE, float("nan"), term), axis=1)
    total += base[None, :]
    if weights is not None and PRIORS == 1:
        total -= weight_sum[:, None] * tl.load(table + column, mask=inside, other=0)[None, :]
    if log_kappa is not None:
        written = (row < rows)[:, None] & inside[None, :]
        total += tl.load(log_kappa + row[:, None] * C + column[None, :], mask=written, other=0)
    return total


def careful(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    posterior,
    conflict,
    status,
    rows,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
    LEAST: tl.constexpr,
):
    """Fuse the rows marked in `conflict`, if `status` is not 0."""
    if tl.load(status) > 0:
        for block in range(tl.program_id(0), (rows + R - 1) // R, tl.num_programs(0)):
            row = tl.cast(block, tl.int64) * R + tl.arange(0, R)
            marked = tl.load(conflict + row, mask=row < rows, other=0) != 0
            if tl.sum(marked.to(tl.int32), axis=0) > 0:
                fuse_marked(
                    logits,
                    weights,
                    log_kappa,
                    table,
                    posterior,
                    conflict,
                    status,
                    row,
                    marked,
                    N,
                    C,
                    PRIORS,
                    R,
                    N_STEP,
                    C_PAD,
                    LEAST,
                )


def fuse_marked(  # type: ignore[no-untyped-def]
    logits,
    weights,
    log_kappa,
    table,
    posterior,
    conflict,
    status,
    row,
    marked,
    N: tl.constexpr,
    C: tl.constexpr,
    PRIORS: tl.constexpr,
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
    LEAST: tl.constexpr,
):
    """Fuse marked rows exactly; where an active expert holds NaN or +inf, write NaN and set `status` to 2."""
    nothing = float("-inf")
    column = tl.arange(0, C_PAD)
    inside = column < C
    target = tl.load(table + PRIORS * C + column, mask=inside, other=nothing)
    total = tl.zeros([R, C_PAD], dtype=target.dtype)
    excluded = tl.zeros([R, C_PAD], dtype=tl.int32)
    broken = tl.zeros([R, C_PAD], dtype=tl.int32)
    for first in range(0, N, N_STEP):
        expert = first + tl.arange(0, N_STEP)
        index = row[:, None] * N + expert[None, :]
        there = (marked[:, None] & (expert < N)[None, :])[:, :, None] & inside[None, None, :]
        z = tl.load(logits + index[:, :, None] * C + column[None, None, :], mask=there, other=nothing)
        z = z.to(target.dtype)
        active = there
        if weights is not None:
            w = tl.load(weights + index, mask=marked[:, None] & (expert < N)[None, :], other=0).to(target.dtype)
            active = there & (w != 0)[:, :, None]
            broken += tl.sum((active & ((w - w == 0) == 0)[:, :, None]).to(tl.int32), axis=1)
        finite = (z > nothing) & (z < float("inf"))
        broken += tl.sum((active & (finite == 0) & ((z == nothing) == 0)).to(tl.int32), axis=1)
        top = tl.max(tl.where(finite, z, nothing), axis=2)
        which = tl.where(expert < PRIORS, expert, 0) if PRIORS > 1 else expert * 0
        prior = tl.load(table + which[:, None] * C + column[None, :], mask=inside[None, :], other=0)
        ratio = tl.where(finite, z, 0) - tl.where(top == nothing, 0, top)[:, :, None]
        possible = finite & (ratio > nothing) & (prior > nothing)[None, :, :]
        ratio -= tl.where(prior == nothing, 0, prior)[None, :, :]
        ratio = tl.where(possible, ratio, 0)
        if weights is not None:
            ratio *= w[:, :, None]
        total += tl.sum(tl.minimum(tl.maximum(ratio, LEAST), -LEAST), axis=1)
        excluded += tl.sum((active & (possible == 0)).to(tl.int32), axis=1)
    never = (excluded > 0) | (target == nothing)[None, :]
    total += tl.where(target == nothing, 0, target)[None, :]
    cell = row[:, None] * C + column[None, :]
    written = marked[:, None] & inside[None, :]
    if log_kappa is not None:
        kappa = tl.load(log_kappa + cell, mask=written, other=0)
        never = never | (kappa == nothing)
        broken += (written & ((kappa < float("inf")) == 0)).to(tl.int32)
        total += tl.where(kappa == nothing, 0, kappa)
    scores = tl.where(never, nothing, total)
    conflicting = tl.max(scores, axis=1) == nothing
    scores = tl.where(conflicting[:, None], target[None, :], scores)
    scores -= tl.max(scores, axis=1)[:, None]
    answer = scores - tl.log(tl.sum(tl.exp(scores), axis=1))[:, None]
    refused = marked & (tl.sum(broken, axis=1) > 0)
    conflicting = conflicting & (refused == 0)
    answer = tl.where(refused[:, None], float("nan"), answer)
    tl.store(posterior + cell, answer.to(posterior.dtype.element_ty), mask=written)
    tl.store(conflict + row, conflicting.to(tl.int8), mask=marked)
    tl.store(status + row * 0, tl.full([R], 2, dtype=tl.int32), mask=refused)


def backward(  # type: ignore[no-untyped-def]
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
    R: tl.constexpr,
    N_STEP: tl.constexpr,
    C_PAD: tl.constexpr,
):
    """Write the gradients of logits, weights and ln κ (those that are not None) from that of the answer."""
    nothing = float("-inf")
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.arange(0, C_PAD)
    inside = column < C
    cell = row[:, None] * C + column[None, :]
    written = (row < rows)[:, None] & inside[None, :]
    answer = tl.load(posterior + cell, mask=written, other=nothing)
    conflicting = tl.load(conflict + row, mask=row < rows, other=1) != 0
    certain = (answer == nothing) | conflicting[:, None]
    came = tl.where(certain, 0, tl.load(grad + cell, mask=written, other=0))
    flow = tl.where(certain, 0, came - tl.exp(answer) * tl.sum(came, axis=1)[:, None])
    if grad_kappa is not None:
        tl.store(grad_kappa + cell, flow, mask=written)
    for first in range(0, N, N_STEP):
        expert = first + tl.arange(0, N_STEP)
        real = (row < rows)[:, None] & (expert < N)[None, :]
        there = real[:, :, None] & inside[None, None, :]
        index = row[:, None] * N + expert[None, :]
        place = index[:, :, None] * C + column[None, None, :]
        if weights is not None:
            w = tl.load(weights + index, mask=real, other=0).to(answer.dtype)
        if grad_logits is not None:
            back = tl.broadcast_to(flow[:, None, :], [R, N_STEP, C_PAD])
            if weights is not None:  # a row of NaN does not reach inactive experts
                back = tl.where((w != 0)[:, :, None], back * w[:, :, None], 0)
            tl.store(grad_logits + place, back.to(grad_logits.dtype.element_ty), mask=there)
        if grad_weights is not None:
            z = tl.load(logits + place, mask=there, other=nothing).to(answer.dtype)
            finite = (z > nothing) & (z < float("inf"))
            top = tl.max(tl.where(finite, z, nothing), axis=2)
            which = tl.where(expert < PRIORS, expert, 0) if PRIORS > 1 else expert * 0
            prior = tl.load(table + which[:, None] * C + column[None, :], mask=inside[None, :], other=0)
            ratio = tl.where(finite, z, 0) - tl.where(top == nothing, 0, top)[:, :, None]
            possible = finite & (ratio > nothing) & (prior > nothing)[None, :, :]
            ratio = tl.where(possible, ratio - tl.where(prior == nothing, 0, prior)[None, :, :], 0)
            slope = tl.sum(ratio * flow[:, None, :], axis=2)
            # Where an inactive expert excludes a class, the posterior jumps as its weight leaves 0: no gradient.
            jumps = (w == 0) & (tl.sum((there & (possible == 0)).to(tl.int32), axis=2) > 0)
            tl.store(grad_weights + index, tl.where(jumps, 0, slope), mask=real)
