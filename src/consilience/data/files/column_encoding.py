"""How one modality's columns become features: numbers as they are or filled, categories one-hot, sentences as text.

What it takes is learned on the train rows once; new samples are encoded with the same values, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.data.files.cell_filling import fill_gaps, learn_fills, plain_fills, restore_fills
from consilience.data.files.table_columns import Columns

# A column of strings with more different values than this, in over half of its rows, is no category.
_MANY_VALUES = 20
# However many rows there are, one column makes no more features than this.
_TOO_MANY_VALUES = 1000


@dataclass(frozen=True, eq=False)
class Encoding:
    """What the train rows taught about one modality's columns.

    text: the column of sentences, or None · numbers: the columns of numbers · fills: what an empty cell of each
    becomes, `[number]`, or None where empty cells are refused · categories: column → the strings that get a feature.
    """

    text: str | None
    numbers: list[str]
    fills: np.ndarray | None
    categories: Mapping[str, np.ndarray]

    @property
    def columns(self) -> list[str]:
        """Every column it reads."""
        return [self.text] if self.text is not None else [*self.numbers, *self.categories]

    @property
    def string_columns(self) -> list[str]:
        """Those that hold strings, even where the few rows of a new table look like numbers."""
        return [self.text] if self.text is not None else list(self.categories)

    @property
    def features(self) -> list[str]:
        """The features' names: numbers first, then one for each category; none for sentences."""
        return [*self.numbers, *(f"{column}={one}" for column, known in self.categories.items() for one in known)]

    def encode(self, columns: Columns, advice: str) -> np.ndarray:
        """Values `[n, feature]`: numbers first, then a 0/1 feature for each category; sentences `[n]`.

        A category that the train rows do not have, like an empty cell under fills, is all zeros. A row without any
        cell is all NaN: the modality is missing. advice: what to do about single empty cells where nothing fills them.
        """
        if columns.text is not None:
            return columns.text
        empty = [np.isnan(columns.numbers), *(_is_empty(columns.categories[one])[:, None] for one in self.categories)]
        gaps = np.concatenate(empty, axis=1)
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
            # Rows that hold categories only are there too, so their numbers are to be filled.
            named = [f"column {column!r}" for column in self.numbers]
            numbers = fill_gaps(numbers, self.fills, columns.name, named, missing=missing)
        if not self.categories:
            return numbers
        one_hot = [
            (columns.categories[column][:, None] == known).astype(np.float32)
            for column, known in self.categories.items()
        ]
        values = np.concatenate([numbers, *one_hot], axis=1)
        values[missing] = np.nan
        return values

    def unseen(self, columns: Columns) -> dict[str, np.ndarray]:
        """Column → whether a row holds a category that the train rows do not have `[n]`, where any does."""
        strange = {
            column: ~_is_empty(columns.categories[column]) & ~np.isin(columns.categories[column].astype(str), known)
            for column, known in ((one, values.astype(str)) for one, values in self.categories.items())
        }
        return {column: rows for column, rows in strange.items() if rows.any()}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; lists wherever the order matters."""
        if self.text is not None:
            return {"column": self.text}
        return {
            "numbers": list(self.numbers),
            "fills": None if self.fills is None else plain_fills(self.fills),
            "categories": [{"column": column, "values": known.tolist()} for column, known in self.categories.items()],
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Encoding:
        """Rebuild what `to_json` wrote."""
        if "column" in described:
            return cls(described["column"], [], None, {})
        fills = None if described["fills"] is None else restore_fills(described["fills"])
        known = {one["column"]: np.array(one["values"], dtype=object) for one in described["categories"]}
        numbers = list(described["numbers"])
        if fills is not None and len(fills) != len(numbers):
            raise ValueError(f"{len(numbers)} columns of numbers have {len(fills)} fills")
        return cls(None, numbers, fills, known)


def learn_encoding(columns: Columns, train: np.ndarray, fill: str | None) -> Encoding:
    """Learn categories and fills on the train rows."""
    if columns.text_name is not None:
        return Encoding(columns.text_name, [], None, {})
    fills = None if fill is None else learn_fills(columns.numbers, fill, train)
    known = {one: _known_categories(columns.name, one, cells, train) for one, cells in columns.categories.items()}
    return Encoding(None, columns.number_names, fills, known)


def depends_on_split(columns: Columns, fill: str | None) -> bool:
    """Whether other train rows would teach another encoding."""
    return bool(columns.categories) or (fill not in (None, "zero") and bool(columns.number_names))


def _known_categories(name: str, column: str, cells: np.ndarray, train: np.ndarray) -> np.ndarray:
    seen = cells[train & ~_is_empty(cells)]
    known = np.unique(seen.astype(str)).astype(object)
    if not len(known):
        raise InputError(f"modality {name!r}: column {column!r} is empty in every train row. Leave it out")
    if len(known) > min(max(_MANY_VALUES, len(seen) // 2), _TOO_MANY_VALUES):
        raise InputError(
            f"modality {name!r}: column {column!r} holds {len(known)} different strings in {len(seen)} train "
            "rows, which is no category. Leave it out, or make it a modality of its own with "
            f"kinds={{{column!r}: 'text'}} (--kind {column}=text)"
        )
    return known


def _is_empty(cells: np.ndarray) -> np.ndarray:
    return np.array([cell is None for cell in cells.tolist()], dtype=bool)
