"""The theorem on a GPU in one pass over the logits: when the kernels of `triton_kernels` are used, and their launch.

They compute what `posterior` computes, without reliability. Rows for which the plain kernel is not exact go through the
careful kernel, which is launched if there are any or, so as not to wait for the answer, always.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.opinion_inputs import Opinions
from consilience.bayes.triton_kernels import compiled
from consilience.core.errors import UnsupportedError

# Logits that a program holds at a time, bytes of them for a warp, and the number of classes from which a row is a
# program of its own, as measured best. More classes than the maximum do not fit in registers.
TILE, WARP_BYTES, LONG, MAX_CLASSES = 8192, 4096, 2048, 32768
# The most programs that a multiprocessor runs at a time.
PROGRAMS = 32
# Beyond this, an offset that an expert adds to every class costs digits of the differences between classes.
LARGE_OFFSET = 128.0
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def supports(opinions: Opinions) -> bool:
    """Whether the kernels can be used: CUDA tensors of an ordinary type, where Triton is installed.

    The environment variable CONSILIENCE_TRITON=0 switches them off.
    """
    return (
        opinions.device.type == "cuda"
        and opinions.dtype in TYPES
        and len(opinions) > 0
        and opinions.classes <= MAX_CLASSES
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
    check: bool = True,
) -> tuple[Tensor, Tensor, bool]:
    """Fuse rows on the GPU.

    Args:
        logits: `[row, expert, class]`.
        prior: `[expert or 1, class]`.
        target: `[class]`.
        weights: `[row, expert]`, 0 where missing, or booleans.
        log_kappa: `[row, class]`.
        out: `[row, class]`, where no gradient is needed.
        check: Whether to wait for the answer to the last question below.

    Returns:
        The log-posterior `[row, class]`; the conflicts `[row]`, where all classes are excluded; and whether an opinion
        is NaN or +inf (False without `check`).
    """
    logits = logits.contiguous()
    weights, log_kappa = (None if values is None else values.contiguous() for values in (weights, log_kappa))
    if weights is not None and weights.dtype == torch.bool:
        weights = weights.view(torch.uint8)
    table = _tabulate(prior, target, logits)
    needs_grad = any(values is not None and values.requires_grad for values in (logits, weights, log_kappa))
    if torch.is_grad_enabled() and needs_grad:
        posterior, conflict, broken = _Fuse.apply(logits, weights, log_kappa, table, check)
        posterior = posterior.to(logits.dtype)
    else:
        posterior = torch.empty_like(logits[:, 0]) if out is None else out
        conflict, broken = _forward(logits, weights, log_kappa, table, posterior, check)
    return posterior, conflict, broken


class _Table(NamedTuple):
    """A table on a device, and what it was made from."""

    prior: np.ndarray
    target: np.ndarray
    experts: int
    values: Tensor

    def matches(self, prior: np.ndarray, target: np.ndarray, logits: Tensor) -> bool:
        """Whether it is the table for these opinions."""
        return (
            self.experts == logits.shape[1]
            and self.values.dtype == _compute_dtype(logits)
            and self.values.device == logits.device
            and np.array_equal(self.prior, prior)
            and np.array_equal(self.target, target)
        )


# The latest tables: copying a new one before every call would make the GPU wait.
_latest: deque[_Table] = deque(maxlen=8)
# Tables that a CUDA graph reads at every replay, kept for the life of the process.
_recorded: dict[int, Tensor] = {}


def _tabulate(prior: np.ndarray, target: np.ndarray, logits: Tensor) -> Tensor:
    """The terms that depend on the class alone: `[1 + 2 or expert + 2, class]`.

    Each expert's ln π_j, then ln π_target, then ln π_target − Σ_j ln π_j for rows in which all experts are active.
    """
    recording = logits.is_cuda and torch.cuda.is_current_stream_capturing()
    for kept in tuple(_latest):
        if kept.matches(prior, target, logits):
            if recording:
                _recorded[id(kept.values)] = kept.values
            return kept.values
    if recording:
        raise UnsupportedError(
            "fuse: the priors are not on the device yet, and cannot be copied there while a CUDA graph is recorded: "
            "call fuse once with the same priors, experts and types before"
        )
    experts = logits.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_target, logs = np.log(target), np.log(prior)
        all_active = log_target - (logs[0] * experts if len(logs) == 1 else logs.sum(axis=0))
    all_active[~np.isfinite(all_active)] = -np.inf  # a class that some prior excludes
    with torch.inference_mode(False):  # later calls may need gradients
        table = torch.from_numpy(np.concatenate([logs, log_target[None], all_active[None]]))
        values = table.to(logits.device, _compute_dtype(logits))
    if values.is_cuda:  # other streams may be the next to read it
        torch.cuda.current_stream(values.device).synchronize()
    _latest.appendleft(_Table(prior.copy(), target.copy(), experts, values))
    return values


def _compute_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


class _Fuse(torch.autograd.Function):
    """The kernels with their gradient; the answer is in at least 32 bits, because the backward pass reads it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weights: Any, log_kappa: Any, table: Tensor, check: bool) -> Any:
        posterior = torch.empty_like(logits[:, 0], dtype=table.dtype)
        conflict, broken = _forward(logits, weights, log_kappa, table, posterior, check)
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
        with torch.cuda.device(logits.device):
            _launch("backward", logits, table, *given, *grads)
        return (*grads, None, None)


