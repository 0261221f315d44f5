"""Samples back as the mapping they came from: arrays as arrays, tensors as tensors, lists of unequal length as such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.core.samples import Samples


def like_given(given: Mapping[str, Any], before: Samples, after: Samples) -> dict[str, Any]:
    """The modalities of `after` in the form of `given`, from which `before` was made.

    A modality that went missing is a row of NaN, or None in text and in lists of unequal length.
    """
    return {name: _one(given[name], name, before, after) for name in given}


def _one(given: Any, name: str, before: Samples, after: Samples) -> Any:
    values, kind = after.values[name], after.modalities[name].kind
    lost = before.present_in(name) & ~after.present_in(name)
    tensor = hasattr(given, "detach")  # recognised without importing torch
    lengths = after.lengths.get(name)
    if lengths is not None and (kind == "tokens" or (lengths < values.shape[1]).any()):
        return _ragged(np.asarray(values), lengths, after.present_in(name))
    if values is before.values[name] and not lost.any():
        return given if tensor or isinstance(given, np.ndarray) else values
    array = np.asarray(values)
    if lost.any():
        array = np.array(array, dtype=object if kind == "text" else np.result_type(array.dtype, np.float32))
        array[lost] = None if kind == "text" else np.nan
    if array.shape[1:] == (1,) and getattr(given, "ndim", 2) == 1:
        array = array[:, 0]  # a single column had become a vector of one feature
    if not tensor:
        return array
    import torch

    return torch.from_numpy(array).to(given.device)


def _ragged(array: np.ndarray, lengths: np.ndarray, present: np.ndarray) -> np.ndarray:
    rows = np.empty(len(array), dtype=object)
    for row in np.flatnonzero(present):
        rows[row] = array[row, : lengths[row]]
    return rows
