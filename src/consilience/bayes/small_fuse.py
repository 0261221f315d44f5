"""The theorem for a few rows on the CPU in plain NumPy, where calls of torch would take longer than the computation.

Only the usual case is here, in 64 bits: finite logits of ordinary size, one prior without zeros, booleans for what is
present. Whatever is different, wrong input among it, is left to the general way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.opinion_inputs import SUM_TOLERANCE

# Logits of more rows go faster through `cpu_fuse`.
MOST_LOGITS = 2**16
# The sum of the squares of all logits: with each of them below 1e5, sums in 64 bits have digits to spare.
_LARGEST_SQUARES = 1e10
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def fuse_small(opinions: Any, prior: Any, target_prior: Any, present: Any, out: Any = None) -> tuple[Any, Any] | None:
    """Return the log-posterior `[..., class]` and the conflicts `[...]`, or None if this is not the usual case.

    Args:
        opinions: Logits, `[..., expert, class]` or a mapping expert → `[..., class]`.
        prior: `[class]` or None, for uniform.
        target_prior: `[class]` or None.
        present: Booleans `[..., expert]`, a mapping expert → `[...]`, or None.
        out: An array `[..., class]` for the log-posterior, or None.

    Example:
        >>> logits = np.log([[0.7, 0.2, 0.1], [0.5, 0.1, 0.4]])
        >>> posterior, conflict = fuse_small(logits, np.array([0.5, 0.25, 0.25]), None, None)
        >>> np.exp(posterior).round(3)
        array([0.745, 0.085, 0.17 ])
    """
    tensors = _holds_tensors(opinions)
    if tensors:
        opinions, prior, target_prior, present, out = map(_as_array, (opinions, prior, target_prior, present, out))
    read = _read_mapping(opinions, present) if isinstance(opinions, Mapping) else _read_array(opinions, present)
    if read is None:
        return None
    logits, mask, axis = read
    classes = logits.shape[-1]
    dtype = logits.dtype
    log_prior = None if prior is None else _log(prior, classes)
    log_target = log_prior if target_prior is None else _log(target_prior, classes)
    if (prior is not None and log_prior is None) or (target_prior is not None and log_target is None):
        return None
    if mask is not None:
        logits = np.where(mask[..., None], logits, dtype.type(0))
    if not np.vdot(logits, logits) < _LARGEST_SQUARES:  # also for NaN and infinity
        return None
    scores = np.add.reduce(logits, axis=axis, dtype=np.float64)
    if log_prior is not None:
        if mask is None:
            scores -= logits.shape[axis] * log_prior
        else:
            scores -= np.add.reduce(mask, axis=0 if axis == 0 else -1, dtype=np.float64)[..., None] * log_prior
    if log_target is not None:
        scores += log_target
    if out is not None and not (_is_usual(out) and out.dtype == dtype and out.shape == scores.shape and _is_plain(out)):
        return None
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    scores -= np.log(np.add.reduce(np.exp(scores), axis=-1, keepdims=True))
    if out is None:
        out = scores.astype(dtype, copy=False)
    else:
        out[...] = scores
    conflict = np.zeros(scores.shape[:-1], dtype=bool)
    return (torch.from_numpy(out), torch.from_numpy(conflict)) if tensors else (out, conflict)


def _holds_tensors(opinions: Any) -> bool:
    if isinstance(opinions, Mapping):
        return any(type(value) is Tensor for value in opinions.values())
    return type(opinions) is Tensor


def _as_array(value: Any) -> Any:
    """A tensor as an array that shares its memory; what has no plain memory, or needs a gradient, as it is."""
    if isinstance(value, Mapping):
        return {name: _as_array(item) for name, item in value.items()}
    if type(value) is not Tensor or value.requires_grad or value.device.type != "cpu" or torch.compiler.is_compiling():
        return value
    try:
        return value.numpy()
    except (RuntimeError, TypeError):  # within torch.func.vmap, sparse, or of a type that NumPy does not have
        return value


def _read_array(opinions: Any, present: Any) -> tuple[np.ndarray, np.ndarray | None, int] | None:
    """Logits `[..., expert, class]`, the mask `[..., expert]`, and the axis of the experts."""
    if not _is_usual(opinions) or opinions.ndim < 2 or opinions.shape[-1] < 2:
        return None
    if not 0 < opinions.size <= MOST_LOGITS:
        return None
    if present is not None and not _is_mask(present, opinions.shape[:-1]):
        return None
    return opinions, present, -2


def _read_mapping(opinions: Mapping[Any, Any], present: Any) -> tuple[np.ndarray, np.ndarray | None, int] | None:
    """Logits `[expert, ..., class]`, the mask `[expert, ...]`, and the axis of the experts."""
    parts = list(opinions.values())
    first: Any = parts[0] if parts else None
    if not _is_usual(first) or first.ndim < 1 or first.shape[-1] < 2 or not 0 < first.size * len(parts) <= MOST_LOGITS:
        return None
    for part in parts:
        if type(part) is not np.ndarray or part.dtype != first.dtype or part.shape != first.shape:
            return None
    mask = None
    if present is not None:
        if not isinstance(present, Mapping) or not opinions.keys() >= present.keys():
            return None
        mask = np.ones((len(parts), *first.shape[:-1]), dtype=bool)
        for place, name in enumerate(opinions):
            if name in present:
                if not _is_mask(present[name], first.shape[:-1]):
                    return None
                mask[place] = present[name]
    return np.array(parts), mask, 0


def _is_usual(values: Any) -> bool:
    return type(values) is np.ndarray and values.dtype in _FLOATS and values.dtype.isnative


def _is_plain(out: np.ndarray) -> bool:
    return out.flags.c_contiguous and out.flags.writeable


def _is_mask(values: Any, shape: tuple[int, ...]) -> bool:
    return type(values) is np.ndarray and values.dtype == bool and values.shape == shape


def _log(prior: Any, classes: int) -> np.ndarray | None:
    """ln of probabilities `[class]`; a constant in it changes nothing, so that they need not be normalised."""
    if isinstance(prior, list | tuple) and all(type(share) is float for share in prior):
        prior = np.array(prior)
    if not _is_usual(prior) or prior.shape != (classes,):
        return None
    if not np.minimum.reduce(prior) > 0 or not abs(np.add.reduce(prior, dtype=np.float64) - 1) <= SUM_TOLERANCE:
        return None
    return np.log(prior, dtype=np.float64)
