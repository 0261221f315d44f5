"""Which columns of a table belong to which modality: slices, positions, masks, names and globs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError, show
from consilience.data.files.tables import choose_columns

Columns = Mapping[str, slice | int | str | Sequence[int] | Sequence[str]]


def split_columns(columns: Columns | None, width: int, header: Sequence[str] = ()) -> dict[str, list[int]]:
    """Return modality → positions of its columns; without `columns` the table is one modality, "x".

    >>> split_columns({"audio": slice(0, 2), "rest": [2, -1]}, width=4)
    {'audio': [0, 1], 'rest': [2, 3]}
    >>> split_columns({"audio": "mfcc_*"}, width=3, header=["mfcc_0", "mfcc_1", "age"])
    {'audio': [0, 1]}
    """
    if columns is None:
        return {"x": list(range(width))}
    if not isinstance(columns, Mapping) or not columns:
        raise InputError(f"columns must be a mapping of modality → columns, got {show(columns)}")
    split: dict[str, list[int]] = {}
    owner: dict[int, str] = {}
    for modality, chosen in columns.items():
        split[modality] = _positions(modality, chosen, width, header)
        for position in split[modality]:
            if position in owner:
                column = repr(header[position]) if header else position
                problem = (
                    f"is twice in modality {modality!r}"
                    if owner[position] == modality
                    else f"is in two modalities, {owner[position]!r} and {modality!r}"
                )
                raise InputError(f"columns: column {column} {problem}")
            owner[position] = modality
    return split


def _positions(modality: str, chosen: Any, width: int, header: Sequence[str]) -> list[int]:
    what = f"columns of modality {modality!r}"
    if isinstance(chosen, slice):
        positions = list(range(width))[chosen]
    else:
        wanted = np.atleast_1d(np.asarray(chosen))
        if any(isinstance(entry, str) for entry in wanted.flat):
            return _named(what, modality, chosen, header)
        if wanted.dtype.kind == "b" and wanted.shape == (width,):
            wanted = np.flatnonzero(wanted)
        if wanted.size and (wanted.dtype.kind not in "iu" or wanted.ndim != 1):
            raise InputError(
                f"{what} must be a slice, positions, a mask of all {width} columns, names or globs, got {chosen!r} "
                f"(n_features = {width})"
            )
        beyond = wanted[(wanted < -width) | (wanted >= width)]
        if beyond.size:
            raise InputError(f"{what}: no column {beyond[0]} (n_features = {width})")
        positions = [int(position) % width for position in wanted]
    if not positions:
        raise InputError(f"{what}: {chosen!r} selects no column (n_features = {width})")
    return positions


def _named(what: str, modality: str, chosen: Any, header: Sequence[str]) -> list[int]:
    if not header:
        raise InputError(f"{what} are names ({chosen!r}), but the table has none: give a DataFrame, or positions")
    places = {name: position for position, name in enumerate(header)}
    return [places[name] for name in choose_columns(header, {modality: chosen}, reserved=())[modality]]
