"""Shards of a table: Parquet or Arrow files, read in chunks and encoded as one table would be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.chunked_rows import Chunks, Column
from consilience.core.errors import InputError, unknown_name
from consilience.core.modalities import Modality
from consilience.core.samples import Samples
from consilience.core.targets import guess_task
from consilience.data.dataset import DataSet, SplitFields
from consilience.data.files.cell_fills import Fill
from consilience.data.files.column_encoding import Encoding, depends_on_split
from consilience.data.files.column_reading import Columns, read_columns, read_known_columns
from consilience.data.files.column_warnings import warn_of_gaps, warn_of_left_out, warn_of_wide
from consilience.data.files.file_options import FileOptions
from consilience.data.files.split_columns import read_rule
from consilience.data.files.tables import choose_columns, nearest, split_kinds
from consilience.data.files.target_column import read_target
from consilience.data.media.columns import guess_texts, take_kinds
from consilience.data.shards.chunk_sizes import Piece, settle_buffer
from consilience.data.shards.frames import TableFiles
from consilience.data.shards.learning import SAMPLED, learn_encodings
from consilience.data.shards.locations import is_url
from consilience.data.splits import settle_split

if TYPE_CHECKING:
    import polars

_LEARNED_BYTES = 2**26  # read at once while encodings are learned
_LOOKED_AT = 16  # shards whose first rows show what their columns hold


class TableShards:
    """A `ChunkSource` of Parquet or Arrow files."""

    def __init__(self, files: TableFiles, encodings: Mapping[str, Encoding], most: int):
        """`most`: rows of a chunk."""
        self.files, self.encodings = files, dict(encodings)
        self.columns = {name: _column(encoding) for name, encoding in encodings.items()}
        self.pieces, self.starts = files.cut(most)

    def read(self, chunk: int, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Read and encode some rows of one shard."""
        chosen = {name: self.encodings[name] for name in names}
        wanted = list(dict.fromkeys(column for encoding in chosen.values() for column in encoding.columns))
        frame = self.files.read(self.pieces[chunk], wanted)
        return {name: self._encode(name, frame, encoding) for name, encoding in chosen.items()}

    def _encode(self, name: str, frame: polars.DataFrame, encoding: Encoding) -> np.ndarray:
        values = encoding.encode(read_known_columns(name, frame, encoding), "the shards were changed")
        return values.astype(self.columns[name].dtype, copy=False)


def load_table_shards(
    found: Sequence[str], name: str, modalities: Any, options: FileOptions, buffer: int | None
) -> DataSet:
    """A data set of Parquet or Arrow shards; the options are those of `load_data`.

    Targets, split, groups and times are read into memory first. A second reading learns categories, fills, and which
    rows lack a modality; a third, by whatever trains, the standardisation.
    """
    files = TableFiles(found, name)
    header, target, split = list(files.schema), options.target, options.split
    if target is None:
        raise InputError(f"{name}: shards need a target: name the column to predict with target= (--target)")
    if options.media or options.broken != "error":
        raise InputError(f"{name}: media and broken are for tables in one file, whose cells may be paths")
    called = {"target": target, "split": split, "group": options.group, "time": options.time}
    for what, column in called.items():
        if column is not None and column not in header:
            known = nearest(column, header) or header[:20]
            raise unknown_name(f"{what} column", column, known, f"It was looked for in {name}")
    reserved = {column: what for what, column in called.items() if column is not None}
    if len(reserved) < sum(column is not None for column in called.values()):
        raise InputError(f"{name}: target, split, group and time must be different columns, got {called}")
    whole = _read_whole(files, list(reserved))
    y = read_target(whole[target], words=options.task == "classification")
    task = options.task or guess_task(y, f"target column {target!r}")
    rule = read_rule({each: whole[each] for each in (options.group, options.time) if each is not None}, options)
    parts = None if split is None else whole[split].to_list()
    drawn = settle_split(parts, y, task, seed=options.seed, where=f"split column {split!r}", rule=rule)
    modalities, kinds = take_kinds(header, modalities, options.kinds)
    chosen = choose_columns(header, modalities, reserved)
    kinds, column_kinds = split_kinds(chosen, kinds)
    if others := {each: kind for each, kind in kinds.items() if kind not in ("text", "vector")}:
        raise InputError(f"{name}: modalities of shards are of kind vector or text, got {others}")
    wanted = list(dict.fromkeys(column for columns in chosen.values() for column in columns))
    first = _first_rows(files, wanted)
    texts = [each for each in chosen if kinds.get(each) == "text"]
    texts += guess_texts(chosen, kinds, column_kinds, first)
    read = {
        each: read_columns(each, first.select(columns), each in texts, kinds=column_kinds)
        for each, columns in chosen.items()
    }
    fill: Fill = options.fill or "indicator"
    make = partial(_make_samples, files, read, y, fill, target, buffer)
    made = make(drawn.parts)
    encodings = {each: Encoding.from_json(entry) for each, entry in made.reading["modalities"].items()}
    table = Path(name)
    warn_of_left_out(table, read)
    if options.fill is None:
        warn_of_gaps(table, made.extra["filled"], "fill='none' (--fill none) refuses such rows")
    warn_of_wide(table, encodings, {**kinds, **column_kinds})
    remake = make if any(depends_on_split(columns, fill) for columns in read.values()) else None
    return DataSet(name, made.samples, task, *drawn, extra=made.extra, remake=remake, reading=made.reading, rule=rule)


