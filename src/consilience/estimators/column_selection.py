"""One 2-D table as several modalities: which columns belong to which, and how those of a DataFrame are encoded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import Kind
from consilience.data.files.column_encoding import Encoding, is_string, learn_encoding, read_columns
from consilience.data.files.table_reading import read_header, read_table
from consilience.data.files.tables import choose_columns, encode_columns, find_modalities

_ADVICE = "fill single cells beforehand (DataFrame.fillna, fill_null), or drop the rows"
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
        raise InputError(f"columns must be a mapping of modality → columns, got {columns!r}")
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


def learn_frame(
    frame: Any, columns: Columns | None, header: Sequence[str], kinds: Mapping[str, Kind]
) -> tuple[dict[str, Encoding], dict[str, np.ndarray]]:
    """How the columns of each modality of a DataFrame become features, and these features.

    Columns are encoded as `load_data` encodes those of a table, with two differences: numbers keep their precision, and
    a single column of strings is text unless `kinds` says "vector". `header` is empty if the columns have no names.
    """
    names = read_header(frame)
    encodings, values = {}, {}
    for name, positions in split_columns(columns, len(names), header).items():
        part = read_table(frame, [names[position] for position in positions])
        text = kinds.get(name) == "text" or (name not in kinds and len(positions) == 1 and is_string(part.dtypes[0]))
        if text and len(positions) > 1:
            raise InputError(f"modality {name!r} of kind text must be one column, got {len(positions)}")
        read = read_columns(name, part, text, as_stored=True)
        encodings[name] = learn_encoding(read, np.ones(len(part), dtype=bool), fill=None)
        values[name] = encodings[name].encode(read, _ADVICE)
    return encodings, values


def encode_frame(frame: Any, encodings: Mapping[str, Encoding]) -> dict[str, np.ndarray]:
    """The features of those modalities of which a DataFrame has the columns, found by name."""
    kept = find_modalities(frame, encodings, read_header(frame))
    return encode_columns(frame, kept, {}, _ADVICE, as_stored=True)[0]


def rename_columns(frame: Any, names: Sequence[str] = ()) -> Any:
    """A DataFrame with other column names, by default "0", "1", …"""
    names = names or [str(position) for position in range(len(frame.columns))]
    if hasattr(frame, "set_axis"):  # pandas
        return frame.set_axis(names, axis=1)
    return frame.rename(dict(zip(frame.columns, names)))


def describe_encodings(encodings: Mapping[str, Encoding]) -> list[dict[str, Any]]:
    """Encodings as JSON values, for `restore_encodings`."""
    return [{"name": name, **encoding.to_json()} for name, encoding in encodings.items()]


def restore_encodings(described: Sequence[Mapping[str, Any]]) -> dict[str, Encoding]:
    """What `describe_encodings` wrote."""
    return {entry["name"]: Encoding.from_json(entry) for entry in described}


def number_encodings(columns: Columns | None, header: Sequence[str], texts: Collection[str]) -> dict[str, Encoding]:
    """The encodings of columns of numbers, and of one column of text for each modality in `texts`."""
    encodings = {}
    for name, positions in split_columns(columns, len(header), header).items():
        own = [header[position] for position in positions]
        encodings[name] = Encoding(own[0], [], None, {}) if name in texts else Encoding(None, own, None, {})
    return encodings


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


def describe_columns(columns: Columns | None) -> Any:
    """Return `columns` as JSON values, for `restore_columns`.

    >>> describe_columns({"audio": slice(0, 2), "rest": range(2, 4)})
    {'audio': {'slice': [0, 2, None]}, 'rest': [2, 3]}
    """
    if columns is None:
        return None
    return {
        name: {"slice": [chosen.start, chosen.stop, chosen.step]}
        if isinstance(chosen, slice)
        else np.asarray(chosen).tolist()
        for name, chosen in columns.items()
    }


def restore_columns(described: Any) -> Columns | None:
    """Return the columns that `describe_columns` wrote."""
    if described is None:
        return None
    return {name: slice(*chosen["slice"]) if isinstance(chosen, dict) else chosen for name, chosen in described.items()}
