"""The columns of one modality as they stand in a table: which hold numbers and which strings, in these or in new rows.

`read_columns` sorts the columns of a new data set; `read_known_columns` reads those of new rows as what they were in
training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.modalities import check_whole_numbers
from consilience.core.samples import Kind
from consilience.data.files.calendar_features import Calendar, check_day_and_month, find_calendar
from consilience.data.files.table_reading import EMPTY_WORDS

if TYPE_CHECKING:
    import polars

    from consilience.data.files.column_encoding import Encoding

# What a column becomes where that is asked for: calendar features of its times, a feature for each of its strings, or
# its numbers, even if they look like identifiers.
ColumnKind = Literal["calendar", "category", "number"]
# A column of strings with more different values than this, in over half of its rows, holds no categories.
_MANY_VALUES = 20
# Names of columns whose whole numbers are identifiers if every row has its own.
_IDENTIFIER = re.compile(r"(?i:index|(?:.*[\W_])?id)|.*[a-z0-9]I[dD]")


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of one modality as they were read.

    Attributes:
        name: Of the modality.
        kind: "text", or "vector" for everything else.
        number_names: The columns of numbers and booleans.
        numbers: Their cells `[n, column]`, NaN where a cell is empty.
        strings: Column → its cells `[n]`, None where a cell is empty.
        calendars: Column of times → the calendar features that it becomes.
        times: Column of times → these features `[n, feature]`, NaN where a cell is empty.
        left_out: Column that is not read → why.
    """

    name: str
    kind: Kind
    number_names: list[str]
    numbers: np.ndarray
    strings: Mapping[str, np.ndarray]
    calendars: Mapping[str, Calendar] = field(default_factory=dict)
    times: Mapping[str, np.ndarray] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def read_columns(
    name: str,
    frame: polars.DataFrame,
    text: bool,
    as_stored: bool = False,
    kinds: Mapping[str, ColumnKind] | None = None,
) -> Columns:
    """Sort the columns of a modality into numbers and strings; `text` is whether its only column holds sentences.

    Times and identifiers are left out, unless `kinds` says what becomes of the column or whole numbers that look like
    identifiers are all that the modality has. With `as_stored` numbers keep the precision that they have in the frame;
    otherwise they become 32-bit floats, or 64-bit ones where 32 bits are too few.
    """
    import polars as pl

    if text:
        return _as_columns(name, "text", frame, [], {frame.columns[0]: _read_strings(frame.to_series())})
    numbers: list[str] = []
    strings: dict[str, np.ndarray] = {}
    calendars: dict[str, Calendar] = {}
    left_out: dict[str, str] = {}
    kinds = kinds or {}
    for column, kind in frame.schema.items():
        wanted = kinds.get(column)
        if _is_number(kind) and wanted in (None, "number"):
            numbers.append(column)
        elif wanted == "number":
            raise InputError(
                f"modality {name!r}: column {column!r} holds {_example(frame[column])}, which is no number"
            )
        elif wanted != "category" and (calendar := find_calendar(frame[column])) is not None:
            if wanted == "calendar":
                check_day_and_month(frame[column], f"modality {name!r}: column")
            calendars[column] = calendar
        elif wanted == "calendar":
            raise InputError(f"modality {name!r}: column {column!r} holds {_example(frame[column])}, which is no time")
        elif _is_number(kind):
            if not kind.is_integer():
                raise InputError(
                    f"modality {name!r}: column {column!r} holds {kind.base_type()}; strings and whole numbers may be "
                    "categories"
                )
            strings[column] = _read_strings(frame[column])
        elif is_string(kind):
            if wanted is None and (many := _too_many_values(frame[column])):
                left_out[column] = many
            else:
                strings[column] = _read_strings(frame[column])
        else:
            raise InputError(
                f"modality {name!r}: column {column!r} holds {kind.base_type()}; numbers, booleans, strings and dates "
                "are allowed"
            )
    for column in [column for column in calendars if kinds.get(column) != "calendar"]:
        del calendars[column]
        left_out[column] = f"times such as {_example(frame[column])}"
    identifiers = [column for column in numbers if column not in kinds and _is_row_number(frame[column])]
    if len(identifiers) + len(left_out) < frame.width:  # a modality of nothing else is meant to be read
        numbers = [column for column in numbers if column not in identifiers]
        left_out |= dict.fromkeys(identifiers, f"a whole number of its own in each of {len(frame)} rows")
    if left_out and len(left_out) == frame.width:
        listing = "; ".join(f"column {column!r} holds {what}" for column, what in left_out.items())
        raise InputError(f"modality {name!r}: {listing}. {advise_left_out(left_out)}. Or leave the modality out")
    for column in numbers:
        _check_exact(f"modality {name!r}: column {column!r}", frame[column].drop_nulls())
    wide = any(needs_64_bits(frame[column].cast(pl.Float64).to_numpy()) for column in numbers)
    what = f"modality {name!r}: column"
    times = {column: calendar.encode(frame[column], what) for column, calendar in calendars.items()}
    read = _as_columns(name, "vector", frame, numbers, strings, as_stored, wide)
    return replace(read, calendars=calendars, times=times, left_out=left_out)


