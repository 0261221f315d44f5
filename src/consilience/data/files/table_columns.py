"""One modality's columns of a table as they were read: numbers, strings, or sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Kind

if TYPE_CHECKING:
    import polars

# Words for an empty cell in a CSV column of numbers. In a column of strings they are strings: "NA" may be a place.
EMPTY_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL")
# Up to this share of cells that are no numbers, a column is one of numbers with mistakes in it.
_STRANGE_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Columns:
    """What was read for one modality: sentences, or numbers `[n, column]` (NaN: empty) and strings (None: empty)."""

    name: str
    text_name: str | None
    text: np.ndarray | None
    numbers: np.ndarray
    number_names: list[str]
    categories: Mapping[str, np.ndarray]

    @property
    def kind(self) -> Kind:
        """Text or vector."""
        return "vector" if self.text is None else "text"


def read_columns(name: str, frame: polars.DataFrame, text: bool) -> Columns:
    """Sort a modality's columns into numbers and strings; refuse dates, lists and the like."""
    import polars as pl

    if text:
        return _sentences(name, frame.columns[0], read_strings(frame.to_series()))
    numbers, strings = [], []
    for column, kind in frame.schema.items():
        if kind.is_numeric() or kind in (pl.Boolean, pl.Null):
            numbers.append(column)
        elif kind in (pl.String, pl.Categorical, pl.Enum):
            strings.append(column)
        else:
            raise InputError(
                f"modality {name!r}: column {column!r} holds {kind}; numbers, booleans and strings are allowed"
            )
    categories = {one: read_strings(frame[one]) for one in strings}
    return Columns(name, None, None, _as_floats(frame, numbers), numbers, categories)


def read_known_columns(
    name: str, frame: polars.DataFrame, text: str | None, numbers: Sequence[str], categories: Sequence[str]
) -> Columns:
    """Read columns as what they were in training, whatever the few rows of a new table make them look like."""
    what = f"modality {name!r}: column"
    if text is not None:
        return _sentences(name, text, read_known_strings(frame[text], what))
    schema = frame.schema
    mended = [read_known_numbers(frame[one], what) for one in numbers if not schema[one].is_numeric()]
    strings = {one: read_known_strings(frame[one], what) for one in categories}
    return Columns(name, None, None, _as_floats(frame.with_columns(mended), list(numbers)), list(numbers), strings)


def read_known_numbers(column: polars.Series, what: str) -> polars.Series:
    """A column that held numbers or booleans in training, as numbers; anything else is refused with its rows."""
    import polars as pl

    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64)
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise InputError(f"{what} {column.name!r} holds {column.dtype}, in training it held numbers")
    words = column.cast(pl.String)
    words = words.set(words.is_in(EMPTY_WORDS).fill_null(False), None)
    lower = words.str.to_lowercase()
    truth = (lower == "true").cast(pl.Float64).set((~lower.is_in(["true", "false"])).fill_null(False), None)
    numbers = words.cast(pl.Float64, strict=False).zip_with(truth.is_null(), truth)
    wrong = (numbers.is_null() & words.is_not_null()).arg_true().to_list()
    if wrong:
        raise InputError(
            f"{what} {column.name!r} holds {words[wrong[0]]!r} ({name_rows(wrong)}), in training it held numbers"
        )
    return numbers


def read_known_strings(column: polars.Series, what: str) -> np.ndarray:
    """A column that held strings in training, as strings `[n]`, None where a cell is empty."""
    import polars as pl

    kind = column.dtype
    # Other numbers, booleans or dates would be spelled differently from what training saw.
    if not kind.is_integer() and kind not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        raise InputError(f"{what} {column.name!r} holds {kind}, in training it held strings")
    return read_strings(column)


def mend_numbers(column: polars.Series) -> polars.Series:
    """Turn a column of numbers with "NA" among them, which polars reads as strings, into numbers.

    A few cells that are no numbers among many that are make no categories: they are refused by name.
    """
    import polars as pl

    given = column.set(column.is_in(EMPTY_WORDS).fill_null(False), None)
    numbers = given.cast(pl.Float64, strict=False)
    if numbers.null_count() == given.null_count() < len(column):
        return numbers
    strange = (numbers.is_null() & given.is_not_null()).arg_true().to_list()
    if 0 < len(strange) <= _STRANGE_SHARE * (len(given) - given.null_count()):
        raise InputError(
            f"column {column.name!r} holds numbers but for {given[strange[0]]!r} in {name_rows(strange)} (counted from "
            "0): mend these cells, or leave them empty"
        )
    return column


def read_strings(column: polars.Series) -> np.ndarray:
    """A column's cells as strings `[n]`, None where a cell is empty."""
    import polars as pl

    return np.array(column.cast(pl.String).to_list(), dtype=object)


def _sentences(name: str, column: str, text: np.ndarray) -> Columns:
    return Columns(name, column, text, np.empty((len(text), 0), dtype=np.float32), [], {})


def _as_floats(frame: polars.DataFrame, columns: list[str]) -> np.ndarray:
    import polars as pl

    if not columns:
        return np.empty((len(frame), 0), dtype=np.float32)
    # By way of 64 bits, so that a number comes out the same whether its column was read as whole or as fractional.
    floats = frame.select(pl.col(columns).cast(pl.Float64).cast(pl.Float32))
    return np.ascontiguousarray(floats.to_numpy())
