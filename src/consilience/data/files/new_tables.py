"""New rows of a table, encoded as the table a model was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.samples import Kind, Samples
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_globs import listed, nearest
from consilience.data.files.frames import read_frame, read_header
from consilience.data.files.table_columns import Columns, read_known_columns
from consilience.data.files.target_column import read_known_target

_ADVICE = "complete the cells, drop the rows, or train with fill='median' (--fill median), which fills new rows too"


def read_new_table(path: Path, encodings: Mapping[str, Encoding], target: str, strings: bool) -> Samples:
    """Samples of every row. A modality without any of its columns is left out; the target is read where it is there.

    A category that training never saw is all zeros, and a warning says where.

    strings: whether the targets of training were strings.
    """
    header = read_header(path)
    kept = _find_modalities(path, encodings, header)
    wanted = [column for encoding in kept.values() for column in encoding.columns]
    declared = [column for encoding in kept.values() for column in encoding.string_columns]
    if target in header:
        wanted.append(target)
        declared += [target] if strings else []
    frame = read_frame(path, wanted, declared)
    values: dict[str, np.ndarray] = {}
    kinds: dict[str, Kind] = {}
    for name, encoding in kept.items():
        columns = read_known_columns(name, frame, encoding.text, encoding.numbers, list(encoding.categories))
        values[name], kinds[name] = encoding.encode(columns, _ADVICE), columns.kind
        _warn_of_unseen(path, encoding, columns)
    y = read_known_target(frame[target], strings) if target in header else None
    return Samples.of(values, y, kinds=kinds)


def _find_modalities(path: Path, encodings: Mapping[str, Encoding], header: Sequence[str]) -> dict[str, Encoding]:
    """The modalities whose columns the table has; one that is there in part is an error that names what is not."""
    there = set(header)
    lacking = {name: [one for one in encoding.columns if one not in there] for name, encoding in encodings.items()}
    kept = {name: encoding for name, encoding in encodings.items() if len(lacking[name]) < len(encoding.columns)}
    if not kept:
        expected = [column for encoding in encodings.values() for column in encoding.columns]
        raise InputError(
            f"{path.name} has none of the columns that training read ({listed(expected)}); its own are "
            f"{listed(list(header))}"
        )
    partly = {name: columns for name, columns in lacking.items() if columns and name in kept}
    if partly:
        near = [one for columns in partly.values() for one in nearest(columns[0], header, limit=2)]
        hint = f"; near them are {listed(list(dict.fromkeys(near)))}" if near else ""
        listing = ", ".join(f"{listed(columns)} of modality {name!r}" for name, columns in partly.items())
        filled = all(encodings[name].fills is not None for name in partly)
        cells = ", with empty cells where nothing is known (filled as in training)" if filled else " with values"
        raise InputError(
            f"{path.name} lacks columns that training read: {listing}{hint}. Add them{cells}, or leave out all "
            "columns of such a modality, which is then missing for every row"
        )
    return kept


def _warn_of_unseen(path: Path, encoding: Encoding, columns: Columns) -> None:
    for column, rows in encoding.unseen(columns).items():
        found = sorted(set(columns.categories[column][rows].tolist()))
        known = listed(encoding.categories[column].tolist())
        warnings.warn(
            f"{path.name}: column {column!r} of modality {columns.name!r} holds {listed(found)} in "
            f"{name_rows(np.flatnonzero(rows))}, which training never saw: taken as none of {known}",
            stacklevel=2,
        )
