"""The cache directory: rows that were computed once, in pieces on disk that are looked up by keys.

A piece is a group of `.npy` files. Each is written whole or not at all, under a name of its own: what was computed
before an interruption is not computed again, and several processes may share a folder.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from consilience.core.errors import InputError
from consilience.core.files import remove_leftovers, write_atomically

CACHE_VARIABLE = "CONSILIENCE_CACHE"
_KEY = np.dtype("S32")


def cache_folder(folder: str | Path | None = None) -> Path | None:
    """Return the given folder, else that of the environment variable CONSILIENCE_CACHE, else None."""
    chosen = folder or os.environ.get(CACHE_VARIABLE)
    return None if not chosen else Path(chosen).expanduser()


class Place(NamedTuple):
    """Where a row is: the name of its piece, and its number there."""

    piece: str
    row: int


class RowCache:
    """Rows in a folder, each with one value in every column.

    Args:
        folder: It is created if it does not exist.
        columns: Name of a column → shape of one value, and its type.
        what: What is kept, for errors.
    """

    def __init__(self, folder: Path, columns: Mapping[str, tuple[tuple[int, ...], np.dtype]], what: str):
        self.folder, self.columns = folder, dict(columns)
        self._places: dict[bytes, Place] = {}
        self._read: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{what} cannot be kept in {folder}: {error}") from error
        remove_leftovers(folder)

    def find(self, keys: Sequence[bytes]) -> list[Place | None]:
        """The places of rows, None for those that are not there; pieces of other processes count."""
        self._read_new_keys()
        return [self._places.get(key) for key in keys]

    def open(self, piece: str, column: str) -> np.ndarray:
        """One column of a piece `[row, …]`, mapped from disk."""
        return np.load(self.folder / f"{piece}.{column}.npy", mmap_mode="r")

    def keep(self, keys: Sequence[bytes], values: Mapping[str, np.ndarray]) -> None:
        """Write some rows as a new piece: column → `[row, …]`."""
        piece = uuid.uuid4().hex
        for column, (_, dtype) in self.columns.items():
            content = partial(np.save, arr=values[column].astype(dtype, copy=False))
            write_atomically(self.folder / f"{piece}.{column}.npy", content)
        # The keys last: a piece without them is not read.
        write_atomically(self.folder / f"{piece}.keys.npy", partial(np.save, arr=np.array(keys, dtype=_KEY)))

    def _read_new_keys(self) -> None:
        """Read the key files that are new, also those of other processes."""
        for path in self.folder.glob("*.keys.npy"):
            if path.name in self._read:
                continue
            self._read.add(path.name)
            piece = path.name.removesuffix(".keys.npy")
            try:
                keys = np.load(path)
                there = {column: self.open(piece, column) for column in self.columns}
            except (OSError, ValueError, EOFError):  # damaged: these rows are computed again
                continue
            if keys.dtype == _KEY and all(
                there[column].shape == (len(keys), *shape) and there[column].dtype == dtype
                for column, (shape, dtype) in self.columns.items()
            ):
                self._places.update((key, Place(piece, row)) for row, key in enumerate(keys.tolist()))
