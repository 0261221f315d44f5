"""The input of `fuse` and `FusionState`: opinions, priors and numbers per expert, checked and made into tensors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError, name_rows, unknown_name
from consilience.core.modalities import to_numpy

# Rounding errors of 32-bit softmaxes and of printed tables are smaller; those of unnormalised scores are larger.
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Opinions:
    """The experts' logits, rows first: `whole` `[row, expert, class]`, or `parts`, one `[row, class]` per expert.

    Attributes:
        leading: The shape `[...]` of the rows.
        names: The experts' names, None where they came as one array.
        dtype: The type of the answer.
        numpy: Whether the answer is an array.
    """

    parts: tuple[Tensor, ...]
    whole: Tensor | None
    leading: tuple[int, ...]
    names: tuple[str, ...] | None
    dtype: torch.dtype
    numpy: bool

    @property
    def experts(self) -> int:
        """The number of experts."""
        return len(self.parts) if self.whole is None else self.whole.shape[1]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return (self.parts[0] if self.whole is None else self.whole).shape[-1]

    @property
    def device(self) -> torch.device:
        """The device of the logits."""
        return (self.parts[0] if self.whole is None else self.whole).device

    @property
    def requires_grad(self) -> bool:
        """Whether the logits need a gradient."""
        return any(part.requires_grad for part in (self.parts or (self.whole,)) if part is not None)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The type of the computation: at least 32 bits."""
        return torch.promote_types(self.dtype, torch.float32)

    def __len__(self) -> int:
        return math.prod(self.leading)

    def rows(self, which: slice = slice(None)) -> Tensor:
        """The logits of some rows, `[row, expert, class]`, in their own precision."""
        if self.whole is not None:
            return self.whole if which == slice(None) else self.whole[which]
        return torch.stack([part[which].to(self.dtype) for part in self.parts], dim=1)

    def label(self, expert: int) -> str:
        """An expert's name in messages."""
        return f"expert {expert if self.names is None else repr(self.names[expert])}"

    def shaped(self, values: Tensor) -> Any:
        """Values `[row, …]` with the leading dimensions restored, as an array or a tensor."""
        values = values.reshape((*self.leading, *values.shape[1:]))
        return values.numpy() if self.numpy else values


def read_opinions(opinions: Any) -> Opinions:
    """Read a mapping name → `[..., class]`, or one array or tensor `[..., expert, class]`."""
    if not isinstance(opinions, Mapping):
        if isinstance(opinions, list | tuple) and any(np.ndim(item) >= 2 for item in opinions):
            raise InputError(
                f"opinions came as a {type(opinions).__name__} of arrays, whose first axis would be read as samples, "
                "not experts: give a mapping name → [..., class]"
            )
        whole = as_floats("opinions", opinions)
        if whole.ndim < 2 or not whole.shape[-2]:
            raise InputError(
                f"opinions must have shape [..., expert, class] with at least one expert, got {list(whole.shape)}; "
                "or give a mapping name → [..., class]"
            )
        _check_classes("opinions", whole)
        flat = whole.reshape(-1, *whole.shape[-2:])
        return Opinions((), flat, tuple(whole.shape[:-2]), None, whole.dtype, not isinstance(opinions, Tensor))
    if not opinions:
        raise InputError("opinions need at least one expert, got an empty mapping")
    tensors = [isinstance(value, Tensor) for value in opinions.values()]
    if any(tensors) and not all(tensors):
        raise InputError(
            "opinions must be all tensors or all arrays; tensors: "
            f"{[name for name, tensor in zip(opinions, tensors) if tensor]}, not: "
            f"{[name for name, tensor in zip(opinions, tensors) if not tensor]}"
        )
    _agree_on_class_names(opinions)
    names = tuple(str(name) for name in opinions)
    parts = [as_floats(f"opinions of {name!r}", value) for name, value in opinions.items()]
    for name, part in zip(names, parts):
        _check_classes(f"opinions of {name!r}", part)
        if part.shape != parts[0].shape:
            differ = "classes" if part.shape[:-1] == parts[0].shape[:-1] else "rows"
            raise InputError(
                f"experts must agree on rows and classes, [..., class]: {names[0]!r} has {list(parts[0].shape)} and "
                f"{name!r} has {list(part.shape)}: they differ in their {differ}"
            )
        if part.device != parts[0].device:
            raise InputError(f"{names[0]!r} is on {parts[0].device}, {name!r} on {part.device}: move one")
    dtype = parts[0].dtype
    for part in parts:
        dtype = torch.promote_types(dtype, part.dtype)
    flat_parts = tuple(part.reshape(-1, part.shape[-1]) for part in parts)
    return Opinions(flat_parts, None, tuple(parts[0].shape[:-1]), names, dtype, not tensors[0])


