"""The columns of a table that say how it is split: groups, times, and columns that look like groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import ConsilienceError, InputError, name_rows
from consilience.core.sample_columns import read_codes
from consilience.core.targets import check_no_trailing_nulls
from consilience.data.dataset import DataSet
from consilience.data.files.calendar_features import times_in_order
from consilience.data.files.column_reading import is_string
from consilience.data.files.file_options import FileOptions
from consilience.data.files.table_reading import read_table
from consilience.data.group_hints import FEWEST, GroupHint, find_hint, is_identifier
from consilience.data.split_rules import SplitRule

if TYPE_CHECKING:
    import polars

# Numbers with a fraction, as a CSV has them, and how many cells are looked at for one.
_MEASUREMENT, _LOOKED_AT = r"^[-+]?\d*\.\d*[1-9]\d*(e[-+]?\d+)?$", 20


def read_rule(columns: Mapping[str, Any], options: FileOptions) -> SplitRule | None:
    """How a table or arrays are split, or None for a random split of rows.

    Args:
        columns: Name → the column of groups or times: a polars column, or an array `[n]`.
        options: Those of `load_data`.
    """
    import polars as pl

    if options.group is not None and options.time is not None:
        raise InputError(
            f"group={options.group!r} and time={options.time!r}: a split is by whole groups or by time. Leave one out"
        )
    name = options.group or options.time
    if name is None:
        return None if options.folds is None else SplitRule(folds=options.folds)
    what = f"{'group' if options.group else 'time'} column {name!r}"
    column = columns[name]
    if isinstance(column, np.ndarray) and options.time is not None and column.dtype.kind in "UT" and column.ndim == 1:
        column = pl.Series(name, column.tolist())
    values = column if isinstance(column, np.ndarray) else _values(what, column, options.group is not None)
    if values.ndim != 1:
        raise InputError(f"{what} must have shape [n], got {list(values.shape)}")
    codes = read_codes(what, values, len(values))
    if options.group is None:
        return SplitRule(time=codes, folds=options.folds, column=name)
    return SplitRule(group=codes, folds=options.folds, column=name, labels=np.unique(values).tolist())


def _values(what: str, column: polars.Series, labels: bool) -> np.ndarray:
    """The values of a column `[n]`: labels as strings, times as numbers; an empty cell is an error."""
    import polars as pl

    if column.dtype.is_float():
        column = column.fill_nan(None)
    empty = column.is_null()
    if is_string(column.dtype):
        empty = empty | (column.cast(pl.String) == "")
    if empty.any():
        rows = empty.arg_true().to_numpy()
        raise InputError(f"{what} is empty in {name_rows(rows)}: complete it, or drop these rows")
    if labels:
        if column.dtype.is_float():
            column = column.set(column == 0, 0.0)  # −0 is the group 0
        cells = column.cast(pl.String).to_list()
        check_no_trailing_nulls(what, cells)
        return np.array(cells)
    if column.dtype.is_temporal():
        return column.to_physical().to_numpy()
    if not is_string(column.dtype):
        return column.to_numpy()
    return _parsed(what, column.cast(pl.String))


def _parsed(what: str, cells: polars.Series) -> np.ndarray:
    """Times that are written as strings, as numbers."""
    import polars as pl

    # polars reads zones, but other dates than those with the year first by guess, as day first.
    year_first = cells.str.contains(r"^\s*\d{4}").all()
    for read in (
        lambda: cells.cast(pl.Float64, strict=False),
        lambda: cells.str.to_datetime(strict=False, time_unit="us").to_physical() if year_first else None,
        lambda: None if (times := times_in_order(cells, what)) is None else times.to_physical(),
        lambda: cells.str.to_time(strict=False).to_physical(),
    ):
        try:
            found = read()
        except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError):
            continue
        if found is not None and not found.null_count():
            return found.to_numpy()
    raise InputError(
        f"{what} holds {cells[0]!r}, which is no number and no date such as 2024-05-31 or 2024-05-31 14:05:00: "
        "write times in one of these forms"
    )


def read_with_candidates(
    table: Path | Any, wanted: Sequence[str], strings: Sequence[str], candidates: Sequence[str]
) -> polars.DataFrame:
    """The wanted columns of a table, and columns that may be groups, unless these cannot be read."""
    if candidates:
        try:
            return read_table(table, [*wanted, *candidates], strings=[*strings, *candidates])
        except ConsilienceError:  # a column that nobody asked for may hold anything
            pass
    return read_table(table, wanted, strings=strings)


def find_group_column(
    frame: polars.DataFrame, chosen: Mapping[str, Sequence[str]], data: DataSet, *, beside: Sequence[str]
) -> GroupHint | None:
    """A column that looks like groups: one that nothing reads, or an identifier among those of a modality.

    Args:
        frame: The columns that were read.
        chosen: Modality → its columns.
        data: What was read.
        beside: The columns that were asked for; the others are those that nothing reads.
    """
    named = [column for columns in chosen.values() for column in columns if is_identifier(column)]
    unread = [column for column in frame.columns if column not in set(beside)]
    codes = {name: found for name in [*unread, *named] if (found := _codes(frame[name])) is not None}
    numbers = [np.asarray(data.samples[name]) for name, known in data.modalities.items() if known.kind == "vector"]
    return find_hint(codes, numbers, 0 if data.classes is None else len(data.classes))


def _codes(column: polars.Series) -> np.ndarray | None:
    """The number of each row's value `[n]`; None where it cannot be a group: empty cells, measurements, no repeats."""
    import polars as pl

    kind = column.dtype
    if kind.is_nested() or kind.is_float() or kind in (pl.Object, pl.Binary) or column.null_count():
        return None
    if not FEWEST <= column.n_unique() <= len(column) / 2:
        return None
    if is_string(kind):
        column = column.cast(pl.String)
        if (column == "").any() or column.head(_LOOKED_AT).str.contains(_MEASUREMENT).any():
            return None
    return (column.rank("dense") - 1).to_numpy().astype(np.int64)