def advise_left_out(left_out: Mapping[str, str]) -> str:
    """What to do about columns that are left out, column → why: one or two sentences."""
    times = [column for column, what in left_out.items() if what.startswith("times")]
    numbers = [column for column, what in left_out.items() if what.startswith("a whole number")]
    others = [column for column in left_out if column not in times and column not in numbers]
    advice = []
    if times:
        name = times[0]
        advice.append(f"For calendar features of times give kinds={{{name!r}: 'calendar'}} (--kind {name}=calendar)")
    if numbers:
        name = numbers[0]
        advice.append(f"For numbers that are no identifiers give kinds={{{name!r}: 'number'}} (--kind {name}=number)")
    if others:
        name = others[0]
        advice.append(
            f"Make sentences a modality of their own with kinds={{{name!r}: 'text'}} (--kind {name}=text), and "
            f"categories of strings with {name}=category"
        )
    return ". ".join(advice)


def _too_many_values(column: polars.Series) -> str:
    """What a column of strings holds, if nearly every row has a value of its own; "" if it holds categories."""
    import polars as pl

    cells = column.cast(pl.String)
    known = cells.filter(cells != "")
    different = known.n_unique()
    if different <= max(_MANY_VALUES, len(known) // 2):
        return ""
    return f"{different} different strings in {len(known)} rows, too many for categories"


def _is_row_number(column: polars.Series) -> bool:
    """Whether a column counts the rows, or has the name of an identifier and a whole number of its own in each row."""
    if not column.dtype.is_integer() or column.null_count() or len(column) <= _MANY_VALUES:
        return False
    first, last = column[0], column[-1]
    step = 1 if last > first else -1
    if abs(last - first) == len(column) - 1 and column.to_list() == list(range(first, last + step, step)):
        return True
    return _IDENTIFIER.fullmatch(column.name) is not None and column.n_unique() == len(column)


def _example(column: polars.Series) -> str:
    known = column.drop_nulls()
    return "no value" if not len(known) else f"'{known[0]}'"


def read_known_columns(name: str, frame: polars.DataFrame, encoding: Encoding, as_stored: bool = False) -> Columns:
    """Read columns as what they were in training, whatever type the few rows of a new table suggest."""
    what = f"modality {name!r}: column"
    strings = {column: read_known_strings(frame[column], what) for column in encoding.string_columns}
    types = frame.schema
    parsed = [read_known_numbers(frame[column], what) for column in encoding.numbers if not types[column].is_numeric()]
    frame = frame.with_columns(parsed)
    times = {column: calendar.encode(frame[column], what) for column, calendar in encoding.calendars.items()}
    read = _as_columns(name, encoding.kind, frame, encoding.numbers, strings, as_stored, encoding.wide)
    return replace(read, calendars=encoding.calendars, times=times)


def read_known_numbers(column: polars.Series, what: str) -> polars.Series:
    """A column that held numbers or booleans in training, as numbers; any other cell is an error."""
    import polars as pl

    if _is_number(column.dtype):
        return column.cast(pl.Float64)
    if not is_string(column.dtype):
        raise InputError(f"{what} {column.name!r} holds {column.dtype.base_type()}, in training it held numbers")
    words = column.cast(pl.String)
    words = words.set((words.is_in(EMPTY_WORDS) | (words.str.strip_chars() == "")).fill_null(False), None)
    lower = words.str.to_lowercase()
    truth = (lower == "true").cast(pl.Float64).set((~lower.is_in(["true", "false"])).fill_null(False), None)
    numbers = words.cast(pl.Float64, strict=False).zip_with(truth.is_null(), truth)
    wrong = (numbers.is_null() & words.is_not_null()).arg_true().to_list()
    if wrong:
        raise InputError(
            f"{what} {column.name!r} holds {words[wrong[0]]!r} ({name_rows(wrong)}), in training it held numbers"
        )
    return numbers


def _read_strings(column: polars.Series) -> np.ndarray:
    """The cells of a column as strings `[n]`, None where a cell is empty or holds a string of no characters."""
    import polars as pl

    cells = column.cast(pl.String)
    return np.array(cells.set(cells == "", None).to_list(), dtype=object)


def is_string(kind: Any) -> bool:
    """Whether a type of polars holds strings."""
    import polars as pl

    return kind in (pl.String, pl.Categorical, pl.Enum)


def is_128_bits(kind: Any) -> bool:
    """Whether a type of polars is a whole number of 128 bits, as those beyond 2**63 in a CSV are read."""
    return str(kind) in ("Int128", "UInt128")


def _check_exact(what: str, column: polars.Series) -> None:
    """Refuse whole numbers of which 64-bit floats would merge some."""
    import polars as pl

    if not is_128_bits(column.dtype):
        check_whole_numbers(what, column.to_numpy())
    elif column.n_unique() != column.cast(pl.Float64).n_unique():
        raise InputError(
            f"{what}: 64-bit floats merge numbers from {column.min()!r} to {column.max()!r}: subtract an offset"
        )


def _is_number(kind: Any) -> bool:
    import polars as pl

    return kind.is_numeric() or kind in (pl.Boolean, pl.Null)


def read_known_strings(column: polars.Series, what: str) -> np.ndarray:
    """A column that held strings in training, as strings `[n]`, None where a cell is empty."""
    import polars as pl

    kind = column.dtype
    # Other numbers, booleans or dates would be spelled differently from what training read.
    if not kind.is_integer() and not is_string(kind) and kind != pl.Null:
        raise InputError(f"{what} {column.name!r} holds {kind.base_type()}, in training it held strings")
    return _read_strings(column)


def _as_columns(
    name: str,
    kind: Kind,
    frame: polars.DataFrame,
    numbers: list[str],
    strings: Mapping[str, np.ndarray],
    as_stored: bool = False,
    wide: bool = False,
) -> Columns:
    import polars as pl

    if not numbers:
        return Columns(name, kind, [], np.empty((len(frame), 0), dtype=np.float32), strings)
    cells = frame.select(numbers)
    types = set(cells.dtypes)
    whole = all(number.is_integer() for number in types) and not any(cells.null_count().row(0))
    if not as_stored:
        # By way of 64 bits, so that a number is the same whether its column was read as whole or as fractional.
        cells = cells.cast(pl.Float64)
        cells = cells if wide else _in_32_bits(name, cells)
    elif not whole and types != {pl.Float32}:
        cells = cells.cast(pl.Float64)
    return Columns(name, kind, list(numbers), np.ascontiguousarray(cells.to_numpy()), strings)


def _in_32_bits(name: str, cells: polars.DataFrame) -> polars.DataFrame:
    """Numbers of 64 bits in 32, for which a finite one may be too large."""
    import polars as pl

    rounded = cells.cast(pl.Float32)
    for column in rounded:
        if not column.is_infinite().any():
            continue
        numbers = cells[column.name]
        if len(large := (column.is_infinite() & numbers.is_finite()).arg_true()):
            raise InputError(
                f"modality {name!r}: column {column.name!r} holds {numbers[large[0]]:g} in row {large[0]}, which is "
                "too large for 32-bit numbers, as the model reads this modality: correct it, or leave the cell empty"
            )
    return rounded


def rounding_errors(numbers: np.ndarray) -> np.ndarray:
    """The most that 32 bits move a number of each column of `[n, column]`; infinite if it is too large for them.

    >>> rounding_errors(np.array([[1.0, 2.0**24 + 1, 1e39], [np.nan, 0.5, 0.0]])).tolist()
    [0.0, 1.0, inf]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.fmax.reduce(np.abs(numbers - numbers.astype(np.float32)), axis=0, initial=0.0)


def needs_64_bits(cells: np.ndarray, error: float = 0.0) -> bool:
    """Whether 32 bits are too few for numbers `[n]`: they would move a number by more than 0.01 % of the spread.

    error: The most that 32 bits are known to move a number of which these are some.

    >>> seconds = np.arange(60.0)
    >>> needs_64_bits(seconds / 7), needs_64_bits(1.7e9 + seconds)
    (False, True)
    """
    known = cells[np.isfinite(cells)]
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(known - known.astype(np.float32)).max(initial=error)
        spread = known.std() if len(known) else 0.0
    return bool(np.isinf(error) or (spread > 0 and error > 1e-4 * spread))
