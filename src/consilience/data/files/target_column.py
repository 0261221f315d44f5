"""The target column of a table: numbers, labels or booleans, of the type that the column has."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError, TableWarning, name_rows
from consilience.core.targets import check_no_trailing_nulls
from consilience.data.files.calendar_features import find_layout, is_time
from consilience.data.files.column_reading import is_128_bits, is_string, read_known_numbers, read_known_strings

if TYPE_CHECKING:
    import polars


def read_target(column: polars.Series, advice: str = "drop these rows", words: bool = False) -> np.ndarray:
    """Targets `[n]` of the type the column has: numbers, booleans or strings. An empty cell is an error.

    Times are refused, as strings too unless `words` says that they are names of classes.
    """
    import polars as pl

    empty = _is_empty(column)
    if empty.any():
        rows = empty.arg_true().to_list()
        raise InputError(f"target column {column.name!r} is empty in {name_rows(rows)}: {advice}")
    if column.dtype.is_decimal():
        return column.cast(pl.Float64).to_numpy()
    if is_128_bits(column.dtype):
        return _narrowed(column)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.to_numpy()
    if is_string(column.dtype) and (words or find_layout(column) is None):
        cells = column.cast(pl.String)
        check_no_trailing_nulls(f"target column {column.name!r}", cells.to_list())
        return np.array(cells.to_list())
    if is_string(column.dtype) or is_time(column.dtype):
        names = "; task='classification' (--task classification) takes the strings as names of classes"
        raise InputError(
            f"target column {column.name!r} holds times such as '{column[0]}', which are neither classes nor numbers. "
            "Add a column of what is to be predicted, such as days since a fixed date, or the weekday, and name that "
            f"as the target{names if is_string(column.dtype) else ''}"
        )
    raise InputError(
        f"target column {column.name!r} holds {column.dtype.base_type()}: use numbers, strings or booleans"
    )


def _narrowed(column: polars.Series) -> np.ndarray:
    """Whole numbers of 128 bits, as polars reads those beyond 2**63, in 64 bits; numpy would round them."""
    import polars as pl

    for kind in (pl.Int64, pl.UInt64):
        narrow = column.cast(kind, strict=False)
        if not narrow.null_count():
            return narrow.to_numpy()
    raise InputError(
        f"target column {column.name!r} holds whole numbers from {column.min()!r} to {column.max()!r}, too large for "
        "64 bits: write a letter before them if they are names of classes, or use other units"
    )


def read_known_target(column: polars.Series, strings: bool) -> np.ndarray | None:
    """Targets of the type they had in training, or None if they are not known yet, that is if a cell is empty."""
    import polars as pl

    if not strings and is_string(column.dtype):
        column = read_known_numbers(column, "target column")
    empty = int(_is_empty(column).sum())
    if empty:
        if empty < len(column):
            warnings.warn(
                f"target column {column.name!r} is empty in {empty} of {len(column)} rows: the targets of all rows are "
                "ignored",
                TableWarning,
                stacklevel=2,
            )
        return None
    if strings:
        column = pl.Series(column.name, read_known_strings(column, "target column").tolist(), dtype=pl.String)
    return read_target(column, words=True)


def _is_empty(column: polars.Series) -> polars.Series:
    import polars as pl

    if column.dtype == pl.String:
        return column.is_null() | (column == "").fill_null(True)
    return column.is_null() | column.is_nan().fill_null(True) if column.dtype.is_float() else column.is_null()
