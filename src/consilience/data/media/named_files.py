"""The files that the cells of a table name, without decoding them: what a table's content is, beside its own file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.data.files.csv_text import plain_text, separator
from consilience.data.files.table_reading import format_of, is_parquet, read_header, reading
from consilience.data.files.tables import choose_columns, folder_of
from consilience.data.media.columns import FAMILIES, FILE_KINDS, ending_of, is_file, take_kinds

_FIRST_ROWS = 200  # a column none of whose first cells is a file is not searched for others


def named_files(table: Path, modalities: Any, kinds: Mapping[str, Any] | None = None) -> list[Path]:
    """The files that columns of modalities name, in the order of the columns and rows, each once.

    Args:
        table: A file that `load_data` reads; only tables name others.
        modalities: Modality → columns.
        kinds: Modality → kind, where it is declared.
    """
    import polars as pl

    if format_of(table) != "table" or not isinstance(modalities, Mapping):
        return []
    header, folder = read_header(table), str(folder_of(table))
    without, known = take_kinds(header, modalities, kinds)
    chosen = choose_columns(header, without, ())

    def cells(columns: list[str], rows: int | None = None) -> pl.DataFrame:
        if is_parquet(table):
            frame = pl.scan_parquet(table.absolute(), glob=False).select(columns)
            strings = [column for column, kind in frame.collect_schema().items() if kind == pl.String]
            frame = frame.select(strings)
            return (frame if rows is None else frame.head(rows)).collect()
        options: dict[str, Any] = {"columns": columns, "n_rows": rows, "infer_schema": False, "glob": False}
        return pl.read_csv(plain_text(table), separator=separator(table), **options)

    asked = [column for name, columns in chosen.items() if known.get(name) != "text" for column in columns]
    declared = {column for name, columns in chosen.items() if known.get(name) in FILE_KINDS for column in columns}
    if not asked:
        return []
    first = reading(table, lambda: cells(asked, _FIRST_ROWS))
    held = [column for column in first.columns if column in declared or any(_files(first[column].to_list(), folder))]
    if not held:
        return []
    whole = reading(table, lambda: cells(held))
    return [
        Path(file) for file in dict.fromkeys(file for name in held for file in _files(whole[name].to_list(), folder))
    ]


def _files(column: list[str | None], folder: str) -> list[str]:
    cells = (cell.strip() for cell in column if cell is not None)
    paths = (os.path.join(folder, cell) for cell in cells if ending_of(cell) in FAMILIES)
    return [path for path in paths if is_file(path)]
