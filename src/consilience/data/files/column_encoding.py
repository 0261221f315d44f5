"""How the columns of one modality become features: numbers filled, times as calendar features, strings one-hot.

`learn_encoding` learns categories, fill values and where cells are empty from the train rows, and `Encoding.encode`
makes features of these and of new rows, in the same order.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from consilience.core.errors import InputError, TableWarning, listed, name_rows
from consilience.core.samples import Kind
from consilience.data.files.calendar_features import Calendar
from consilience.data.files.cell_fills import Fill, fill_gaps, learn_fills, plain_fills, restore_fills
from consilience.data.files.column_reading import Columns

# However many rows there are, one column makes no more features than this.
_TOO_MANY_VALUES = 1000


@dataclass(frozen=True, eq=False)
class Encoding:
    """What the train rows taught about the columns of one modality.

    Attributes:
        text: The column of sentences, or None.
        numbers: The columns of numbers.
        fills: What an empty cell becomes, of each column of numbers and each calendar feature `[number]`, or None if
            empty cells are an error.
        categories: Column of strings → the strings that get a feature each.
        wide: Whether the numbers need 64 bits.
        calendars: Column of times → the calendar features it becomes.
        flagged: The columns that have a further feature, 1 where the cell is empty.
    """

    text: str | None
    numbers: list[str]
    fills: np.ndarray | None
    categories: Mapping[str, np.ndarray]
    wide: bool = False
    calendars: Mapping[str, Calendar] = field(default_factory=dict)
    flagged: Sequence[str] = ()

    @property
    def kind(self) -> Kind:
        """Of the modality."""
        return "vector" if self.text is None else "text"

    @property
    def columns(self) -> list[str]:
        """Every column it reads."""
        return [*self.numbers, *self.calendars, *self.string_columns]

    @property
    def string_columns(self) -> list[str]:
        """The columns of strings, even where the few rows of a new table look like numbers."""
        return [self.text] if self.text is not None else list(self.categories)

    @property
    def features(self) -> list[str]:
        """The names of the features: numbers, calendar, one for each category, empty cells; none for sentences."""
        one_hot = [f"{column}={value}" for column, known in self.categories.items() for value in known]
        flags = [f"{column} is empty" for column in self.flagged]
        return [*self._measured, *one_hot, *flags]

    @property
    def _measured(self) -> list[str]:
        """The names of the features that have a fill."""
        of_times = [f"{column} {part}" for column, calendar in self.calendars.items() for part in calendar.features]
        return [*self.numbers, *of_times]

    @property
    def gaps(self) -> list[list[Any]]:
        """Pairs of the position of a feature that says where a column is empty, and the positions of its features.

        >>> known = {"colour": np.array(["green", "red"])}
        >>> Encoding(None, ["width", "height"], None, known, flagged=["height", "colour"]).gaps
        [[4, [1]], [5, [2, 3]]]
        """
        widths = dict.fromkeys(self.numbers, 1)
        widths |= {column: len(calendar.features) for column, calendar in self.calendars.items()}
        widths |= {column: len(known) for column, known in self.categories.items()}
        ends = np.cumsum(list(widths.values())).tolist()
        places = {column: list(range(end - width, end)) for (column, width), end in zip(widths.items(), ends)}
        return [[sum(widths.values()) + number, places[column]] for number, column in enumerate(self.flagged)]

    def encode(self, columns: Columns, advice: str) -> np.ndarray:
        """Values `[n, feature]` in the order of `features`; or sentences `[n]`.

        A category that the train rows do not have is all zeros, and so is an empty cell if there are fills. A row
        without any cell is all NaN: the modality is missing. `advice` is for the error on single empty cells.
        """
        if self.text is not None:
            return columns.strings[self.text]
        gaps, missing = self.find_gaps(columns)
        if self.fills is None and gaps.any():
            first = self.columns[np.flatnonzero(gaps.any(axis=0))[0]]
            raise InputError(
                f"modality {columns.name!r} has empty cells in part of {name_rows(np.flatnonzero(gaps.any(axis=1)))}, "
                f"the first in column {first!r}. A row with all cells empty lacks the modality; {advice}"
            )
        numbers = self._measure(columns)
        if self.fills is not None and numbers.shape[1]:
            # A row that holds categories only is not missing, so its numbers are filled.
            labels = [f"column {column!r}" for column in self._measured]
            numbers = fill_gaps(numbers, self.fills, columns.name, labels, missing=missing)
        flags = [gaps[:, [self.columns.index(column)]].astype(np.float32) for column in self.flagged]
        one_hot = [
            (columns.strings[column][:, None] == known).astype(np.float32) for column, known in self.categories.items()
        ]
        if not one_hot and not flags:
            return numbers
        values = np.concatenate([numbers, *one_hot, *flags], axis=1)
        values[missing] = np.nan
        return values

    def _measure(self, columns: Columns) -> np.ndarray:
        """Numbers and calendar features `[n, feature]`, NaN where a cell is empty."""
        numbers = columns.numbers
        if list(columns.number_names) != list(self.numbers):  # some are empty in every train row
            numbers = numbers[:, [columns.number_names.index(column) for column in self.numbers]]
        if not self.calendars:
            return numbers
        return np.concatenate([numbers, *(columns.times[column] for column in self.calendars)], axis=1)

    def find_gaps(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Return which single cells are empty `[n, column]`, and which rows lack the modality `[n]`; they have none."""
        numbers = np.isnan(columns.numbers)
        if list(columns.number_names) != list(self.numbers):
            numbers = numbers[:, [columns.number_names.index(column) for column in self.numbers]]
        times = [np.isnan(columns.times[column][:, :1]) for column in self.calendars]
        no_strings = [_is_none(columns.strings[column])[:, None] for column in self.categories]
        gaps = np.concatenate([numbers, *times, *no_strings], axis=1)
        missing = np.all(gaps, axis=1)
        gaps[missing] = False
        return gaps, missing

    def count_gaps(self, columns: Columns) -> dict[str, int]:
        """Column → its number of single empty cells, where there are any; rows that lack the modality do not count."""
        if self.text is not None:
            return {}
        counts = self.find_gaps(columns)[0].sum(axis=0).tolist()
        return {column: count for column, count in zip(self.columns, counts) if count}

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
        calendars = [{"column": column, **calendar.to_json()} for column, calendar in self.calendars.items()]
        return {
            "numbers": list(self.numbers),
            "fills": None if self.fills is None else plain_fills(self.fills),
            "categories": [{"column": column, "values": known.tolist()} for column, known in self.categories.items()],
            **({"wide": True} if self.wide else {}),
            **({"calendars": calendars} if calendars else {}),
            **({"flagged": list(self.flagged)} if self.flagged else {}),
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Encoding:
        """Rebuild what `to_json` wrote."""
        if "column" in described:
            return cls(described["column"], [], None, {})
        fills = None if described["fills"] is None else restore_fills(described["fills"])
        known = {entry["column"]: np.array(entry["values"], dtype=object) for entry in described["categories"]}
        calendars = {entry["column"]: Calendar.from_json(entry) for entry in described.get("calendars", ())}
        numbers, flagged = list(described["numbers"]), list(described.get("flagged", ()))
        rebuilt = cls(None, numbers, fills, known, bool(described.get("wide", False)), calendars, flagged)
        if fills is not None and len(fills) != len(rebuilt._measured):
            raise ValueError(f"{len(rebuilt._measured)} columns of numbers have {len(fills)} fills")
        if unknown := set(flagged) - set(rebuilt.columns):
            raise ValueError(f"columns {listed(sorted(unknown))} are flagged, and not read")
        return rebuilt


def learn_encoding(columns: Columns, train: np.ndarray, fill: Fill) -> Encoding:
    """Learn categories, fills and the columns with empty cells from the train rows, a mask `[n]`.

    With the fill "indicator" a column that is empty in every train row is left out, with a warning.
    """
    if columns.kind == "text":
        return Encoding(next(iter(columns.strings)), [], None, {})
    numbers, strings = list(columns.number_names), dict(columns.strings)
    calendars = dict(columns.calendars)
    if fill == "indicator":
        empty = _empty_columns(columns, train)
        if empty:
            numbers = [column for column in numbers if column not in empty]
            for column in empty:
                strings.pop(column, None)
                calendars.pop(column, None)
            whose = f"modality {columns.name!r}: column{'s' if len(empty) > 1 else ''} {listed(empty)}"
            rows = f"{'are' if len(empty) > 1 else 'is'} empty in every train row"
            if not numbers and not strings and not calendars:
                raise InputError(f"{whose} {rows}. Leave the modality out")
            warnings.warn(f"{whose} {rows}, and left out", TableWarning, stacklevel=2)
    known = {column: _learn_categories(columns.name, column, cells[train]) for column, cells in strings.items()}
    wide = columns.numbers.dtype == np.float64
    learned = Encoding(None, numbers, None, known, wide, calendars)
    if fill == "none":
        return learned
    gaps = learned.find_gaps(columns)[0][train].any(axis=0) if fill == "indicator" else ()
    return Encoding(
        None,
        numbers,
        learn_fills(learned._measure(columns), fill, train),
        known,
        wide,
        calendars,
        [column for column, some in zip(learned.columns, gaps) if some],
    )


def count_gaps(encodings: Mapping[str, Encoding], read: Mapping[str, Columns]) -> dict[str, dict[str, int]]:
    """Modality → column → its number of single empty cells, where there are any."""
    counted = {name: encoding.count_gaps(read[name]) for name, encoding in encodings.items()}
    return {name: counts for name, counts in counted.items() if counts}


def depends_on_split(columns: Columns, fill: Fill) -> bool:
    """Whether other train rows would teach another encoding."""
    if columns.kind == "text":
        return False
    measured = bool(columns.number_names or columns.times)
    return bool(columns.strings) or (fill not in ("none", "zero") and measured)


def _empty_columns(columns: Columns, train: np.ndarray) -> list[str]:
    numbers = np.isnan(columns.numbers[np.flatnonzero(train)[:1]]).all(axis=0)
    if numbers.any():  # in a large table the first row often is enough
        numbers &= np.isnan(columns.numbers[train]).all(axis=0)
    return [
        *(column for column, empty in zip(columns.number_names, numbers) if empty),
        *(column for column, cells in columns.times.items() if np.isnan(cells[train, 0]).all()),
        *(column for column, cells in columns.strings.items() if _is_none(cells[train]).all()),
    ]


def _learn_categories(name: str, column: str, cells: np.ndarray) -> np.ndarray:
    seen = cells[~_is_none(cells)]
    known = np.array(sorted(set(seen.tolist())), dtype=object)  # numpy's strings would lose null characters at the end
    if not len(known):
        raise InputError(f"modality {name!r}: column {column!r} is empty in every train row. Leave it out")
    if len(known) > _TOO_MANY_VALUES:
        raise InputError(
            f"modality {name!r}: column {column!r} holds {len(known)} different strings in {len(seen)} train "
            "rows, too many for categories. Leave it out, or make it a modality of its own with "
            f"kinds={{{column!r}: 'text'}} (--kind {column}=text)"
        )
    return known


def _is_none(cells: np.ndarray) -> np.ndarray:
    return np.array([cell is None for cell in cells.tolist()], dtype=bool)
