"""Tables as polars frames: CSV, TSV and Parquet files, and pandas and polars DataFrames.

A column of a DataFrame or a Parquet file has the type that it is stored with. The cells of a CSV are text, so the types
of its columns follow from the cells.
"""

from __future__ import annotations

import difflib
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError, MissingDataError
from consilience.core.modalities import is_missing
from consilience.data.files.csv_columns import EMPTY_WORDS, read_csv
from consilience.data.files.csv_text import (
    check_row_widths,
    csv_header,
    first_record,
    has_short_row,
    separator,
    text_blocks,
)
from consilience.data.files.damaged_files import reading
from consilience.data.files.parquet_trial import try_parquet
from consilience.data.files.size_limits import check_unpacked

if TYPE_CHECKING:
    import polars

Format = Literal["table", "arrays", "matlab"]
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


def format_of(path: Path) -> Format:
    """Which reader serves a path.

    Raises:
        InputError: The ending is unknown.

    Example:
        >>> format_of(Path("sensors.csv.gz")), format_of(Path("views.mat"))
        ('table', 'matlab')
    """
    name = path.name.lower()
    if name.endswith(TABLES):
        return "table"
    if name.endswith(".mat"):
        return "matlab"
    if path.is_dir() or name.endswith(".npz"):
        return "arrays"
    raise InputError(
        f"the format of {path.name!r} is unknown: load_data reads {', '.join(TABLES)}, .npz, .mat and folders of .npy"
    )