def as_floats(what: str, values: Any) -> Tensor:
    """Any array, list, table or tensor of numbers as a floating-point tensor, copied only if necessary."""
    if isinstance(values, Tensor):
        if values.is_complex() or values.is_quantized or values.layout != torch.strided or values.is_meta:
            form = "without memory" if values.is_meta else f"{values.dtype}, {values.layout}"
            raise InputError(f"{what} must be a dense tensor of real numbers, got {form}")
        return values if values.is_floating_point() else values.to(torch.get_default_dtype())
    array = to_numpy(what, values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} must be numbers, got {array.dtype} of shape {list(array.shape)}")
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        # torch warns of read-only arrays, such as those mapped from disk; nothing here writes into its input.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


def to_logits(opinions: Opinions, active: Tensor | None, *, check: bool = True) -> Opinions:
    """Probabilities → log-probabilities, NaN where negative; those of active experts `[row, expert]` are checked."""
    p = opinions.rows()
    if check:
        _check_probabilities(p, opinions, active)
    positive = p > 0
    # log(0) is −inf with an infinite gradient: take the log of 1 there and set −inf afterwards.
    logs = torch.where(positive, p, torch.ones_like(p)).log()
    # NaN where an inactive expert, or one that was not checked, has NaN or a negative number.
    others = torch.full_like(p, -math.inf).masked_fill_((p >= 0).logical_not_(), math.nan)
    return replace(opinions, parts=(), whole=torch.where(positive, logs, others))


@torch.no_grad()
def _check_probabilities(p: Tensor, opinions: Opinions, active: Tensor | None) -> None:
    tolerance = max(SUM_TOLERANCE, 4 * torch.finfo(p.dtype).eps)
    off = ((p.sum(-1, dtype=opinions.compute_dtype) - 1).abs() <= tolerance).logical_not_() | (p < 0).any(
        -1
    )  # NaN is off
    off = off if active is None else off & active
    if off.any():
        expert = int(off.any(0).nonzero()[0])
        rows = off[:, expert].nonzero().flatten().cpu().numpy()
        values = p[rows[0], expert].to(torch.float64)
        raise InputError(
            f"probabilities of {opinions.label(expert)} must be ≥ 0 and sum to one: {name_rows(rows)} "
            f"{'does' if len(rows) == 1 else 'do'} not (row {rows[0]} sums to {float(values.sum()):.6g}, its least "
            f"is {float(values.min()):.6g}). Logits need no from_probabilities"
        )


