"""What is said once of a table when it is read: cells that are filled, columns left out, and unseen categories."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import TableWarning, listed, name_rows
from consilience.data.files.column_encoding import Encoding
from consilience.data.files.column_reading import Columns, advise_left_out
from consilience.data.files.table_reading import table_name

# So many one-hot features of a column are worth a warning, fewer if its strings have so many words on average.
_MANY_CATEGORIES, _MANY_SENTENCES, _WORDS = 100, 20, 3


def warn_of_gaps(table: Path | Any, filled: Mapping[str, Mapping[str, int]], off: str) -> None:
    """Say how many single cells of which modality were filled: modality → column → cells; `off` says how not to."""
    told = []
    for name, counts in filled.items():
        columns = f"column{'s' if len(counts) > 1 else ''} {listed([*counts], 3)}"
        told.append(f"{sum(counts.values())} of modality {name!r} ({columns})")
    if told:
        warnings.warn(
            f"{_called(table)}: single empty cells are filled, {', '.join(told)}. Numbers become the median of the "
            "train rows, strings no category, and a feature for each column with such cells says where. New rows are "
            f"filled in the same way; {off}",
            TableWarning,
            stacklevel=3,
        )


def warn_of_left_out(table: Path | Any, read: Mapping[str, Columns]) -> None:
    """Say which columns are not read, why, and what else could become of them."""
    left_out = {column: what for columns in read.values() for column, what in columns.left_out.items()}
    if left_out:
        told = "; ".join(f"column {column!r} holds {what}" for column, what in [*left_out.items()][:10])
        more = f"; and {len(left_out) - 10} more" if len(left_out) > 10 else ""
        pronoun = "it is" if len(left_out) == 1 else "they are"
        warnings.warn(
            f"{_called(table)}: {told}{more}; {pronoun} left out. {advise_left_out(left_out)}",
            TableWarning,
            stacklevel=3,
        )


def warn_of_wide(table: Path | Any, encodings: Mapping[str, Encoding], kinds: Mapping[str, Any]) -> None:
    """Say which columns without a declared kind become very many one-hot features, or hold sentences."""
    for name, encoding in encodings.items():
        for column, known in encoding.categories.items():
            words = sum(len(value.split()) for value in known.tolist()) / max(1, len(known))
            if (
                column in kinds
                or name in kinds
                or len(known) <= (_MANY_SENTENCES if words >= _WORDS else _MANY_CATEGORIES)
            ):
                continue
            own = f"--modality {name if len(encoding.columns) == 1 else column}={column}:text"
            warnings.warn(
                f"{_called(table)}: column {column!r} of modality {name!r} holds {len(known)} different strings of "
                f"{words:.1f} words on average, which become as many features. If they are sentences, read them as "
                f"text, as a modality of their own ({own}); if they are categories, say so with "
                f"kinds={{{column!r}: 'category'}} (--kind {column}=category)",
                TableWarning,
                stacklevel=3,
            )


def warn_of_unseen(table: Path | Any, encoding: Encoding, columns: Columns, learned: str) -> None:
    """Say which categories the rows that the encoding was learned from do not have, and how many cells hold them."""
    for column, rows in encoding.unseen(columns).items():
        unseen = sorted(set(columns.strings[column][rows].tolist()))
        known = listed(encoding.categories[column].tolist())
        count = int(rows.sum())
        warnings.warn(
            f"{_called(table)}: column {column!r} of modality {columns.name!r} holds {listed(unseen)} in "
            f"{name_rows(np.flatnonzero(rows))}, which {learned} did not have ({count} of {len(rows)} cells): encoded "
            f"as none of {known}",
            TableWarning,
            stacklevel=3,
        )


def warn_of_unseen_in_parts(table: Path | Any, read: Mapping[str, Columns], encodings: Mapping[str, Encoding]) -> None:
    """Say which categories of validation and test rows the train rows do not have."""
    for name, encoding in encodings.items():
        warn_of_unseen(table, encoding, read[name], "the train rows")


def _called(table: Path | Any) -> str:
    return table if isinstance(table, str) else table_name(table)