def _make_samples(
    files: TableFiles,
    read: Mapping[str, Columns],
    y: np.ndarray,
    fill: Fill,
    target: str,
    buffer: int | None,
    split: np.ndarray,
) -> SplitFields:
    wanted = [column for columns in read.values() for column in _read_of(columns)]
    learned = learn_encodings(_in_parts(files, wanted), read, split == "train", fill, files.name)
    most, rows = settle_buffer({name: _column(encoding) for name, encoding in learned.encodings.items()}, buffer)
    if is_url(files.places[0]) and max(files.rows) > rows:
        raise InputError(
            f"{files.name}: a shard behind a URL is read whole, and one has {max(files.rows)} rows, more than the "
            f"buffer of {rows}: write smaller shards, or give a larger buffer"
        )
    chunks = Chunks(TableShards(files, learned.encodings, most), rows)
    modalities = {
        name: Modality(name, encoding.kind, chunks.columns[name].shape) for name, encoding in learned.encodings.items()
    }
    everything = np.arange(chunks.rows)
    samples = Samples(modalities, chunks.samples(), learned.present, {}, None, None, everything)
    features = {
        name: [name] if encoding.kind == "text" else encoding.features for name, encoding in learned.encodings.items()
    }
    reading = {
        "format": "table",
        "target": {"name": target, "type": "string" if y.dtype.kind == "U" else "number"},
        "modalities": {name: encoding.to_json() for name, encoding in learned.encodings.items()},
    }
    extra = {"columns": features, **({"filled": learned.filled} if fill != "none" else {})}
    return SplitFields(Samples.of(samples, y=y), extra, reading)


def _column(encoding: Encoding) -> Column:
    if encoding.kind == "text":
        return Column((), np.dtype(object))
    return Column((len(encoding.features),), np.dtype(np.float64 if encoding.wide else np.float32))


def _read_of(columns: Columns) -> list[str]:
    return [*columns.number_names, *columns.strings, *columns.calendars]


def _read_whole(files: TableFiles, columns: Sequence[str]) -> polars.DataFrame:
    """Some columns of all rows, in memory."""
    import polars as pl

    return pl.concat([files.read(Piece(shard, 0, rows), columns) for shard, rows in enumerate(files.rows)])


def _first_rows(files: TableFiles, columns: Sequence[str]) -> polars.DataFrame:
    """All rows if they are few; otherwise the first ones of shards that are evenly spread."""
    import polars as pl

    if sum(files.rows) <= SAMPLED:
        return _read_whole(files, columns)
    shards = np.unique(np.linspace(0, len(files.rows) - 1, _LOOKED_AT).round().astype(int)).tolist()
    most = math.ceil(SAMPLED / len(shards))
    return pl.concat([files.read(Piece(shard, 0, min(most, files.rows[shard])), columns) for shard in shards])


def _in_parts(files: TableFiles, columns: Sequence[str]) -> Iterator[polars.DataFrame]:
    for piece in files.cut(max(1, _LEARNED_BYTES // (8 * len(columns))))[0]:
        yield files.read(piece, columns)