def read_per_expert(what: str, values: Any, opinions: Opinions) -> Tensor | None:
    """Read one number per row and expert as `[row, expert]`, from `[..., expert]` or a mapping name → `[...]`.

    Experts that a mapping leaves out get 1.
    """
    if values is None:
        return None
    shape = (*opinions.leading, opinions.experts)
    if isinstance(values, Mapping):
        if opinions.names is None:
            raise InputError(f"{what} is a mapping, but the opinions are one array: give {what} as [..., expert]")
        for name in values:
            if name not in opinions.names:
                raise unknown_name("expert", name, opinions.names, f"It was given in {what}")
        left_out = torch.ones((), dtype=opinions.compute_dtype, device=opinions.device)
        columns = [
            _broadcast(f"{what} of {name!r}", values.get(name, left_out), opinions.leading, "[...]", opinions)
            for name in opinions.names
        ]
        given = torch.stack(columns, dim=-1)
    else:
        given = _broadcast(what, values, shape, "[..., expert]", opinions)
    return given.reshape(len(opinions), opinions.experts)


def read_present(present: Any, opinions: Opinions, *, check: bool = True) -> Tensor | None:
    """Read which experts are present: booleans `[row, expert]`, None for all."""
    shape = (*opinions.leading, opinions.experts)
    if isinstance(present, Tensor) and present.dtype == torch.bool and present.shape == shape:
        return present.to(opinions.device).reshape(len(opinions), opinions.experts)
    given = read_per_expert("present", present, opinions)
    if given is None:
        return None
    mask = given != 0
    if check and not _are_booleans(present) and (other := mask & (given != 1)).any():
        raise InputError(f"present must be booleans, got values such as {float(given[other][0]):.6g}")
    return mask


def read_weights(
    what: str, values: Any, opinions: Opinions, present: Tensor | None, *, check: bool = True
) -> Tensor | None:
    """Read weights (any finite number) or reliability (in [0, 1]) `[row, expert]`; 0 for missing experts."""
    given = read_per_expert(what, values, opinions)
    if given is None:
        return None
    if present is not None:
        given = torch.where(present, given, torch.zeros_like(given))
    if not check:
        return given
    fine = given.isfinite() if what == "weights" else (given >= 0) & (given <= 1)
    if not fine.all():
        row, expert = (int(place) for place in fine.logical_not().nonzero()[0])
        rows = fine[:, expert].logical_not().nonzero().flatten().cpu().numpy()
        allowed = "finite numbers" if what == "weights" else "probabilities, from 0 to 1"
        raise InputError(
            f"{what} must be {allowed}: {opinions.label(expert)} has {float(given[row, expert]):.6g} "
            f"({name_rows(rows)})"
        )
    return given


def read_weights_and_reliability(
    opinions: Opinions, present: Any, weights: Any, reliability: Any, *, check: bool = True, keep_mask: bool = False
) -> tuple[Tensor | None, Tensor | None]:
    """Read weights and reliability `[row, expert]`, 0 where an expert is missing; None where all are 1.

    keep_mask: without weights, return the mask of present experts as booleans.
    """
    mask = read_present(present, opinions, check=check)
    w = read_weights("weights", weights, opinions, mask, check=check)
    if w is None and mask is not None:
        w = mask if keep_mask else mask.to(opinions.compute_dtype)
    return w, read_weights("reliability", reliability, opinions, mask)


def read_log_kappa(log_kappa: Any, opinions: Opinions, *, check: bool = True) -> Tensor | None:
    """Read ln κ as `[row, class]`; −inf excludes a class."""
    if log_kappa is None:
        return None
    shape = (*opinions.leading, opinions.classes)
    given = _broadcast("log_kappa", log_kappa, shape, "[..., class]", opinions)
    given = given.reshape(len(opinions), opinions.classes)
    if check and (broken := (given.isnan() | given.isposinf()).any(-1)).any():
        raise InputError(f"log_kappa holds NaN or +inf ({name_rows(broken.nonzero().flatten().cpu().numpy())})")
    return given


