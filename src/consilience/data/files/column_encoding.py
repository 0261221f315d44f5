"""How the columns of one modality become features: numbers as they are or filled, strings one-hot, sentences as text.

`learn_encoding` learns categories and fill values from the train rows, and `Encoding.encode` makes features of these
and of new rows, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Kind
from consilience.data.files.cell_fills import Fill, fill_gaps, learn_fills, plain_fills, restore_fills
from consilience.data.files.column_reading import Columns

# A column of strings with more different values than this, in over half of its rows, holds no categories.
_MANY_VALUES = 20
# However many rows there are, one column makes no more features than this.
_TOO_MANY_VALUES = 1000


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
