"""What samples have beside their modalities: weights, indices, and the codes of groups and times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.modalities import is_missing, to_numpy, unbox
from consilience.core.targets import check_no_trailing_nulls


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
    given = read_column(what, values, n)
    column = unbox(given)
    if column.dtype.kind in "mM":
        empty = np.isnat(column)
    else:
        empty = np.array([is_missing(value) for value in column.tolist()], dtype=bool)
    if empty.any():
        raise InputError(f"{what} are empty in {name_rows(np.flatnonzero(empty))}: every sample needs one")
    cells = values if isinstance(values, list | tuple) else given.tolist() if given.dtype.kind == "O" else ()
    check_no_trailing_nulls(what, cells)
    if column.dtype.kind == "f" and any(isinstance(cell, int) and abs(cell) > 2**53 for cell in cells):
        raise InputError(f"{what} hold whole numbers that 64-bit floats may merge: give numbers of 64 bits, or strings")
    try:
        if column.dtype.kind == "c":  # numpy has an order of them, which nobody means
            raise TypeError
        return np.unique(column, return_inverse=True)[1].astype(np.int64)
    except TypeError:
        kinds = ", ".join(sorted({type(value).__name__ for value in column.tolist()}))
        raise InputError(f"{what} must be values of one type that have an order, got {kinds}") from None


def read_times(values: Any, n: int) -> np.ndarray:
    """Return the rank of each time `[n]`, from 0; strings are read as ISO 8601.

    >>> read_times(["2024-05-31T23:30-02:00", "2024-06-01T00:00Z"], 2)
    array([1, 0])
    """
    column = read_column("times", values, n)
    cells = column.tolist()
    if not all(isinstance(cell, str) for cell in cells):
        return read_codes("times", values, n)
    moments = np.empty(n, dtype=object)
    for row, cell in enumerate(cells):
        try:
            moments[row] = datetime.fromisoformat(cell.strip())
        except ValueError:
            raise InputError(
                f"times: {cell!r} ({name_rows([row])}) is no time such as 2024-05-31 or 2024-05-31T14:05:00; the order "
                "of other strings need not be that of the times"
            ) from None
    if len({moment.tzinfo is None for moment in moments}) > 1:
        raise InputError("times: some have a zone and others have none, so that they have no order")
    return read_codes("times", moments, n)
