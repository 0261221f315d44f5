"""How the columns of DataFrames and of 2-D arrays become modalities when an estimator is fitted, and in new ones."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InputError, TableWarning
from consilience.data.files.cell_fills import Fill
from consilience.data.files.column_encoding import Encoding, count_gaps, learn_encoding
from consilience.data.files.column_reading import Columns as ReadColumns
from consilience.data.files.column_reading import is_string, read_columns
from consilience.data.files.column_warnings import warn_of_gaps, warn_of_left_out
from consilience.data.files.table_reading import is_frame, read_header, read_table
from consilience.data.files.tables import split_kinds
from consilience.estimators.column_choice import Columns, split_columns

ADVICE = "fill them beforehand (DataFrame.fillna, fill_null), fit without fill='none', or drop the rows"
# A column of strings with so few different values looks like categories.
_FEW_TEXTS = 20
_OFF = "fill='none' refuses such rows"


def learn_frame(
    frame: Any, columns: Columns | None, header: Sequence[str], kinds: Mapping[str, Any], fill: Fill
) -> tuple[dict[str, Encoding], dict[str, np.ndarray]]:
    """How the columns of each modality of a DataFrame become features, and these features.

    Columns are encoded as `load_data` encodes those of a table, with two differences: numbers keep their precision, and
    a single column of strings is text unless `kinds` says "vector". `header` is empty if the columns have no names.
    """
    names = read_header(frame)
    chosen = {
        name: [names[position] for position in positions]
        for name, positions in split_columns(columns, len(names), header).items()
    }
    of_modalities, of_columns = split_kinds(chosen, kinds)
    read = {}
    for name, own in chosen.items():
        part = read_table(frame, own)
        kind = of_modalities.get(name)
        single = len(own) == 1 and kind is None and own[0] not in of_columns
        text = kind == "text" or (single and is_string(part.dtypes[0]))
        if text and len(own) > 1:
            raise InputError(f"modality {name!r} of kind text must be one column, got {len(own)}")
        if text and kind is None:
            _warn_of_few_texts(name, part.to_series())
        read[name] = read_columns(name, part, text, as_stored=True, kinds=of_columns)
    warn_of_left_out(frame, read)
    encodings = {name: _learn(columns, of_modalities.get(name), fill) for name, columns in read.items()}
    values = {name: encoding.encode(read[name], ADVICE) for name, encoding in encodings.items()}
    if fill == "indicator":
        warn_of_gaps(frame, count_gaps(encodings, read), _OFF)
    return encodings, values


def _warn_of_few_texts(name: str, column: Any) -> None:
    """Warn that a modality is read as text though its few short values look like categories."""
    known = column.drop_nulls()
    if known.n_unique() <= _FEW_TEXTS and known.n_unique() < len(known) and not known.cast(str).str.contains(" ").any():
        warnings.warn(
            f"column {column.name!r} of modality {name!r} is read as text, but has only {known.n_unique()} different "
            f"values of one word: kinds={{{column.name!r}: 'category'}} makes categories of them, kinds={{{name!r}: "
            "'text'} says that they are text",
            TableWarning,
            stacklevel=2,
        )


def learn_array(
    split: Mapping[str, np.ndarray], names: Mapping[str, Sequence[str]], kinds: Mapping[str, Any], fill: Fill
) -> tuple[dict[str, Encoding], dict[str, np.ndarray]]:
    """The same for the columns `[n, column]` of each modality of one array of numbers, by their names or positions."""
    read = {name: _as_columns(name, names[name], cells) for name, cells in split.items()}
    encodings = {name: _learn(columns, kinds.get(name), fill) for name, columns in read.items()}
    values = {name: encoding.encode(read[name], ADVICE) for name, encoding in encodings.items()}
    if fill == "indicator":
        warn_of_gaps("X", count_gaps(encodings, read), _OFF)
    return encodings, values


def encode_array(
    split: Mapping[str, np.ndarray], names: Mapping[str, Sequence[str]], encodings: Mapping[str, Encoding]
) -> dict[str, np.ndarray]:
    """The features of new rows of one array of numbers."""
    return {
        name: encodings[name].encode(_as_columns(name, names[name], cells), ADVICE) for name, cells in split.items()
    }


def _learn(columns: ReadColumns, kind: Any, fill: Fill) -> Encoding:
    """Only numbers of a vector are filled: a token or a time step has no median."""
    return learn_encoding(columns, np.ones(_rows(columns), dtype=bool), fill if kind in (None, "vector") else "none")


def _rows(columns: ReadColumns) -> int:
    return len(columns.numbers)


def _as_columns(name: str, names: Sequence[str], cells: np.ndarray) -> ReadColumns:
    return ReadColumns(name, "vector", list(names), cells, {})


def rename_columns(frame: Any, names: Sequence[str] = ()) -> Any:
    """A DataFrame with other column names, by default "0", "1", …"""
    names = names or [str(position) for position in range(len(frame.columns))]
    if hasattr(frame, "set_axis"):  # pandas
        return frame.set_axis(names, axis=1)
    return frame.rename(dict(zip(frame.columns, names)))


def without_empty_strings(column: Any) -> Any:
    """A pandas or polars column of strings with None for strings of no characters; anything else as it is."""
    if is_frame(column) or not (hasattr(column, "to_numpy") and hasattr(column, "to_list")):
        return column
    cells = column.to_numpy()
    if cells.dtype.kind not in "OUST" or not any(isinstance(cell, str) and not cell for cell in cells.tolist()):
        return column
    return [None if isinstance(cell, str) and not cell else cell for cell in cells.tolist()]


def number_encodings(columns: Columns | None, header: Sequence[str], texts: Collection[str]) -> dict[str, Encoding]:
    """The encodings of columns of numbers, and of one column of text for each modality in `texts`."""
    encodings = {}
    for name, positions in split_columns(columns, len(header), header).items():
        own = [header[position] for position in positions]
        encodings[name] = Encoding(own[0], [], None, {}) if name in texts else Encoding(None, own, None, {})
    return encodings
