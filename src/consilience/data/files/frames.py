"""CSV, TSV and Parquet as frames of columns, before anything is made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from consilience.core.errors import InputError
from consilience.data.files.table_columns import mend_numbers

if TYPE_CHECKING:
    import polars

_Read = TypeVar("_Read")
_TWICE = re.compile(r"_duplicated_\d+$")


def read_header(path: Path) -> list[str]:
    """The names of a table's columns."""
    import polars as pl

    if is_parquet(path):
        return list(reading(path, lambda: pl.read_parquet_schema(path)))
    names = reading(path, lambda: pl.read_csv(path, separator=separator(path), n_rows=0)).columns
    _check_separator(path, names)
    _check_names(path, names)
    return names


def read_frame(path: Path, columns: Sequence[str], strings: Sequence[str]) -> polars.DataFrame:
    """Some columns of a table; `strings` are those that are text even where they look like numbers."""
    import polars as pl

    if is_parquet(path):
        frame = reading(path, lambda: pl.read_parquet(path, columns=list(columns)))
    else:
        frame = _read_csv(path, columns, strings)
    if not len(frame):
        raise InputError(f"{path.name} has a header but no rows")
    return frame


def _read_csv(path: Path, columns: Sequence[str], strings: Sequence[str]) -> polars.DataFrame:
    import polars as pl

    frame = reading(
        path,
        lambda: pl.read_csv(
            path,
            separator=separator(path),
            columns=list(columns),
            schema_overrides=dict.fromkeys(strings, pl.String),
            infer_schema_length=None,  # a column of whole numbers may turn fractional in the last row
        ),
    )
    declared = set(strings)
    mended = [
        mend_numbers(frame[column])
        for column, kind in frame.schema.items()
        if kind == pl.String and column not in declared
    ]
    return frame.with_columns(mended)


def _check_separator(path: Path, names: Sequence[str]) -> None:
    """Refuse a text table read as one column whose name is plainly a row of names, as spreadsheets export in Europe."""
    expected = separator(path)
    others = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
    if len(names) != 1 or not (found := [mark for mark in others if mark != expected and mark in names[0]]):
        return
    raise InputError(
        f"{path.name} seems to have {others[found[0]]} between its cells, where {path.suffix} has {others[expected]} "
        f"and decimal points: save it so, or as .parquet, with polars.read_csv(path, separator={found[0]!r})"
    )


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse a text table whose first line is plainly a row: all numbers, but not, as classes are, whole and apart."""
    cells = [_TWICE.sub("", name) for name in names]  # polars tells names apart that are written alike
    numbers = [one for one in map(_number, cells) if one is not None]
    apart = len(set(numbers)) == len(numbers) and all(one.is_integer() for one in numbers)
    if numbers and len(numbers) == len(names) and not apart:
        shown = ", ".join(cells[:3]) + (", …" if len(cells) > 3 else "")
        raise InputError(
            f"{path.name}: its first line holds numbers ({shown}) where a table has the names of its columns: put a "
            "line of names before it, or, where these are names, give them a letter (class_0.5)"
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def reading(path: Path, read: Callable[[], _Read]) -> _Read:
    """What `read` returns; what polars says against the file is one line that names it."""
    import polars as pl

    try:
        return read()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{path.name} cannot be read as a table: {first}") from error


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet; otherwise it is text."""
    return path.name.lower().endswith(".parquet")


def separator(path: Path) -> str:
    """What stands between the cells of a text table."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","
