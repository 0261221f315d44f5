"""What the train rows of a table in shards teach, learned in one pass: categories, fills, empty cells, missing rows.

Medians, and the spread by which it is decided whether numbers need 64 bits, are of a random sample of the train rows if
there are more than `SAMPLED`. Everything else is of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from consilience.core.errors import InputError, listed, name_rows
from consilience.data.files.cell_fills import Fill
from consilience.data.files.column_encoding import Encoding, learn_encoding
from consilience.data.files.column_reading import Columns, needs_64_bits, read_known_columns, rounding_errors

if TYPE_CHECKING:
    import polars

# Train rows of which medians are taken.
SAMPLED = 20_000
# Strings of a column that are remembered; more are too many for categories.
_MOST_STRINGS = 1_001


@dataclass
class Learned:
    """What was learned of a table.

    Attributes:
        encodings: Modality → how its columns become features.
        present: Booleans `[n, modality]`, in the order of `encodings`.
        filled: Modality → column → its number of single empty cells, where there are any.
    """

    encodings: dict[str, Encoding]
    present: np.ndarray
    filled: dict[str, dict[str, int]]


def learn_encodings(
    frames: Iterable[polars.DataFrame],
    read: Mapping[str, Columns],
    train: np.ndarray,
    fill: Fill,
    where: str,
) -> Learned:
    """Learn from the rows of a table, some at a time.

    Args:
        frames: All rows in order, in parts.
        read: Modality → its columns, sorted by what the first rows hold; their cells are not used.
        train: Which rows to learn categories and fills from `[n]`.
        fill: What single empty cells become.
        where: What error messages call the table.
    """
    rows = np.flatnonzero(train)
    if len(rows) > SAMPLED:
        rows = np.sort(np.random.default_rng(0).choice(rows, SAMPLED, replace=False))
    seen = {name: _Seen(columns, len(train), where) for name, columns in read.items()}
    start = 0
    for frame in frames:
        stop = start + len(frame)
        sampled = rows[(rows >= start) & (rows < stop)] - start
        for each in seen.values():
            each.add(frame, start, train[start:stop], sampled)
        start = stop
    encodings = {name: each.encoding(fill) for name, each in seen.items()}
    present = np.stack([each.present for each in seen.values()], axis=1)
    counts = {name: each.filled(encodings[name]) for name, each in seen.items()}
    return Learned(encodings, present, {name: count for name, count in counts.items() if count})


class _Seen:
    """What was seen of one modality so far."""

    def __init__(self, columns: Columns, rows: int, where: str):
        self.name, self.where, self.text = columns.name, where, columns.kind == "text"
        text = next(iter(columns.strings)) if self.text else None
        strings = {} if self.text else dict.fromkeys(columns.strings, np.array([], dtype=object))
        # Numbers are read in 64 bits until it is known whether they need them.
        self.first = Encoding(text, list(columns.number_names), None, strings, True, columns.calendars)
        self.present = np.zeros(rows, dtype=bool)
        self.values: dict[str, set[str]] = {column: set() for column in strings}
        self.parts: list[Columns] = []
        self.gaps = np.zeros(len(self.first.columns), dtype=np.int64)  # in all rows
        self.train_gaps = np.zeros(len(self.first.columns), dtype=bool)
        self.known = np.zeros(len(self.first.columns), dtype=bool)  # in any train row
        self.rounding = np.zeros(len(columns.number_names))  # the most that 32 bits move a number, in all rows

    def add(self, frame: polars.DataFrame, start: int, train: np.ndarray, sampled: np.ndarray) -> None:
        """Learn from some rows, of which the first is row `start` of the table."""
        columns = read_known_columns(self.name, frame, self.first)
        stop = start + len(frame)
        if self.text:
            cells = columns.strings[self.first.columns[0]]
            self.present[start:stop] = [cell is not None for cell in cells.tolist()]
            return
        infinite = np.isinf(columns.numbers)
        if infinite.any():
            bad = np.flatnonzero(infinite.any(axis=1))
            column = columns.number_names[int(np.flatnonzero(infinite[bad[0]])[0])]
            raise InputError(
                f"{self.where}: modality {self.name!r} holds infinity in column {column!r} ({name_rows(start + bad)}): "
                "correct these cells, or leave them empty"
            )
        self.rounding = np.fmax(self.rounding, rounding_errors(columns.numbers))
        gaps, missing = self.first.find_gaps(columns)
        self.present[start:stop] = ~missing
        self.gaps += gaps.sum(axis=0)
        self.train_gaps |= gaps[train].any(axis=0)
        self.known |= (~gaps & ~missing[:, None])[train].any(axis=0)
        for column, found in self.values.items():
            if len(found) < _MOST_STRINGS:
                found.update(set(columns.strings[column][train].tolist()) - {None})
        if len(sampled):
            self.parts.append(_select(columns, sampled))

    def encoding(self, fill: Fill) -> Encoding:
        """What was learned."""
        if self.text:
            return replace(self.first, wide=False)
        if fill == "none" and self.gaps.any():
            column = self.first.columns[int(np.flatnonzero(self.gaps)[0])]
            raise InputError(
                f"{self.where}: modality {self.name!r} has single empty cells, the first in column {column!r}. A row "
                "with all cells empty lacks the modality; leave fill='none' (--fill none) out, or drop the rows"
            )
        sample = _joined(self.parts)
        numbers = sample.numbers
        wide = any(needs_64_bits(cells, error) for cells, error in zip(numbers.T, self.rounding.tolist()))
        if not wide:
            numbers = numbers.astype(np.float32)
        learned = learn_encoding(replace(sample, numbers=numbers), np.ones(len(numbers), dtype=bool), fill)
        dropped = [column for column in self.first.columns if column not in learned.columns]
        known = dict(zip(self.first.columns, self.known.tolist()))
        if rare := [column for column in dropped if known[column]]:
            raise InputError(
                f"{self.where}: modality {self.name!r} has so few values in columns {listed(rare)} that none is in "
                f"{len(numbers)} sampled train rows, so there is nothing to fill empty cells with. Leave them out, or "
                "use fill='zero' (--fill zero)"
            )
        categories = {}
        for column in learned.categories:
            found = self.values[column]
            if len(found) >= _MOST_STRINGS:
                raise InputError(
                    f"{self.where}: modality {self.name!r}: column {column!r} holds more than {_MOST_STRINGS - 1} "
                    "different strings, too many for categories. Leave it out, or make it a modality of its own with "
                    f"kinds={{{column!r}: 'text'}} (--kind {column}=text)"
                )
            categories[column] = np.array(sorted(found), dtype=object)
        train_gaps = dict(zip(self.first.columns, self.train_gaps.tolist()))
        flagged = [column for column in learned.columns if train_gaps[column]] if fill == "indicator" else []
        return replace(learned, categories=categories, flagged=flagged, wide=wide)

    def filled(self, encoding: Encoding) -> dict[str, int]:
        """Column → its number of single empty cells."""
        if self.text:
            return {}
        counts = dict(zip(self.first.columns, self.gaps.tolist()))
        return {column: counts[column] for column in encoding.columns if counts[column]}


def _select(columns: Columns, rows: np.ndarray) -> Columns:
    return replace(
        columns,
        numbers=columns.numbers[rows],
        strings={column: cells[rows] for column, cells in columns.strings.items()},
        times={column: cells[rows] for column, cells in columns.times.items()},
    )


def _joined(parts: Sequence[Columns]) -> Columns:
    first = parts[0]
    return replace(
        first,
        numbers=np.concatenate([part.numbers for part in parts]),
        strings={column: np.concatenate([part.strings[column] for part in parts]) for column in first.strings},
        times={column: np.concatenate([part.times[column] for part in parts]) for column in first.times},
    )
