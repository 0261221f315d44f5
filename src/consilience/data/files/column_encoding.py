"""How the columns of one modality become features: numbers as they are or filled, strings one-hot, sentences as text.

`read_columns` sorts the columns into numbers and strings, `learn_encoding` learns categories and fill values from the
train rows, and `Encoding.encode` makes features of these and of new rows, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.modalities import check_whole_numbers
from consilience.core.samples import Kind
from consilience.data.files.table_reading import EMPTY_WORDS

if TYPE_CHECKING:
    import polars

Fill = Literal["mean", "median", "zero"]
# A column of strings with more different values than this, in over half of its rows, holds no categories.
_MANY_VALUES = 20
# However many rows there are, one column makes no more features than this.
_TOO_MANY_VALUES = 1000


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of one modality as they were read.

    Attributes:
        name: Of the modality.
        kind: "text", or "vector" for everything else.
        number_names: The columns of numbers and booleans.
        numbers: Their cells `[n, column]`, NaN where a cell is empty.
        strings: Column → its cells `[n]`, None where a cell is empty.
    """

    name: str
    kind: Kind
    number_names: list[str]
    numbers: np.ndarray
    strings: Mapping[str, np.ndarray]


def read_columns(name: str, frame: polars.DataFrame, text: bool, as_stored: bool = False) -> Columns:
    """Sort the columns of a modality into numbers and strings; `text` is whether its only column holds sentences.

    With `as_stored` numbers keep the precision that they have in the frame; otherwise they become 32-bit floats, or
    64-bit ones where 32 bits are too few.
    """
    import polars as pl

    if text:
        return _as_columns(name, "text", frame, [], {frame.columns[0]: _read_strings(frame.to_series())})
    numbers: list[str] = []
    strings: dict[str, np.ndarray] = {}
    for column, kind in frame.schema.items():
        if _is_number(kind):
            numbers.append(column)
        elif is_string(kind):
            strings[column] = _read_strings(frame[column])
        else:
            raise InputError(
                f"modality {name!r}: column {column!r} holds {kind.base_type()}; numbers, booleans and strings are "
                "allowed"
            )
    for column in numbers:
        _check_exact(f"modality {name!r}: column {column!r}", frame[column].drop_nulls())
    wide = any(needs_64_bits(frame[column].cast(pl.Float64).to_numpy()) for column in numbers)
    return _as_columns(name, "vector", frame, numbers, strings, as_stored, wide)


def read_known_columns(name: str, frame: polars.DataFrame, encoding: Encoding, as_stored: bool = False) -> Columns:
    """Read columns as what they were in training, whatever type the few rows of a new table suggest."""
    what = f"modality {name!r}: column"
    strings = {column: read_known_strings(frame[column], what) for column in encoding.string_columns}
    types = frame.schema
    parsed = [read_known_numbers(frame[column], what) for column in encoding.numbers if not types[column].is_numeric()]
    frame = frame.with_columns(parsed)
    return _as_columns(name, encoding.kind, frame, encoding.numbers, strings, as_stored, encoding.wide)


def read_known_numbers(column: polars.Series, what: str) -> polars.Series:
    """A column that held numbers or booleans in training, as numbers; any other cell is an error."""
    import polars as pl

    if _is_number(column.dtype):
        return column.cast(pl.Float64)
    if not is_string(column.dtype):
        raise InputError(f"{what} {column.name!r} holds {column.dtype.base_type()}, in training it held numbers")
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


def _read_strings(column: polars.Series) -> np.ndarray:
    """The cells of a column as strings `[n]`, None where a cell is empty."""
    import polars as pl

    return np.array(column.cast(pl.String).to_list(), dtype=object)


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
        cells = cells.cast(pl.Float64) if wide else cells.cast(pl.Float64).cast(pl.Float32)
    elif not whole and types != {pl.Float32}:
        cells = cells.cast(pl.Float64)
    return Columns(name, kind, list(numbers), np.ascontiguousarray(cells.to_numpy()), strings)


def needs_64_bits(cells: np.ndarray) -> bool:
    """Whether 32 bits are too few for numbers `[n]`: they would move a number by more than 0.01 % of the spread.

    >>> seconds = np.arange(60.0)
    >>> needs_64_bits(seconds / 7), needs_64_bits(1.7e9 + seconds)
    (False, True)
    """
    known = cells[np.isfinite(cells)]
    with np.errstate(over="ignore", invalid="ignore"):
        error, spread = np.abs(known - known.astype(np.float32)).max(initial=0.0), known.std() if len(known) else 0.0
    return bool(np.isinf(error) or (spread > 0 and error > 1e-4 * spread))


