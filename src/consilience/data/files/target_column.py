"""The target column of a table: numbers, booleans or strings, none of them empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.data.files.table_columns import read_known_numbers, read_known_strings

if TYPE_CHECKING:
    import polars


def read_target(column: polars.Series, advice: str = "drop these rows") -> np.ndarray:
    """Targets `[n]` of the type the column has; advice: what to do about empty cells."""
    import polars as pl

    empty = _is_empty(column)
    if empty.any():
        rows = empty.arg_true().to_list()
        raise InputError(f"target column {column.name!r} is empty in {name_rows(rows)}: {advice}")
    if column.dtype.is_decimal():
        return column.cast(pl.Float64).to_numpy()
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.to_numpy()
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return np.array(column.cast(pl.String).to_list())
    raise InputError(f"target column {column.name!r} holds {column.dtype}: use numbers, strings or booleans")


def read_known_target(column: polars.Series, strings: bool) -> np.ndarray | None:
    """Targets of the type they had in training, or None where every cell is empty: they are not known yet."""
    import polars as pl

    if not strings and column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = read_known_numbers(column, "target column")
    if _is_empty(column).all():
        return None
    if strings:
        column = pl.Series(column.name, read_known_strings(column, "target column").tolist(), dtype=pl.String)
    return read_target(column, advice="complete the column, or leave it out")


def _is_empty(column: polars.Series) -> polars.Series:
    return column.is_null() | column.is_nan().fill_null(True) if column.dtype.is_float() else column.is_null()
