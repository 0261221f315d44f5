"""A table or an array a few thousand rows at a time, however large its file is."""

from __future__ import annotations

import gzip
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from consilience.data.files.frames import is_parquet, reading, separator
from consilience.data.files.table_columns import EMPTY_WORDS

if TYPE_CHECKING:
    import polars


def number_batches(path: Path, columns: Sequence[str], rows: int) -> Iterator[polars.DataFrame]:
    """Columns of numbers, `rows` at a time, the last batch shorter; empty cells are null.

    A CSV is read as 64-bit numbers; a cell that is none is an error.
    """
    import polars as pl

    if is_parquet(path):
        return _parquet_batches(path, columns, rows)
    return _csv_batches(path, columns, rows, dict.fromkeys(columns, pl.Float64), EMPTY_WORDS)


def string_batches(path: Path, column: str, rows: int) -> Iterator[polars.DataFrame]:
    """One column, `rows` at a time: of a CSV as it is written, of Parquet as it is stored."""
    import polars as pl

    if is_parquet(path):
        return _parquet_batches(path, [column], rows)
    return _csv_batches(path, [column], rows, {column: pl.String}, ())


def count_rows(path: Path) -> int | None:
    """The rows of a Parquet file, which says so itself; None of a CSV, which would have to be read."""
    import polars as pl

    if not is_parquet(path):
        return None
    return int(reading(path, lambda: pl.scan_parquet(path).select(pl.len()).collect()).item())


def array_batches(array: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """An array, `rows` at a time; of one that is mapped from disk, only these are read."""
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows])


def _parquet_batches(path: Path, columns: Sequence[str], rows: int) -> Iterator[polars.DataFrame]:
    import polars as pl

    # Slices, and not polars's own batches: these hold a whole row group, which may be the whole file.
    table = pl.scan_parquet(path).select(list(columns))
    for start in range(0, count_rows(path) or 0, rows):
        yield reading(path, table.slice(start, rows).collect)


def _csv_batches(
    path: Path, columns: Sequence[str], rows: int, schema: Mapping[str, Any], empty: Sequence[str]
) -> Iterator[polars.DataFrame]:
    import polars as pl

    def parse(text: bytes) -> polars.DataFrame:
        return pl.read_csv(
            io.BytesIO(text),
            separator=separator(path),
            columns=list(columns),
            schema_overrides=schema,
            null_values=list(empty),
        ).select(columns)

    left: polars.DataFrame | None = None
    for text in _blocks(path, rows):
        read = reading(path, partial(parse, text))
        # An empty rest would keep the memory of all the rows it was cut from.
        left = read if left is None or not len(left) else pl.concat([left, read], rechunk=True)
        while len(left) >= rows:  # a record may span lines, and a line may be blank: lines are not rows
            yield left[:rows]
            left = left[rows:]
    if left is not None and len(left):
        yield left


def _blocks(path: Path, lines: int) -> Iterator[bytes]:
    """The file's text, so many lines at a time, each with the header before it; never cut inside quotes."""
    with _open(path) as file:
        header = _whole_records(file, 1)
        while block := _whole_records(file, lines):
            yield header + block


def _whole_records(file: IO[bytes], lines: int) -> bytes:
    text = b"".join(itertools.islice(file, lines))
    while text.count(b'"') % 2 and (more := file.readline()):
        text += more
    return text


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]