def _forward(
    logits: Tensor, weights: Tensor | None, log_kappa: Tensor | None, table: Tensor, posterior: Tensor, check: bool
) -> tuple[Tensor, bool]:
    """Write the posterior; return the conflicts and, with `check`, whether opinions hold NaN or +inf."""
    conflict = torch.empty(len(logits), dtype=torch.int8, device=logits.device)
    status = torch.zeros(1, dtype=torch.int32, device=logits.device)
    given = (logits, weights, log_kappa, table, posterior, conflict, status)
    with torch.cuda.device(logits.device):
        _launch("plain", logits, table, *given)
        inexact = check and bool(status.item())
        if inexact or not check:
            _launch("careful", logits, table, *given)
    return conflict.view(torch.bool), inexact and status.item() > 1


def _launch(kernel: str, logits: Tensor, table: Tensor, *given: Tensor | None) -> None:
    rows, experts, classes = logits.shape
    settings = _settings(kernel, experts, classes, logits.dtype, table.dtype)
    programs = -(-rows // settings["R"])
    if kernel == "careful":
        # As many as run at a time, each of which goes on to further rows: without work they end at once.
        programs = min(programs, PROGRAMS * _processors(logits.device))
    compiled(kernel)[(programs,)](*given, rows, PRIORS=table.shape[0] - 2, **settings)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _settings(kernel: str, experts: int, classes: int, dtype: torch.dtype, wide: torch.dtype) -> dict[str, Any]:
    """The constants a kernel is compiled with. dtype: of the logits, wide: of the table."""
    tile = _tile(experts, classes, dtype.itemsize, split=kernel == "plain")
    settings: dict[str, Any] = {
        "N": experts,
        "C": classes,
        "R": tile.rows,
        "N_STEP": tile.experts,
        "num_warps": tile.warps,
    }
    if kernel != "plain":
        settings["C_PAD"] = tile.main
        return settings if kernel == "backward" else settings | {"LEAST": torch.finfo(wide).min / 2**14}
    settings |= {"MAIN": tile.main, "REST": tile.rest, "LARGE": LARGE_OFFSET}
    if tile.registers and torch.version.cuda is not None:
        settings["maxnreg"] = tile.registers
    return settings


class _Tile(NamedTuple):
    """The block that a program holds at a time, in powers of two, as Triton requires.

    main, rest: widths of the one or two pieces that the classes are cut into. warps: how many share the block.
    registers: the most that a thread may use, 0 for no limit.
    """

    experts: int
    rows: int
    main: int
    rest: int
    warps: int
    registers: int


@functools.cache
def _tile(experts: int, classes: int, itemsize: int, *, split: bool) -> _Tile:
    """The tile measured best. split: whether the classes may be cut into two pieces, with less padding.

    >>> tuple(_tile(4, 10, 4, split=True)), tuple(_tile(4, 10, 4, split=False))
    ((4, 16, 8, 2, 1, 0), (4, 16, 16, 0, 1, 0))
    >>> tuple(_tile(4, 1000, 4, split=True)), tuple(_tile(4, 10_000, 4, split=True))
    ((4, 1, 1024, 0, 4, 0), (1, 1, 8192, 2048, 16, 64))
    """
    padded, main = _round_up(classes), _round_down(classes)
    rest = _round_up(classes - main) if classes > main else 0
    # Two pieces take more instructions than one: use them only if they save a quarter of the lanes.
    if not split or main + rest > 3 * padded // 4:
        main, rest = padded, 0
    width = main + rest
    if width > LONG:
        # A row fills a program. Two must fit beside each other, so that one reads while the other computes.
        return _Tile(1, 1, main, rest, min(32, _round_up(width // 640)), 64 if itemsize < 8 else 0)
    per_warp = WARP_BYTES // itemsize
    step = min(_round_up(experts), TILE // padded)
    rows = _round_down(max(1, per_warp // (step * width)))
    # Few warps with much in flight beat many that wait for each other, as long as it fits in their registers.
    size = step * rows * width
    return _Tile(step, rows, main, rest, _round_down(max(1, min(4, size // per_warp))), 0)


def _round_up(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _round_down(number: int) -> int:
    return 1 << (number.bit_length() - 1)