def no_such_path(path: Path) -> MissingDataError:
    """The error for a path that does not exist, with the most similar name in its folder."""
    if not path.parent.is_dir():
        return MissingDataError(f"there is no file or folder {str(path)!r}: the folder {path.parent} does not exist")
    similar = difflib.get_close_matches(path.name, [file.name for file in path.parent.iterdir()], n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    return MissingDataError(f"there is no file or folder {str(path)!r}{hint}")


def is_frame(table: Any) -> bool:
    """Whether a table is a pandas or polars DataFrame (recognised without importing either)."""
    return hasattr(table, "columns") and hasattr(table, "to_numpy")


def table_name(table: Any) -> str:
    """What error messages call a table: the name of its file, or "the DataFrame"."""
    return table.name if isinstance(table, Path) else "the DataFrame"


def read_header(table: Path | Any) -> list[str]:
    """The names of the columns of a file or DataFrame."""
    import polars as pl

    if not isinstance(table, Path):
        return _column_names(table)
    if is_parquet(table):
        return list(parquet_schema(table))
    names = reading(table, lambda: csv_header(table))
    _check_separator(table, names)
    _check_first_line(table, names)
    _check_duplicates(table.name, names)
    # The names that polars gives: columns without a name get one.
    return reading(table, lambda: pl.read_csv(io.BytesIO(first_record(table)), separator=separator(table))).columns


def parquet_schema(path: Path) -> Mapping[str, Any]:
    """Column → type of a Parquet file."""
    import polars as pl

    def read() -> Mapping[str, Any]:
        with path.open("rb") as file:  # polars expands a path
            return pl.read_parquet_schema(file)

    return reading(path, read)


def read_table(table: Path | Any, columns: Sequence[str], strings: Sequence[str] = ()) -> polars.DataFrame:
    """Some columns of a file or DataFrame.

    Args:
        table: The path of a CSV, TSV or Parquet file, or a pandas or polars DataFrame.
        columns: The names of the columns to read.
        strings: Those columns of a CSV that are strings even where they look like numbers.
    """
    import polars as pl

    _check_expanded(table, columns)
    if not isinstance(table, Path):
        frame = _from_frame(table, columns)
    elif is_parquet(table):
        _check_parquet(table, columns)
        frame = reading(table, lambda: pl.read_parquet(table.absolute(), columns=list(columns), glob=False))
    else:
        frame = read_csv(table, columns, strings)
    if not len(frame):
        raise InputError(f"{table_name(table)} has a header but no rows")
    return frame


def number_batches(path: Path, columns: Sequence[str], rows: int) -> Iterator[polars.DataFrame]:
    """Columns of numbers of a file, `rows` at a time, however large it is; empty cells are null.

    A CSV is read as 64-bit numbers; a cell that is not a number is an error.
    """
    import polars as pl

    _check_expanded(path, columns)
    if is_parquet(path):
        return _parquet_batches(path, columns, rows)
    return _csv_batches(path, columns, rows, dict.fromkeys(columns, pl.Float64), EMPTY_WORDS)


def string_batches(path: Path, column: str, rows: int) -> Iterator[polars.DataFrame]:
    """One column of a file, `rows` at a time: of a CSV as strings, of Parquet as it is stored."""
    import polars as pl

    _check_expanded(path, [column])
    if is_parquet(path):
        return _parquet_batches(path, [column], rows)
    return _csv_batches(path, [column], rows, {column: pl.String}, ())


def count_rows(path: Path) -> int | None:
    """The number of rows of a Parquet file; None for a CSV, which would have to be read."""
    import polars as pl

    if not is_parquet(path):
        return None
    return int(reading(path, lambda: _scan_parquet(path).select(pl.len()).collect()).item())


def is_parquet(path: Path) -> bool:
    """Whether a table is Parquet; otherwise it is text."""
    return path.name.lower().endswith(".parquet")


def _column_names(frame: Any) -> list[str]:
    """Unique strings; columns without a name get one, as polars names those of a CSV."""
    names = list(map(str, frame.columns))
    _check_duplicates("the DataFrame", names)
    blank = itertools.count(-1)
    return [name or (f"_duplicated_{count}" if (count := next(blank)) >= 0 else "") for name in names]


def _check_duplicates(table: str, names: Sequence[str]) -> None:
    """Refuse two columns of the same name: nothing says which of them is meant."""
    if twice := [name for name, count in Counter(names).items() if count > 1 and name]:
        raise InputError(
            f"{table} has {names.count(twice[0])} columns with the name {twice[0]!r}: rename or remove all but one"
        )


def _check_expanded(table: Path | Any, columns: Sequence[str]) -> None:
    """Refuse names that polars expands: for "*" it reads all columns, for "^…$" those that the expression matches."""
    for name in columns:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise InputError(f"{table_name(table)}: other columns would be read for {name!r}: rename this column")


def _from_frame(frame: Any, columns: Sequence[str]) -> polars.DataFrame:
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame.select(columns)
    places = {name: place for place, name in enumerate(_column_names(frame))}
    return pl.DataFrame([_from_pandas(name, frame.iloc[:, places[name]]) for name in columns])


def _from_pandas(name: str, column: Any) -> polars.Series:
    """A column of pandas as polars holds the same cells: None, NaN and NA are empty, categories are their values."""
    import polars as pl

    values = column.to_numpy()
    if values.dtype.kind in "biuf":
        return pl.Series(name, values)
    cells = [None if is_missing(cell) or type(cell).__name__ == "NaTType" else cell for cell in column.tolist()]
    cells = _in_one_zone(name, cells)
    try:
        return pl.Series(name, cells)
    except (TypeError, ValueError):
        if all(cell is None or isinstance(cell, Real) for cell in cells):
            return pl.Series(name, [None if cell is None else float(cell) for cell in cells])
    types = sorted({type(cell).__name__ for cell in cells if cell is not None})
    raise InputError(f"column {name!r} holds cells of different types ({', '.join(types)}): convert them to one type")


def _in_one_zone(name: str, cells: list[Any]) -> list[Any]:
    """Times of one fixed offset as the clock on the wall shows them, which polars would move to UTC."""
    zones = {str(cell.tzinfo): cell.tzinfo for cell in cells if isinstance(cell, datetime)}
    if len(zones) > 1:
        raise InputError(
            f"column {name!r} holds times of different zones ({', '.join(zones)}): convert them to one, or store them "
            "without a zone"
        )
    if any(zone is not None and zone.utcoffset(None) is not None for zone in zones.values()):
        return [cell.replace(tzinfo=None) if isinstance(cell, datetime) else cell for cell in cells]
    return cells


def _check_separator(path: Path, names: Sequence[str]) -> None:
    """Refuse a text table whose only column name holds another separator, as spreadsheets export it in Europe."""
    expected = separator(path)
    others = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
    if len(names) != 1 or not (found := [mark for mark in others if mark != expected and mark in names[0]]):
        return
    # such a spreadsheet writes decimal commas, with which polars would read strings
    options = f"separator={found[0]!r}" + (", decimal_comma=True" if found[0] == ";" else "")
    raise InputError(
        f"{path.name} seems to have {others[found[0]]} between its cells; {path.suffix} needs {others[expected]} and "
        f"decimal points. Save it that way, or read it with polars.read_csv(path, {options}) and save it as .parquet"
    )


def _check_first_line(path: Path, names: Sequence[str]) -> None:
    """Refuse a text table whose first line holds numbers, unless they are whole and different, as classes are."""
    numbers = [number for number in map(_number, names) if number is not None]
    names_of_classes = len(set(numbers)) == len(numbers) and all(number.is_integer() for number in numbers)
    if numbers and len(numbers) == len(names) and not names_of_classes:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        raise InputError(
            f"{path.name}: the first line holds numbers ({shown}) instead of column names: insert a line of names "
            "before it, or, if these are names, add a letter (class_0.5)"
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _scan_parquet(path: Path) -> polars.LazyFrame:
    import polars as pl

    return pl.scan_parquet(path.absolute(), glob=False)


def _check_parquet(path: Path, columns: Sequence[str]) -> None:
    """Refuse a file whose columns would unpack to far more than its size, or would end the process."""
    # Equal values take no room in Parquet, compressed or not.
    frame = "pass polars.read_parquet(path) instead of the path, or save it as CSV"
    check_unpacked(path.name, 8 * len(columns) * (count_rows(path) or 0), path.stat().st_size, frame)
    try_parquet(path, columns)


def _parquet_batches(path: Path, columns: Sequence[str], rows: int) -> Iterator[polars.DataFrame]:

    # Slices, since a batch of polars holds a whole row group, which may be the whole file.
    table = _scan_parquet(path).select(list(columns))
    _check_parquet(path, columns)
    for start in range(0, count_rows(path) or 0, rows):
        yield reading(path, table.slice(start, rows).collect)


def _csv_batches(
    path: Path, columns: Sequence[str], rows: int, schema: Mapping[str, Any], empty: Sequence[str]
) -> Iterator[polars.DataFrame]:
    import polars as pl

    # All columns are read: asked for some, polars drops the last cells of a row that has more cells than the header.
    every = reading(path, lambda: pl.read_csv(io.BytesIO(first_record(path)), separator=separator(path))).columns
    types = {**dict.fromkeys(every, pl.String), **schema}

    def parse(text: bytes) -> polars.DataFrame:
        frame = pl.read_csv(
            io.BytesIO(text), separator=separator(path), schema_overrides=types, null_values=list(empty)
        )
        if frame[every[-1]].null_count() and has_short_row(text, separator(path), len(every)):
            check_row_widths(path, len(every))
        return frame.select(columns)

    left: polars.DataFrame | None = None
    blocks = text_blocks(path, rows)
    while (text := reading(path, partial(next, blocks, None))) is not None:
        read = reading(path, partial(parse, text))
        # An empty remainder would keep the memory of all the rows it was cut from.
        left = read if left is None or not len(left) else pl.concat([left, read], rechunk=True)
        while len(left) >= rows:  # a record may span lines, and a line may be blank: lines are not rows
            yield left[:rows]
            left = left[rows:]
    if left is not None and len(left):
        yield left