@dataclass(frozen=True, eq=False)
class Encoding:
    """What the train rows taught about the columns of one modality.

    Attributes:
        text: The column of sentences, or None.
        numbers: The columns of numbers.
        fills: What an empty cell of each becomes `[number]`, or None if empty cells are an error.
        categories: Column of strings → the strings that get a feature each.
        wide: Whether the numbers need 64 bits.
    """

    text: str | None
    numbers: list[str]
    fills: np.ndarray | None
    categories: Mapping[str, np.ndarray]
    wide: bool = False

    @property
    def kind(self) -> Kind:
        """Of the modality."""
        return "vector" if self.text is None else "text"

    @property
    def columns(self) -> list[str]:
        """Every column it reads."""
        return [*self.numbers, *self.string_columns]

    @property
    def string_columns(self) -> list[str]:
        """The columns of strings, even where the few rows of a new table look like numbers."""
        return [self.text] if self.text is not None else list(self.categories)

    @property
    def features(self) -> list[str]:
        """The names of the features: numbers first, then one for each category; none for sentences."""
        one_hot = [f"{column}={value}" for column, known in self.categories.items() for value in known]
        return [*self.numbers, *one_hot]

    def encode(self, columns: Columns, advice: str) -> np.ndarray:
        """Values `[n, feature]`, numbers first, then a 0/1 feature for each category; or sentences `[n]`.

        A category that the train rows do not have is all zeros, and so is an empty cell if there are fills. A row
        without any cell is all NaN: the modality is missing. `advice` is for the error on single empty cells.
        """
        if self.text is not None:
            return columns.strings[self.text]
        no_strings = [_is_none(columns.strings[column])[:, None] for column in self.categories]
        gaps = np.concatenate([np.isnan(columns.numbers), *no_strings], axis=1)
        missing = np.all(gaps, axis=1)
        gaps[missing] = False
        if self.fills is None and gaps.any():
            first = self.columns[np.flatnonzero(gaps.any(axis=0))[0]]
            raise InputError(
                f"modality {columns.name!r} has empty cells in part of {name_rows(np.flatnonzero(gaps.any(axis=1)))}, "
                f"the first in column {first!r}. A row with all cells empty lacks the modality; {advice}"
            )
        numbers = columns.numbers
        if self.fills is not None and self.numbers:
            # A row that holds categories only is not missing, so its numbers are filled.
            labels = [f"column {column!r}" for column in self.numbers]
            numbers = fill_gaps(numbers, self.fills, columns.name, labels, missing=missing)
        if not self.categories:
            return numbers
        one_hot = [
            (columns.strings[column][:, None] == known).astype(np.float32) for column, known in self.categories.items()
        ]
        values = np.concatenate([numbers, *one_hot], axis=1)
        values[missing] = np.nan
        return values

    def unseen(self, columns: Columns) -> dict[str, np.ndarray]:
        """Column → whether a row holds a category that the train rows do not have `[n]`, where any row does."""
        unseen = {}
        for column, known in self.categories.items():
            cells = columns.strings[column]
            seen = set(known.tolist())
            rows = np.array([cell is not None and cell not in seen for cell in cells.tolist()], dtype=bool)
            if rows.any():
                unseen[column] = rows
        return unseen

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; lists wherever the order matters."""
        if self.text is not None:
            return {"column": self.text}
        return {
            "numbers": list(self.numbers),
            "fills": None if self.fills is None else plain_fills(self.fills),
            "categories": [{"column": column, "values": known.tolist()} for column, known in self.categories.items()],
            **({"wide": True} if self.wide else {}),
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Encoding:
        """Rebuild what `to_json` wrote."""
        if "column" in described:
            return cls(described["column"], [], None, {})
        fills = None if described["fills"] is None else restore_fills(described["fills"])
        known = {entry["column"]: np.array(entry["values"], dtype=object) for entry in described["categories"]}
        numbers = list(described["numbers"])
        if fills is not None and len(fills) != len(numbers):
            raise ValueError(f"{len(numbers)} columns of numbers have {len(fills)} fills")
        return cls(None, numbers, fills, known, bool(described.get("wide", False)))


def learn_encoding(columns: Columns, train: np.ndarray, fill: Fill | None) -> Encoding:
    """Learn categories and fills from the train rows, a mask `[n]`."""
    if columns.kind == "text":
        return Encoding(next(iter(columns.strings)), [], None, {})
    fills = None if fill is None else learn_fills(columns.numbers, fill, train)
    known = {column: _learn_categories(columns.name, column, cells[train]) for column, cells in columns.strings.items()}
    return Encoding(None, columns.number_names, fills, known, columns.numbers.dtype == np.float64)


def depends_on_split(columns: Columns, fill: Fill | None) -> bool:
    """Whether other train rows would teach another encoding."""
    if columns.kind == "text":
        return False
    return bool(columns.strings) or (fill not in (None, "zero") and bool(columns.number_names))


def _learn_categories(name: str, column: str, cells: np.ndarray) -> np.ndarray:
    seen = cells[~_is_none(cells)]
    known = np.array(sorted(set(seen.tolist())), dtype=object)  # numpy's strings would lose null characters at the end
    if not len(known):
        raise InputError(f"modality {name!r}: column {column!r} is empty in every train row. Leave it out")
    if len(known) > min(max(_MANY_VALUES, len(seen) // 2), _TOO_MANY_VALUES):
        raise InputError(
            f"modality {name!r}: column {column!r} holds {len(known)} different strings in {len(seen)} train "
            "rows, too many for categories. Leave it out, or make it a modality of its own with "
            f"kinds={{{column!r}: 'text'}} (--kind {column}=text)"
        )
    return known


def _is_none(cells: np.ndarray) -> np.ndarray:
    return np.array([cell is None for cell in cells.tolist()], dtype=bool)


def learn_fills(values: np.ndarray, fill: Fill, train: np.ndarray) -> np.ndarray:
    """The median or mean of each feature over the train rows, or 0: `[feature]`; NaN where every train row is empty.

    Fills are learned for features without a gap too, since new samples may have one.

    >>> learn_fills(np.array([[1.0, 4.0], [np.nan, 6.0], [9.0, 9.0]]), "mean", np.array([True, True, False])).tolist()
    [1.0, 5.0]
    """
    if fill == "zero":
        return np.zeros(values.shape[1])
    known = values[train]
    empty = np.isnan(known)
    fills = np.full(values.shape[1], np.nan)
    whole = ~empty.any(axis=0)
    some = ~whole & ~empty.all(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite cells are refused later, with their rows
        if fill == "mean":
            fills[whole] = known[:, whole].mean(axis=0, dtype=np.float64)
            fills[some] = np.nanmean(known[:, some], axis=0, dtype=np.float64)
        else:
            fills[whole], fills[some] = np.median(known[:, whole], axis=0), np.nanmedian(known[:, some], axis=0)
    return fills


def fill_gaps(
    values: np.ndarray,
    fills: np.ndarray,
    name: str,
    columns: Sequence[str],
    missing: np.ndarray | None = None,
) -> np.ndarray:
    """Replace NaN in `[n, feature]` by the entry of the feature in `fills` `[feature]`.

    Rows that lack the modality are not changed: those in the mask `missing` `[n]`, by default those that are all NaN.

    >>> gaps = np.array([[1.0, 4.0], [np.nan, 6.0], [np.nan, np.nan]])
    >>> fill_gaps(gaps, np.array([1.0, 5.0]), "audio", ["a", "b"]).tolist()
    [[1.0, 4.0], [1.0, 6.0], [nan, nan]]
    """
    empty = np.isnan(values)
    present = ~(empty.all(axis=1) if missing is None else missing)
    affected = np.flatnonzero((empty & present[:, None]).any(axis=0))
    if not len(affected):
        return values
    unknown = affected[np.isnan(fills[affected])]
    if len(unknown):
        raise InputError(
            f"modality {name!r}: {columns[unknown[0]]} is empty in every train row, so there is nothing to fill it "
            "with. Leave it out, or use fill='zero' (--fill zero)"
        )
    filled = np.array(values)
    filled[:, affected] = np.where(empty[:, affected] & present[:, None], fills[affected], filled[:, affected])
    return filled


def plain_fills(fills: np.ndarray) -> list[float | None]:
    """Fills as JSON values, None where there is none."""
    return [number if known else None for number, known in zip(fills.tolist(), np.isfinite(fills).tolist())]


def restore_fills(described: Sequence[float | None]) -> np.ndarray:
    """What `plain_fills` wrote as an array `[feature]`."""
    return np.array([np.nan if number is None else float(number) for number in described])
