"""The columns of CSV and TSV files: their types, which follow from the cells, and cells that would be read wrongly."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.core.errors import InputError, name_rows
from consilience.data.files.csv_text import check_row_widths, check_short_rows, first_record, plain_text, separator
from consilience.data.files.damaged_files import reading

if TYPE_CHECKING:
    import polars

# Words for an empty cell in a CSV column of numbers. In a column of strings they are strings: "NA" may be a place.
EMPTY_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL")
# Up to this share of cells that are no numbers, a column is one of numbers with mistakes in it.
_MISTAKES_SHARE = 0.1
_LARGEST_WHOLE = 2.0**53  # 64-bit floats hold every whole number up to it
# Rows whose cells say what a column holds. Where a later cell does not fit, all cells are looked at.
_SAMPLE = 2000


def read_csv(path: Path, columns: Sequence[str], strings: Sequence[str]) -> polars.DataFrame:
    """Some columns of a text table; those named in `strings` are strings even where they look like numbers."""
    import polars as pl

    text = plain_text(path)
    every = reading(path, lambda: pl.read_csv(io.BytesIO(first_record(path)), separator=separator(path))).columns
    unread = set(every).difference(columns)

    def read(wanted: Sequence[str], rows: int | None) -> polars.DataFrame:
        """Read columns whose types follow from so many rows; None: from all, with a pass of their own."""
        # Of all columns: asked for some, polars drops the last cells of a row that has more cells than the header.
        plain = {name: pl.String for name in every if name in strings or name in unread or name not in wanted}
        return pl.read_csv(
            text, glob=False, separator=separator(path), schema_overrides=plain, infer_schema_length=rows
        ).select(wanted)

    last = every[-1]  # its cells are empty where a line is cut off
    try:
        frame = reading(path, lambda: _read_typed(read, [*dict.fromkeys([*columns, last])], {*strings, *unread}))
    except InputError:
        check_row_widths(path, len(every))  # says which row has too many cells, if any
        raise
    if frame[last].null_count():
        check_short_rows(path, len(every))
    frame = frame.select(columns)
    floats = frame.select(pl.col(pl.Float64).abs().fill_nan(None).max())
    for name, largest in zip(floats.columns, floats.row(0) if floats.width else ()):
        if largest is not None and largest > _LARGEST_WHOLE:
            _check_whole_cells(path, frame[name])
    parsed = [
        _parse_numbers(frame[name]) for name, kind in frame.schema.items() if kind == pl.String and name not in strings
    ]
    return frame.with_columns(parsed)


def _read_typed(
    read: Callable[[Sequence[str], int | None], polars.DataFrame], columns: Sequence[str], strings: set[str]
) -> polars.DataFrame:
    """The columns with the types that all of their cells have together, as they follow from the first rows.

    Looking at every cell before reading it takes several times as long as reading. The types of the first rows are
    wrong where a later cell cannot be parsed, as in a column of whole numbers that turns fractional, or where the first
    rows are empty.
    """
    import polars as pl

    try:
        frame = read(columns, _SAMPLE)
    except Exception:  # whatever is wrong with the file is found again
        return read(columns, None)
    # Polars skips empty lines, so the rows that it has looked at may be fewer than the sample.
    first = frame.head(_SAMPLE // 2)
    empty = [
        name
        for name, kind in frame.schema.items()
        if kind == pl.String and name not in strings and not (first[name].str.strip_chars() != "").any()
    ]
    if not empty:
        return frame
    known = read(empty, None)
    return frame.with_columns(known) if len(known) == len(frame) else read(columns, None)


def _check_whole_cells(path: Path, column: polars.Series) -> None:
    """Refuse a column of floats that were different whole numbers in the text, too long for any integer."""
    import polars as pl

    text = reading(
        path,
        lambda: pl.read_csv(
            plain_text(path), glob=False, separator=separator(path), columns=[column.name], infer_schema=False
        ),
    )
    whole = text.to_series().filter(column.abs() > _LARGEST_WHOLE).drop_nulls()
    whole = whole.filter(whole.str.contains(r"^\s*[+-]?\d+\s*$"))
    merged = pl.DataFrame({"text": whole, "number": whole.str.strip_chars().cast(pl.Float64)}).unique("text")
    twice = merged.filter(merged["number"].is_duplicated())
    if len(twice):
        raise InputError(
            f"column {column.name!r}: 64-bit floats merge {twice['text'][0]!r} and {twice['text'][1]!r}: write a "
            "letter before them if they are names, or subtract an offset"
        )


def _parse_numbers(column: polars.Series) -> polars.Series:
    """A CSV column of numbers with "NA" among them, which polars reads as strings, as numbers.

    A column of strings is returned as it is. A few strings among many numbers are no categories: they are an error.
    """
    import polars as pl

    cells = column.set((column.is_in(EMPTY_WORDS) | (column.str.strip_chars() == "")).fill_null(False), None)
    numbers = cells.str.strip_chars().cast(pl.Float64, strict=False)
    if numbers.null_count() == cells.null_count() < len(column):
        return numbers
    _check_decimal_commas(column.name, cells)
    mistakes = (numbers.is_null() & cells.is_not_null()).arg_true().to_list()
    if 0 < len(mistakes) <= _MISTAKES_SHARE * (len(cells) - cells.null_count()):
        raise InputError(
            f"column {column.name!r} holds numbers but for {cells[mistakes[0]]!r} in {name_rows(mistakes)} (counted "
            "from 0): correct these cells, or leave them empty"
        )
    return column


def _check_decimal_commas(name: str, cells: polars.Series) -> None:
    """Refuse a column of strings of which nearly all are numbers once their commas are points."""
    import polars as pl

    known = cells.drop_nulls()
    with_comma = known.str.contains(",", literal=True)
    if not with_comma.any():
        return
    numbers = known.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    if numbers.null_count() > _MISTAKES_SHARE * len(known):
        return
    shown = known.filter(with_comma)[0]
    raise InputError(
        f"column {name!r} holds numbers with commas such as {shown!r}: save it with decimal points and without commas "
        "between thousands, or pass polars.read_csv(path, decimal_comma=True). If they are no numbers, pass a "
        "DataFrame in which the column holds strings"
    )
