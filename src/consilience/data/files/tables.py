"""The user's tables: CSV, TSV or Parquet, with a target column and column globs for each modality."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError, unknown_name
from consilience.core.samples import Kind, Samples
from consilience.core.targets import TaskKind, infer_task_kind
from consilience.data.dataset import DataSet, Made, Remake
from consilience.data.files.cell_filling import check_fill
from consilience.data.files.column_encoding import depends_on_split, learn_encoding
from consilience.data.files.column_globs import choose_columns, listed, nearest
from consilience.data.files.frames import read_frame, read_header
from consilience.data.files.table_columns import Columns, read_columns
from consilience.data.files.target_column import read_target
from consilience.data.splits import settle_split

_ADVICE = "fill single cells with fill='median', 'mean' or 'zero' (--fill median), or drop the rows"


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
    header = read_header(path)
    if target is None:
        raise InputError(f"a table needs target= (--target), the column to predict; the columns are {listed(header)}")
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
    frame = read_frame(path, wanted, strings=[chosen[name][0] for name in texts])
    y = read_target(frame[target])
    task = task or infer_task_kind(y)
    words = None if split is None else frame[split].to_list()
    drawn = settle_split(words, y, task, seed=seed, where=f"split column {split!r}")
    read = {name: read_columns(name, frame.select(columns), name in texts) for name, columns in chosen.items()}
    table = _Table(target, read, y, fill)
    made = table.make(drawn.parts)
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    return DataSet(name, made.samples, task, *drawn, extra=made.extra, remake=table.remake, reading=made.reading)


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

    def __init__(self, target: str, modalities: Mapping[str, Columns], y: np.ndarray, fill: str | None):
        self.target, self.modalities, self.y, self.fill = target, dict(modalities), y, fill

    def make(self, split: np.ndarray) -> Made:
        """Samples, as `extra["columns"]` what each feature of each modality is called, and how they were encoded."""
        train = split == "train"
        values, names, encodings = {}, {}, {}
        for name, columns in self.modalities.items():
            encoding = learn_encoding(columns, train, self.fill)
            values[name] = encoding.encode(columns, _ADVICE)
            names[name] = [name] if columns.kind == "text" else encoding.features
            encodings[name] = encoding.to_json()
        kinds: dict[str, Kind] = {name: columns.kind for name, columns in self.modalities.items()}
        target = {"name": self.target, "type": "string" if self.y.dtype.kind == "U" else "number"}
        reading = {"format": "table", "target": target, "modalities": encodings}
        return Made(Samples.of(values, self.y, kinds=kinds), {"columns": names}, reading)

    @property
    def remake(self) -> Remake | None:
        """`make` where another split makes other values, now or for new samples; else None."""
        return self.make if any(depends_on_split(one, self.fill) for one in self.modalities.values()) else None
