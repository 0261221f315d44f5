"""Rows as dictionaries: one, or a list of them, as a DataFrame or as modalities."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import is_missing

if TYPE_CHECKING:
    import polars

_CELLS = (str, Real, np.bool_, datetime.date, np.datetime64)


def as_dictionaries(X: Any) -> list[Mapping[str, Any]] | None:
    """A dictionary of single values as a list of one row, a list of dictionaries as it is; None for anything else.

    >>> as_dictionaries({"age": 40, "ward": "B"}), as_dictionaries({"age": [40, 41]})
    ([{'age': 40, 'ward': 'B'}], None)
    """
    if isinstance(X, dict) and not hasattr(X, "toarray"):  # a sparse matrix may be a dictionary too
        cells = [cell for cell in X.values() if not is_missing(cell)]
        return [X] if cells and all(isinstance(cell, _CELLS) for cell in cells) else None
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        return list(X)
    return None


def rows_to_frame(rows: Sequence[Mapping[str, Any]]) -> polars.DataFrame:
    """One column for each name; the cell is empty where a row does not have it.

    >>> rows_to_frame([{"age": 40, "ward": "B"}, {"age": 41.5}]).to_dict(as_series=False)
    {'age': [40.0, 41.5], 'ward': ['B', None]}
    """
    import polars as pl

    names = dict.fromkeys(name for row in rows for name in row)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"rows: names of columns must be strings, got {wrong[0]!r}")
    return pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])


def rows_to_modalities(rows: Sequence[Mapping[str, Any]], modalities: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each modality, None where a row does not have it; a modality that no row has is left out.

    >>> rows_to_modalities([{"a": [1.0, 2.0]}, {"a": None, "b": "good"}], ["a", "b"])
    {'a': [[1.0, 2.0], None], 'b': [None, 'good']}
    """
    rows = [{name: value for name, value in row.items() if not _is_empty(value)} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        raise InputError(f"rows: there is no value of any modality; they are {', '.join(modalities)}")
    return {name: [row.get(name) for row in rows] for name in names}


def _is_empty(cell: Any) -> bool:
    return is_missing(cell) or (isinstance(cell, str) and not cell)


def _plain(cell: Any) -> Any:
    """A cell of a type of Python; a time without its zone, which is not read in strings either."""
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]")  # finer ones would become whole numbers
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return _on_the_wall(cell) if isinstance(cell, datetime.datetime) else cell


def _on_the_wall(cell: datetime.date) -> datetime.datetime:
    if isinstance(cell, datetime.datetime):
        return cell.replace(tzinfo=None)
    return datetime.datetime.combine(cell, datetime.time())


def _column(name: str, cells: list[Any]) -> polars.Series:
    """A column of numbers, booleans, strings or times; any other mixture is an error."""
    import polars as pl

    plain = [None if is_missing(cell) else _plain(cell) for cell in cells]
    types = {type(cell) for cell in plain if cell is not None}
    numbers = types <= {int, float, bool} and len(types) > 1
    if len(types) > 1 and all(issubclass(kind, datetime.date) for kind in types):
        plain = [None if cell is None else _on_the_wall(cell) for cell in plain]
    elif len(types) > 1 and not numbers:
        listing = ", ".join(sorted(kind.__name__ for kind in types))
        raise InputError(f"rows: column {name!r} holds values of different types ({listing}): convert them to one type")
    dtype = None
    if types == {int}:  # polars takes the type of the first cell
        whole = [cell for cell in plain if cell is not None]
        known = ((pl.Int64, -(2**63), 2**63), (pl.UInt64, 0, 2**64), (pl.Int128, -(2**127), 2**127))
        fitting = (each for each, least, end in known if least <= min(whole) and max(whole) < end)
        dtype = next(fitting, None)
        if dtype is None:
            far = str(max(whole, key=abs))
            raise InputError(
                f"rows: column {name!r} holds {far if len(far) < 50 else far[:20] + '…'}, a whole number of more than "
                "128 bits: give it as a float"
            )
    try:
        return pl.Series(name, [None if cell is None else float(cell) for cell in plain] if numbers else plain, dtype)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise InputError(f"rows: column {name!r} cannot be read: {error}") from error
