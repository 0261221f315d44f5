"""The user's tables: CSV, TSV or Parquet, with a target column and column globs for each modality."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.data.dataset import DataSet, Remake
from consilience.data.files.columns import Columns, read_columns
from consilience.data.files.filling import check_fill
from consilience.data.files.globs import choose_columns, listed, nearest
from consilience.data.splits import settle_split
from consilience.errors import InputError, UnsupportedError, name_rows, unknown_name
from consilience.samples import Kind, Samples
from consilience.targets import TaskKind, infer_task_kind

if TYPE_CHECKING:
    import polars

# Words for an empty cell in a CSV column of numbers. In a column of strings they are strings: "NA" may be a place.
_EMPTY_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL")


def load_table(
    path: Path,
    *,
    target: str | None = None,
    modalities: Any = None,
    kinds: Mapping[str, Kind] | None = None,
    split: str | None = None,
    fill: str | None = None,
    task: TaskKind | None = None,
    seed: int = 0,
) -> DataSet:
    """A target column, and for each modality column names or globs; categories and fill are fitted on the train rows.

    The target and the split column never enter a modality, whatever the globs match.
    """
    if fill is not None:
        check_fill(fill)
    header = _read_header(path)
    if target is None:
        raise InputError(f"a table needs target=, the column to predict; the columns are {listed(header)}")
    reserved = [target] if split is None else [target, split]
    for column, what in zip(reserved, ("target column", "split column")):
        if column not in header:
            known = nearest(column, header) or header[:20]
            raise unknown_name(what, column, known, f"It was looked for in {path.name}")
    if target == split:
        raise InputError(f"column {target!r} cannot be both the target and the split")
    chosen = choose_columns(header, modalities, reserved)
    texts = _find_texts(chosen, kinds or {})
    wanted = [*reserved, *(column for columns in chosen.values() for column in columns)]
    frame = _read_frame(path, wanted, strings=[chosen[name][0] for name in texts])
    if not len(frame):
        raise InputError(f"{path.name} has a header but no rows")
    y = _read_target(frame[target])
    task = task or infer_task_kind(y)
    words = None if split is None else frame[split].to_list()
    drawn = settle_split(words, y, task, seed=seed, where=f"split column {split!r}")
    read = {name: read_columns(name, frame.select(columns), name in texts) for name, columns in chosen.items()}
    table = _Table(read, y, fill)
    samples, extra = table.make(drawn.parts)
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return DataSet(name, samples, task, *drawn, extra=extra, remake=table.remake)


def _find_texts(chosen: Mapping[str, list[str]], kinds: Mapping[str, Kind]) -> list[str]:
    for name, kind in kinds.items():
        if name not in chosen:
            raise unknown_name("modality", name, chosen, "It was given in kinds")
        if kind not in ("vector", "text"):
            raise UnsupportedError(f"modality {name!r}: a table holds kinds vector and text, got kind {kind!r}")
        if kind == "text" and len(chosen[name]) != 1:
            raise InputError(f"modality {name!r} of kind text must be one column, got {listed(chosen[name])}")
    return [name for name in chosen if kinds.get(name) == "text"]


class _Table:
    """A table's modalities as read, and how to make samples of them once the train rows are known."""

    def __init__(self, modalities: Mapping[str, Columns], y: np.ndarray, fill: str | None):
        self.modalities, self.y, self.fill = dict(modalities), y, fill

    def make(self, split: np.ndarray) -> tuple[Samples, dict[str, Any]]:
        """Samples, and as `extra["columns"]` what each feature of each modality is called."""
        train = split == "train"
        values, names = {}, {}
        for name, columns in self.modalities.items():
            values[name], names[name] = columns.encode(train, self.fill)
        kinds: dict[str, Kind] = {name: columns.kind for name, columns in self.modalities.items()}
        return Samples.of(values, self.y, kinds=kinds), {"columns": names}

    @property
    def remake(self) -> Remake | None:
        """`make` where another split makes other values, else None."""
        return self.make if any(one.fitted(self.fill) for one in self.modalities.values()) else None


def _read_header(path: Path) -> list[str]:
    import polars as pl

    if path.name.lower().endswith(".parquet"):
        return list(_reading(path, lambda: pl.read_parquet_schema(path)))
    return _reading(path, lambda: pl.read_csv(path, separator=_separator(path), n_rows=0)).columns


def _read_frame(path: Path, columns: list[str], strings: list[str]) -> polars.DataFrame:
    import polars as pl

    if path.name.lower().endswith(".parquet"):
        return _reading(path, lambda: pl.read_parquet(path, columns=columns))
    frame = _reading(
        path,
        lambda: pl.read_csv(
            path,
            separator=_separator(path),
            columns=columns,
            schema_overrides=dict.fromkeys(strings, pl.String),
            infer_schema_length=None,  # a column of whole numbers may turn fractional in the last row
        ),
    )
    mended = [
        _mend_numbers(frame[column])
        for column, kind in frame.schema.items()
        if kind == pl.String and column not in strings
    ]
    return frame.with_columns(mended)


def _mend_numbers(column: polars.Series) -> polars.Series:
    """Turn a column of numbers with "NA" among them, which polars reads as strings, into numbers."""
    import polars as pl

    given = column.set(column.is_in(_EMPTY_WORDS).fill_null(False), None)
    numbers = given.cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == given.null_count() < len(column) else column


def _reading(path: Path, read: Any) -> Any:
    import polars as pl

    try:
        return read()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{path.name} cannot be read as a table: {first}") from error


def _separator(path: Path) -> str:
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _read_target(column: polars.Series) -> np.ndarray:
    import polars as pl

    empty = column.is_null()
    if column.dtype.is_float():
        empty = empty | column.is_nan()
    if empty.any():
        rows = empty.arg_true().to_list()
        raise InputError(f"target column {column.name!r} is empty in {name_rows(rows)}: drop these rows")
    if column.dtype.is_decimal():
        return column.cast(pl.Float64).to_numpy()
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.to_numpy()
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return np.array(column.cast(pl.String).to_list())
    raise InputError(f"target column {column.name!r} holds {column.dtype}: use numbers, strings or booleans")
