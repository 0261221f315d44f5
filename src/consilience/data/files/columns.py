"""One modality's columns of a table: numbers as they are, categories one-hot, sentences as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from consilience.data.files.filling import fill_gaps
from consilience.errors import InputError, name_rows
from consilience.samples import Kind

if TYPE_CHECKING:
    import polars

# A column of strings with more different values than this, in over half of its rows, is no category.
_MANY_VALUES = 20


@dataclass(frozen=True, eq=False)
class Columns:
    """What was read for one modality: sentences, or numbers `[n, column]` (NaN: empty) and strings (None: empty)."""

    name: str
    text: np.ndarray | None
    numbers: np.ndarray
    number_names: list[str]
    categories: Mapping[str, np.ndarray]

    @property
    def kind(self) -> Kind:
        """Text or vector."""
        return "vector" if self.text is None else "text"

    def fitted(self, fill: str | None) -> bool:
        """Whether the encoded values depend on which rows are train rows."""
        return bool(self.categories) or (fill is not None and bool(np.isnan(self.numbers).any()))

    def encode(self, train: np.ndarray, fill: str | None) -> tuple[np.ndarray, list[str]]:
        """Values `[n, feature]` and the features' names: numbers first, then a 0/1 feature for each category.

        Categories are those of the train rows; another one elsewhere, like an empty cell under `fill`, is all zeros.
        A row without any cell is all NaN: the modality is missing.
        """
        if self.text is not None:
            return self.text, [self.name]
        empty = np.column_stack([np.isnan(self.numbers), *(_is_empty(cells) for cells in self.categories.values())])
        missing = np.all(empty, axis=1)
        gaps = empty & ~missing[:, None]
        if fill is None and gaps.any():
            columns = [*self.number_names, *self.categories]
            first = columns[np.flatnonzero(gaps.any(axis=0))[0]]
            raise InputError(
                f"modality {self.name!r} has empty cells in part of {name_rows(np.flatnonzero(gaps.any(axis=1)))}, the "
                f"first in column {first!r}. A row with all cells empty lacks the modality; fill single cells with "
                "fill='median' ('mean', 'zero'), or drop the rows"
            )
        encoded, names = [self.numbers], list(self.number_names)
        if fill is not None and self.number_names:
            # Rows that hold categories only are there too, so their numbers are to be filled.
            named = [f"column {column!r}" for column in self.number_names]
            encoded = [fill_gaps(self.numbers, fill, train, self.name, named, missing=missing)]
        for column, cells in self.categories.items():
            known = self._known_categories(column, cells, train)
            encoded.append((cells[:, None] == known).astype(np.float32))
            names += [f"{column}={category}" for category in known]
        values = np.concatenate(encoded, axis=1)
        if self.categories:
            values[missing] = np.nan
        return values, names

    def _known_categories(self, column: str, cells: np.ndarray, train: np.ndarray) -> np.ndarray:
        seen = cells[train & ~_is_empty(cells)]
        known = np.unique(seen.astype(str)).astype(object)
        if not len(known):
            raise InputError(f"modality {self.name!r}: column {column!r} is empty in every train row. Leave it out")
        if len(known) > max(_MANY_VALUES, len(seen) // 2):
            raise InputError(
                f"modality {self.name!r}: column {column!r} holds {len(known)} different strings in {len(seen)} train "
                "rows, which is no category. Leave it out, or make it a modality of its own with "
                f"kinds={{{column!r}: 'text'}}"
            )
        return known


def read_columns(name: str, frame: polars.DataFrame, text: bool) -> Columns:
    """Sort a modality's columns into numbers and strings; refuse dates, lists and the like."""
    import polars as pl

    nothing = np.empty((len(frame), 0), dtype=np.float32)
    if text:
        return Columns(name, _strings(frame.to_series()), nothing, [], {})
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
    values = frame.select(pl.col(numbers).cast(pl.Float32)).to_numpy() if numbers else nothing
    return Columns(name, None, np.ascontiguousarray(values), numbers, {one: _strings(frame[one]) for one in strings})


def _strings(column: polars.Series) -> np.ndarray:
    import polars as pl

    return np.array(column.cast(pl.String).to_list(), dtype=object)


def _is_empty(cells: np.ndarray) -> np.ndarray:
    return np.array([cell is None for cell in cells.tolist()], dtype=bool)
