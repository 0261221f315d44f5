"""What samples have beside their modalities: weights, indices, and the codes of groups and times."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.modalities import is_missing, to_numpy, unbox


def read_column(what: str, values: Any, n: int, flat: bool = True) -> np.ndarray:
    """Return an array with a row for each of n samples, `[n]` if flat."""
    column = to_numpy(what, values)
    if column.ndim == 0 or len(column) != n:
        raise InputError(f"{what} have {column.shape[0] if column.ndim else 'no'} rows, the samples have {n}")
    if flat and column.ndim != 1:
        raise InputError(f"{what} must have shape [n], got {list(column.shape)}")
    return column


def check_weight(weight: Any, n: int) -> np.ndarray:
    """Return sample weights `[n]` as float64; they must be finite, not negative and not all zero."""
    column = unbox(read_column("sample weights", weight, n))
    if column.dtype.kind not in "biuf":
        raise InputError(f"sample weights must be numbers, got {column.dtype}")
    column = column.astype(np.float64)
    if not np.isfinite(column).all() or (column < 0).any():
        rows = np.flatnonzero(~np.isfinite(column) | (column < 0))
        raise InputError(f"sample weights must be finite and ≥ 0 ({name_rows(rows)})")
    if n and not column.any():
        raise InputError("sample weights are all zero: nothing is left to learn from")
    return column


def read_index(index: Any, n: int) -> np.ndarray:
    """Return whole numbers `[n]` that identify the samples."""
    column = read_column("index", index, n)
    if column.dtype.kind not in "iu":
        raise InputError(f"index must hold whole numbers, got {column.dtype}")
    return column.astype(np.int64)


def read_codes(what: str, values: Any, n: int) -> np.ndarray:
    """Return the rank of each value among the different ones `[n]`, from 0; empty values raise an error.

    >>> read_codes("groups", ["b", "a", "b"], 3)
    array([1, 0, 1])
    """
    column = unbox(read_column(what, values, n))
    if column.dtype.kind in "mM":
        empty = np.isnat(column)
    else:
        empty = np.array([is_missing(value) for value in column.tolist()], dtype=bool)
    if empty.any():
        raise InputError(f"{what} are empty in {name_rows(np.flatnonzero(empty))}: every sample needs one")
    try:
        return np.unique(column, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        kinds = ", ".join(sorted({type(value).__name__ for value in column.tolist()}))
        raise InputError(f"{what} must be values of one type, got {kinds}") from None
