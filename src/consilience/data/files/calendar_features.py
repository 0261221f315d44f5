"""Columns of times: found by their type or their spelling, and turned into calendar features where that is asked for.

A time is left out unless it is asked for, since most times of new rows lie beyond those of training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError, name_rows

if TYPE_CHECKING:
    import polars

_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%Y", "%m/%d/%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S%.f")
_LAYOUTS = tuple(date + time for time in _TIMES for date in _DATES)
# What every layout looks like, so that a column of other strings costs the look at one cell.
_LOOKS_LIKE_A_TIME = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})( \d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?"
)
# A "T" between date and time, and the zone at the end, which is not read: the hour is that of the clock on the wall.
_BETWEEN, _ZONE = r"^(\S+)T(\d)", r"(:\d{2}(?:\.\d+)?)\s?(?:Z|UTC|[+-]\d{2}:?\d{2})$"
_ZONE_NAME = r":\d{2}(?:\.\d+)?\s?(Z|UTC|[+-]\d{2}:?\d{2})$"
_YEAR = 365.25


@dataclass(frozen=True)
class Calendar:
    """How a column of times becomes features.

    Attributes:
        layout: How the cells of a column of strings are written, as in `strptime`; None for a column of times.
        hours: Whether the cells have a time of day.
    """

    layout: str | None
    hours: bool

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        circles = ["day of year", "weekday", *(["hour"] if self.hours else [])]
        return ["year", *(f"{part} {wave}" for part in circles for wave in ("sin", "cos"))]

    def encode(self, column: polars.Series, what: str) -> np.ndarray:
        """Features `[n, feature]` of a column of times, or of strings; NaN where a cell is empty.

        Example:
            >>> import polars as pl
            >>> noon = pl.Series(["2024-01-01 12:00", None])
            >>> Calendar("%Y-%m-%d %H:%M", hours=True).encode(noon, "column")[:, -2:].round(3).tolist()
            [[0.0, -1.0], [nan, nan]]
        """
        import polars as pl

        times = self._read(column, what).dt
        day = times.hour().cast(pl.Float64) + times.minute() / 60 + times.second() / 3600
        circles = [(times.ordinal_day() - 1) / _YEAR, (times.weekday() - 1) / 7, *([day / 24] if self.hours else [])]
        angles = [2 * np.pi * part.cast(pl.Float64).to_numpy() for part in circles]
        waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        return np.stack([times.year().cast(pl.Float64).to_numpy(), *waves], axis=1)

    def _read(self, column: polars.Series, what: str) -> polars.Series:
        """The times of new rows, which may be strings where training had times."""
        import polars as pl

        kind = column.dtype
        if is_time(kind):
            return _on_the_wall(column)
        if kind == pl.Null:
            return column.cast(pl.Datetime("us"))
        if kind not in (pl.String, pl.Categorical, pl.Enum):
            raise InputError(f"{what} {column.name!r} holds {kind.base_type()}, in training it held times")
        if self.layout is None:
            check_day_and_month(column, what)
        cells = _plain_cells(column)
        layout = self.layout or find_layout(column)
        times = None if layout is None else _parse(cells, layout)
        wrong = cells.is_not_null() if times is None else times.is_null() & cells.is_not_null()
        if wrong.any() or times is None:
            rows = wrong.arg_true().to_list()
            raise InputError(
                f"{what} {column.name!r} holds {column[rows[0]]!r} ({name_rows(rows)}), in training it held times"
                + ("" if self.layout is None else f" written as {self.layout}")
            )
        return times

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"layout": self.layout, "hours": self.hours}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Calendar:
        """Rebuild what `to_json` wrote."""
        layout = described["layout"]
        if layout is not None and layout not in _LAYOUTS:
            raise ValueError(f"times are written as {layout!r}, which is not one of {', '.join(_LAYOUTS)}")
        return cls(layout, bool(described["hours"]))


def find_calendar(column: polars.Series) -> Calendar | None:
    """The calendar of a column that holds times, or strings that are all times; None for any other column."""
    if is_time(column.dtype):
        layout, times = None, _on_the_wall(column)
    elif column.dtype in _string_types() and (layout := find_layout(column)) is not None:
        times = _parse(_plain_cells(column), layout)
    else:
        return None
    return Calendar(layout, bool((times != times.dt.truncate("1d")).any()))


def find_layout(column: polars.Series) -> str | None:
    """How the times of a column of strings are written, day first if that cannot be seen; None if some are no times.

    >>> import polars as pl
    >>> find_layout(pl.Series(["31.12.2024", None, ""])), find_layout(pl.Series(["12/31/2024 08:00"]))
    ('%d.%m.%Y', '%m/%d/%Y %H:%M')
    """
    cells = _plain_cells(column)
    first = cells.drop_nulls().head(1)
    if not len(first) or not _LOOKS_LIKE_A_TIME.fullmatch(first[0]):
        return None
    empty = cells.null_count()
    for layout in _LAYOUTS:
        # A first cell alone is soon tried; a later one may tell day and month apart.
        if _parse(first, layout).null_count() == 0 and _parse(cells, layout).null_count() == empty:
            return layout
    return None


def times_in_order(column: polars.Series, what: str) -> polars.Series | None:
    """The times of strings to order rows by; None if some are no times, or if their zones, which are not read, differ.

    Raises:
        InputError: Day first and month first are both possible, and order the rows differently.
    """
    import polars as pl

    layout = find_layout(column)
    if layout is None or column.cast(pl.String).str.strip_chars().str.extract(_ZONE_NAME).n_unique() > 1:
        return None
    cells = _plain_cells(column)
    times = _parse(cells, layout)
    swapped = _read_month_first(cells, layout)
    if swapped is not None and (times.rank("dense") != swapped.rank("dense")).any():
        raise InputError(
            f"{what} holds dates such as {column[0]!r}, each of which may be day first or month first, and the two "
            "order the rows differently: write dates as 2024-05-31"
        )
    return times


def check_day_and_month(column: polars.Series, what: str) -> None:
    """Refuse strings each of which is a date day first and another date month first.

    Raises:
        InputError: The message has such a date.
    """
    layout = find_layout(column) if column.dtype in _string_types() else None
    if layout is None:
        return
    cells = _plain_cells(column)
    swapped = _read_month_first(cells, layout)
    if swapped is None:
        return
    other = cells.filter((_parse(cells, layout) != swapped).fill_null(False))
    if len(other):
        raise InputError(
            f"{what} {column.name!r} holds dates such as {other[0]!r}, each of which may be day first or month first: "
            "write dates as 2024-05-31"
        )


def _read_month_first(cells: polars.Series, layout: str) -> polars.Series | None:
    """The times of strings with a layout of day first, read month first; None if that cannot be meant."""
    if not layout.startswith(("%d/", "%d-")):  # dots are never month first
        return None
    swapped = _parse(cells, f"%m{layout[2]}%d{layout[5:]}")
    return swapped if swapped.null_count() == cells.null_count() else None


def is_time(kind: Any) -> bool:
    """Whether a type of polars holds dates, with or without a time of day."""
    import polars as pl

    return kind == pl.Date or kind.base_type() == pl.Datetime


def _string_types() -> tuple[Any, ...]:
    import polars as pl

    return (pl.String, pl.Categorical, pl.Enum)


def _parse(cells: polars.Series, layout: str) -> polars.Series:
    """The times of strings; None where a cell is written otherwise."""
    return cells.str.to_datetime(layout, time_unit="us", strict=False)


def _plain_cells(column: polars.Series) -> polars.Series:
    """Strings without the zone and the "T" of ISO 8601; None where a cell is empty."""
    import polars as pl

    cells = column.cast(pl.String).str.strip_chars()
    return cells.set(cells == "", None).str.replace(_BETWEEN, "${1} ${2}").str.replace(_ZONE, "${1}")


def _on_the_wall(column: polars.Series) -> polars.Series:
    import polars as pl

    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    return column.dt.replace_time_zone(None)