def read_prior(prior: Any, experts: int, classes: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Read each expert's prior as `[expert, class]` in float64; `[1, class]` where they share one.

    >>> read_prior([0.25, 0.75], experts=3, classes=2)
    array([[0.25, 0.75]])
    >>> read_prior(None, experts=3, classes=2)
    array([[0.5, 0.5]])
    """
    if prior is None:
        return np.full((1, classes), 1 / classes)
    if isinstance(prior, Mapping):
        if names is None:
            raise InputError("prior is a mapping, but the opinions are one array: give prior as [expert, class]")
        for name in prior:
            if name not in names:
                raise unknown_name("expert", name, names, "It was given in prior")
        if left := [name for name in names if name not in prior]:
            raise InputError(f"prior must name every expert, but lacks {left}")
        return np.stack([read_distribution(f"prior of {name!r}", prior[name], classes) for name in names])
    given = as_floats("prior", prior)
    if given.ndim != 2:
        return read_distribution("prior", given, classes)[None]
    if len(given) not in (1, experts):
        raise InputError(
            f"prior must have shape [class] = [{classes}] or [expert, class] = [{experts}, {classes}], got "
            f"{list(given.shape)}"
        )
    return np.stack([read_distribution(f"prior of expert {number}", row, classes) for number, row in enumerate(given)])


def read_distribution(what: str, values: Any, classes: int) -> np.ndarray:
    """Read probabilities `[class]` in float64, normalised to a sum of one.

    >>> read_distribution("prior", [0.5, 0.6], 2)
    Traceback (most recent call last):
        ...
    consilience.core.errors.InputError: prior must sum to one, it sums to 1.1: [0.5, 0.6]
    """
    given = as_floats(what, values).detach().to("cpu", torch.float64).numpy()
    if given.shape != (classes,):
        raise InputError(f"{what} must be one probability for each of {classes} classes, got shape {list(given.shape)}")
    if (given >= 0).all() and abs((total := given.sum()) - 1) <= SUM_TOLERANCE:  # False for NaN and infinity
        return given / total
    shown = np.array2string(given, precision=6, separator=", ", threshold=8)
    if not np.isfinite(given).all() or (given < 0).any():
        raise InputError(f"{what} must be finite and ≥ 0: {shown}")
    raise InputError(f"{what} must sum to one, it sums to {given.sum():.6g}: {shown}")


def log_of(probabilities: np.ndarray, opinions: Opinions) -> Tensor:
    """ln of probabilities, −inf where they are 0, in the opinions' computing type and on their device."""
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(probabilities)).to(opinions.device, opinions.compute_dtype)


def _are_booleans(present: Any) -> bool:
    """Whether the types are boolean; looking at the values would wait for a GPU."""
    values = present.values() if isinstance(present, Mapping) else [present]
    return all(
        isinstance(item, bool) or getattr(item, "dtype", None) in (np.dtype(bool), torch.bool) for item in values
    )


def _broadcast(what: str, values: Any, shape: tuple[int, ...], form: str, opinions: Opinions) -> Tensor:
    given = as_floats(what, values).to(opinions.device, opinions.compute_dtype)
    try:
        return given.broadcast_to(shape)
    except RuntimeError:
        raise InputError(f"{what} must have shape {form} = {list(shape)}, got {list(given.shape)}") from None


def _check_classes(what: str, values: Tensor) -> None:
    if not values.ndim or values.shape[-1] < 2:
        raise InputError(
            f"{what} must have at least two classes in the last dimension, got shape {list(values.shape)}; a single "
            "logit z of a binary expert is the pair (0, z)"
        )


def _agree_on_class_names(opinions: Mapping[Any, Any]) -> None:
    """Check that tables, whose columns name the classes, have the same ones in the same order."""
    named = {name: list(value.columns) for name, value in opinions.items() if hasattr(value, "columns")}
    for name, classes in named.items():
        first, known = next(iter(named.items()))
        if classes != known:
            raise InputError(
                f"experts must name the same classes in the same order: {first!r} has {known}, {name!r} has {classes}"
            )


def finite_logits(logits: np.ndarray) -> np.ndarray:
    """Logits with −inf replaced by the smallest probability in float64."""
    return np.maximum(logits, logits.max(axis=2, keepdims=True) - 745.0)
