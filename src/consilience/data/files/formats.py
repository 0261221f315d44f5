"""What a path holds, by its ending: a table, arrays, or a MATLAB file."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

from consilience.core.errors import InputError, MissingDataError

Format = Literal["table", "arrays", "matlab"]

TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


def format_of(path: Path) -> Format:
    """Which reader serves a path; anything else is refused by name.

    >>> format_of(Path("sensors.csv.gz")), format_of(Path("views.mat"))
    ('table', 'matlab')
    """
    name = path.name.lower()
    if name.endswith(TABLES):
        return "table"
    if name.endswith(".mat"):
        return "matlab"
    if path.is_dir() or name.endswith(".npz"):
        return "arrays"
    raise InputError(
        f"cannot tell what {path.name!r} holds: load_data reads {', '.join(TABLES)}, .npz, .mat and folders of .npy"
    )


def no_such_path(path: Path) -> MissingDataError:
    """The error for a path that leads nowhere, with the near miss beside it."""
    if not path.parent.is_dir():
        return MissingDataError(f"there is no file or folder {str(path)!r}: the folder {path.parent} does not exist")
    beside = difflib.get_close_matches(path.name, [one.name for one in path.parent.iterdir()], n=1)
    hint = f"; did you mean {beside[0]!r}?" if beside else ""
    return MissingDataError(f"there is no file or folder {str(path)!r}{hint}")
