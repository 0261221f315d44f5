"""Samples from a table: which columns make up which modality, and the same reading of new rows.

A table is the path of a CSV, TSV or Parquet file, or a pandas or polars DataFrame.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np

from consilience.core.errors import InputError, UnknownNameError, listed, unknown_name
from consilience.core.samples import Samples
from consilience.core.targets import guess_task
from consilience.data.dataset import DataSet, SplitFields
from consilience.data.files.cell_fills import Fill
from consilience.data.files.column_encoding import Encoding, count_gaps, depends_on_split, learn_encoding
from consilience.data.files.column_reading import (
    ColumnKind,
    Columns,
    read_columns,
    read_known_columns,
)
from consilience.data.files.column_warnings import (
    warn_of_gaps,
    warn_of_left_out,
    warn_of_unseen,
    warn_of_unseen_in_parts,
    warn_of_wide,
)
from consilience.data.files.file_options import FileOptions
from consilience.data.files.split_columns import find_group_column, read_rule, read_with_candidates
from consilience.data.files.table_reading import read_header, read_table, table_name
from consilience.data.files.target_column import read_known_target, read_target
from consilience.data.group_hints import candidate_columns
from consilience.data.media.columns import TableKind, guess_texts, take_kinds
from consilience.data.media.reading import FileColumn, FileValues, join_files, read_files, read_known_files
from consilience.data.splits import settle_split

_Known = TypeVar("_Known", bound=Encoding | FileColumn)
_ADVICE = "leave fill='none' (--fill none) out, so that single cells are filled, or drop the rows"
_NEW_ADVICE = (
    "complete the cells, drop the rows, or train again without fill='none' (--fill none), to fill new rows too"
)
_DEFAULT_FILL: Fill = "indicator"


def load_table(table: Path | Any, modalities: Any, options: FileOptions) -> DataSet:
    """A data set of a table, a path or a DataFrame; the options are those of `load_data`.

    Categories and fill values are learned from the train rows. The target and the split column never enter a modality,
    whatever the globs match. Without a target the set serves models that are trained without one.
    """
    header, target, split = read_header(table), options.target, options.split
    order = options.group or options.time
    called = {"target": target, "split": split, "group": options.group, "time": options.time}
    for what, column in called.items():
        if column is not None and column not in header:
            known = nearest(column, header) or header[:20]
            raise unknown_name(f"{what} column", column, known, f"It was looked for in {table_name(table)}")
    if target is not None and target == split:
        raise InputError(f"column {target!r} cannot be both the target and the split")
    if order is not None and order in (target, split):
        raise InputError(f"column {order!r} cannot be the group or the time, since it is the target or the split")
    reserved = {column: what for what, column in called.items() if column is not None}
    modalities, kinds = take_kinds(header, modalities, options.kinds)
    chosen = choose_columns(header, modalities, reserved)
    kinds, column_kinds = split_kinds(chosen, kinds)
    texts = _find_texts(chosen, kinds)
    wanted = [*reserved, *(column for columns in chosen.values() for column in columns)]
    strings = [*(chosen[name][0] for name in texts), *([options.group] if options.group else [])]
    candidates = [] if split or order or target is None else candidate_columns(header, wanted)
    frame = read_with_candidates(table, wanted, strings, candidates)
    texts += guess_texts(chosen, kinds, column_kinds, frame)
    files = read_files(chosen, kinds, frame, folder_of(table), options.media, options.broken)
    y = None if target is None else read_target(frame[target], words=options.task == "classification")
    task = None if y is None else options.task or guess_task(y, f"target column {target!r}")
    parts = None if split is None else frame[split].to_list()
    rule = read_rule({name: frame[name] for name in (options.group, options.time) if name is not None}, options)
    # Without targets there are no classes to stratify by.
    labels = np.zeros(len(frame)) if y is None else y
    where = f"split column {split!r}"
    drawn = settle_split(parts, labels, task or "regression", seed=options.seed, where=where, rule=rule)
    read = {
        name: read_columns(name, frame.select(columns), name in texts, kinds=column_kinds)
        for name, columns in chosen.items()
        if name not in files
    }
    warn_of_left_out(table, read)
    fill = options.fill or _DEFAULT_FILL
    make = partial(_make_samples, target, read, y, fill, list(chosen), files)
    made = make(drawn.parts)
    encodings = _encodings_of(made.reading)
    if options.fill is None:
        warn_of_gaps(table, made.extra["filled"], "fill='none' (--fill none) refuses such rows")
    warn_of_wide(table, encodings, {**kinds, **column_kinds})
    warn_of_unseen_in_parts(table, read, encodings)
    remake = make if any(depends_on_split(columns, fill) for columns in read.values()) else None
    name = table.name.removesuffix(".gz").rpartition(".")[0] if isinstance(table, Path) else "table"
    extra = made.extra
    if target is None:  # for the error of whatever needs one
        extra = {**extra, "unread": [column for column in header if column not in wanted]}
    data = DataSet(name, made.samples, task, *drawn, extra=extra, remake=remake, reading=made.reading, rule=rule)
    if split or order or target is None:
        return data
    return replace(data, hint=find_group_column(frame, chosen, data, beside=wanted))


def folder_of(table: Path | Any) -> Path:
    """What relative paths in the cells start from: the folder of the table, for a DataFrame the current one."""
    return table.absolute().parent if isinstance(table, Path) else Path.cwd()


def _find_texts(chosen: Mapping[str, list[str]], kinds: Mapping[str, TableKind]) -> list[str]:
    for name, kind in kinds.items():
        if name not in chosen:
            raise unknown_name("modality", name, chosen, "It was given in kinds")
        if kind == "text" and len(chosen[name]) != 1:
            raise InputError(f"modality {name!r} of kind text must be one column, got {listed(chosen[name])}")
    return [name for name in chosen if kinds.get(name) == "text"]


def _make_samples(
    target: str | None,
    modalities: Mapping[str, Columns],
    y: np.ndarray | None,
    fill: Fill,
    order: Sequence[str],
    files: Mapping[str, FileValues],
    split: np.ndarray,
) -> SplitFields:
    """Samples, the names of the features of each modality as `extra["columns"]`, and the encodings."""
    train = split == "train"
    encodings = {name: learn_encoding(columns, train, fill) for name, columns in modalities.items()}
    values = {name: encodings[name].encode(columns, _ADVICE) for name, columns in modalities.items()}
    kinds = {name: columns.kind for name, columns in modalities.items()}
    samples = Samples.of(**join_files(order, values, kinds, files), y=y)
    features = {name: [name] if known.kind == "text" else known.features for name, known in encodings.items()}
    features |= {name: [name] for name in files}
    learned = encodings | {name: read.learned for name, read in files.items()}
    reading = {
        "format": "table",
        "target": {"name": target, "type": "string" if y is not None and y.dtype.kind == "U" else "number"},
        "modalities": {name: learned[name].to_json() for name in order},
    }
    about: dict[str, Any] = {"files": {name: read.about for name, read in files.items()}} if files else {}
    if fill != "none":
        about |= {"filled": count_gaps(encodings, modalities)}
    return SplitFields(samples, {"columns": {name: features[name] for name in order}, **about}, reading)


def _encodings_of(reading: Mapping[str, Any]) -> dict[str, Encoding]:
    described = reading["modalities"].items()
    return {name: Encoding.from_json(entry) for name, entry in described if "media" not in entry}


def split_kinds(
    chosen: Mapping[str, Sequence[str]], kinds: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, ColumnKind]]:
    """The kinds of modalities, and those of columns: what becomes of a column of times or of categories.

    A modality of one column stands for that column.

    >>> split_kinds({"visit": ["day", "ward"], "note": ["remark"]}, {"day": "calendar", "note": "text"})
    ({'note': 'text'}, {'day': 'calendar'})
    """
    columns = {column for own in chosen.values() for column in own}
    of_columns: dict[str, ColumnKind] = {}
    of_modalities = {}
    for name, kind in kinds.items():
        if kind not in get_args(ColumnKind):
            if name not in chosen and name in columns:
                raise InputError(
                    f"kinds: {name!r} is a column, which may be {' or '.join(get_args(ColumnKind))}, got {kind!r}. Of "
                    f"another kind it must be a modality of its own, such as modalities={{{name!r}: {name!r}}}"
                )
            of_modalities[name] = kind
        elif name not in chosen and name not in columns:
            raise unknown_name("modality or column", name, [*chosen, *columns], "It was given in kinds")
        elif name in columns:
            of_columns[name] = kind
        elif len(chosen[name]) == 1:
            of_columns[chosen[name][0]] = kind
        else:
            raise InputError(f"kinds: of {kind!r} are columns; name those of modality {name!r}, {listed(chosen[name])}")
    return of_modalities, of_columns


def read_new_table(
    table: Path | Any,
    encodings: Mapping[str, Encoding | FileColumn],
    target: str | None,
    strings: bool,
    folder: Path | None = None,
) -> Samples:
    """Samples of every row of a new table, encoded as in training; files are decoded with the settings of training.

    A modality without any of its columns is left out. A category that training did not have is all zeros, with a
    warning. The target column is read if the table has it; `strings` is whether training had strings there.
    Relative paths start from the folder, by default that of `folder_of`.
    """
    header = read_header(table)
    there = {} if target is None or target not in header else {target: strings}
    kept = find_modalities(table, encodings, header)
    cells = {name: known for name, known in kept.items() if isinstance(known, Encoding)}
    files = {name: known for name, known in kept.items() if isinstance(known, FileColumn)}
    others = there | {column: True for known in files.values() for column in known.columns}
    values, frame = encode_columns(table, cells, others, _NEW_ADVICE)
    y = None
    for column in there:
        y = read_known_target(frame[column], strings)
    kinds = {name: encoding.kind for name, encoding in cells.items()}
    read = read_known_files(files, frame, folder or folder_of(table))
    return Samples.of(**join_files(list(kept), values, kinds, read), y=y)


def find_modalities(table: Path | Any, encodings: Mapping[str, _Known], header: Sequence[str]) -> dict[str, _Known]:
    """The modalities whose columns a table has.

    Raises:
        InputError: The table has none of them, or only some columns of a modality; the message names the others.
    """
    there = set(header)
    lacking = {
        name: [column for column in encoding.columns if column not in there] for name, encoding in encodings.items()
    }
    kept = {name: encoding for name, encoding in encodings.items() if len(lacking[name]) < len(encoding.columns)}
    if not kept:
        expected = [column for encoding in encodings.values() for column in encoding.columns]
        raise InputError(
            f"{table_name(table)} has none of the columns that training read ({listed(expected)}); its own are "
            f"{listed(list(header))}"
        )
    partly = {name: columns for name, columns in lacking.items() if columns and name in kept}
    if partly:
        near = [column for columns in partly.values() for column in nearest(columns[0], header, limit=2)]
        hint = f"; near them are {listed(list(dict.fromkeys(near)))}" if near else ""
        listing = ", ".join(f"{listed(columns)} of modality {name!r}" for name, columns in partly.items())
        filled = all(encodings[name].fills is not None for name in partly)
        cells = ", with empty cells where nothing is known (filled as in training)" if filled else " with values"
        raise InputError(
            f"{table_name(table)} lacks columns that training read: {listing}{hint}. Add them{cells}, or leave out all "
            "columns of such a modality, which is then missing for every row"
        )
    return kept


def encode_columns(
    table: Path | Any,
    encodings: Mapping[str, Encoding],
    others: Mapping[str, bool],
    advice: str,
    as_stored: bool = False,
) -> tuple[dict[str, np.ndarray], Any]:
    """The values of each modality of a table that has its columns, and the polars frame that they were read from.

    `others` are further columns to read → whether they hold strings; `advice` is for the error on single empty cells.
    """
    wanted = [column for encoding in encodings.values() for column in encoding.columns]
    strings = [column for encoding in encodings.values() for column in encoding.string_columns]
    frame = read_table(table, [*wanted, *others], [*strings, *(column for column, text in others.items() if text)])
    values = {}
    for name, encoding in encodings.items():
        columns = read_known_columns(name, frame, encoding, as_stored)
        values[name] = encoding.encode(columns, advice)
        warn_of_unseen(table, encoding, columns, "training")
    return values, frame


def choose_columns(
    header: Sequence[str], modalities: Any, reserved: Mapping[str, str] | Sequence[str], *, owner: str = "modality"
) -> dict[str, list[str]]:
    """Modality → its columns, in the order of the globs, then of the table.

    Args:
        header: The columns of the table.
        modalities: Modality → a name or glob, or several.
        reserved: Column → what it is, such as the target, or only the columns. A glob skips them; naming one is an
            error.
        owner: What error messages call the thing that the columns belong to.

    Example:
        >>> choose_columns(["a1", "a2", "b", "label"], {"a": "a*", "rest": "*b*"}, reserved=["label"])
        {'a': ['a1', 'a2'], 'rest': ['b']}
        >>> choose_columns(["a1", "a2", "b", "label"], {"a": "a*", "rest": ["b", "l*"]}, reserved={"label": "target"})
        Traceback (most recent call last):
        consilience.core.errors.InputError: modality 'rest': 'l*' matches only 'label', which is the target
    """
    if not isinstance(modalities, Mapping) or not modalities:
        raise InputError(
            "a table needs modalities=, a mapping of name → columns or globs such as {'audio': 'mfcc_*'} (--modality "
            f"audio=mfcc_*); the columns are {listed(header)}"
        )
    known = dict.fromkeys(header)
    chosen: dict[str, list[str]] = {}
    taken: dict[str, str] = {}
    for name, given in modalities.items():
        whose = f"{owner} {name!r}"
        patterns = [given] if isinstance(given, str) else list(given)
        if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{whose} must name columns or globs, got {given!r}")
        matches = dict.fromkeys(column for pattern in patterns for column in _match(whose, pattern, known, reserved))
        for column in matches:
            if column in taken:
                raise InputError(f"column {column!r} belongs to {owner} {taken[column]!r} and to {name!r}")
            taken[column] = name
        chosen[name] = list(matches)
    return chosen


def _match(
    whose: str, pattern: str, header: Mapping[str, Any], reserved: Mapping[str, str] | Sequence[str]
) -> list[str]:
    if pattern in reserved:
        raise InputError(f"{whose} names column {pattern!r}, {_roles([pattern], reserved)}")
    if pattern in header:  # a column may be called "x[0]", which as a glob means "x0"
        return [pattern]
    glob = re.compile(fnmatch.translate(pattern))
    matches = [column for column in header if glob.match(column)]
    allowed = [column for column in matches if column not in reserved]
    if matches and not allowed:
        raise InputError(f"{whose}: {pattern!r} matches only {listed(matches)}, {_roles(matches, reserved)}")
    if not allowed:
        near = nearest(pattern, list(header))
        hint = f"near it are {listed(near)}" if near else f"the columns are {listed(list(header))}"
        raise UnknownNameError(f"{whose}: {pattern!r} matches no column; {hint}")
    return allowed


def _roles(columns: Sequence[str], reserved: Mapping[str, str] | Sequence[str]) -> str:
    if not isinstance(reserved, Mapping):
        return "which is the target or the split"
    return f"which {'is' if len(columns) == 1 else 'are'} the {' and the '.join(reserved[name] for name in columns)}"


def nearest(pattern: str, header: Sequence[str], limit: int = 5) -> list[str]:
    """Column names that resemble a name or glob."""
    plain = re.sub(r"[*?\[\]]", "", pattern)
    return difflib.get_close_matches(plain, header, n=limit, cutoff=0.5)
