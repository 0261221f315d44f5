"""One 2-D table as several modalities: which columns belong to which, by slice, positions, names or globs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.data.files.globs import choose_columns
from consilience.errors import InputError

Columns = Mapping[str, slice | Sequence[int] | Sequence[str] | str]


def split_columns(columns: Columns | None, width: int, header: Sequence[str] = ()) -> dict[str, list[int]]:
    """Modality → the positions of its columns; without `columns` the table is one modality, "x".

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
                raise InputError(f"column {position} is in two modalities, {owner[position]!r} and {modality!r}")
            owner[position] = modality
    return split


def _positions(modality: str, chosen: Any, width: int, header: Sequence[str]) -> list[int]:
    if isinstance(chosen, slice):
        positions = list(range(width))[chosen]
    elif isinstance(chosen, str) or any(isinstance(one, str) for one in chosen):
        if not header:
            raise InputError(
                f"columns of modality {modality!r} are names ({chosen!r}), but the table has none: give a DataFrame, "
                "or positions"
            )
        places = {name: position for position, name in enumerate(header)}
        positions = [places[name] for name in choose_columns(header, {modality: chosen}, reserved=())[modality]]
    else:
        for one in chosen:
            if not -width <= int(one) < width:
                raise InputError(f"columns of modality {modality!r}: no column {one} (n_features = {width})")
        positions = [int(one) % width for one in chosen]
    if not positions:
        raise InputError(f"columns of modality {modality!r}: {chosen!r} selects no column (n_features = {width})")
    return positions


def describe_columns(columns: Columns | None) -> Any:
    """`columns` as JSON values, for `restore_columns`.

    >>> describe_columns({"audio": slice(0, 2)})
    {'audio': {'slice': [0, 2, None]}}
    """
    if columns is None:
        return None
    return {
        name: {"slice": [chosen.start, chosen.stop, chosen.step]} if isinstance(chosen, slice) else chosen
        for name, chosen in columns.items()
    }


def restore_columns(described: Any) -> Columns | None:
    """What `describe_columns` wrote, back again."""
    if described is None:
        return None
    return {name: slice(*chosen["slice"]) if isinstance(chosen, dict) else chosen for name, chosen in described.items()}
