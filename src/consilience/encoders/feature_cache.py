"""A cache of encoded features, on disk or in memory, looked up by the content of the rows."""

from __future__ import annotations

import hashlib
import os
import uuid
from functools import partial
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError
from consilience.core.files import remove_leftovers, write_atomically

CACHE_VARIABLE = "CONSILIENCE_CACHE"
# The size of the cache in memory, used where no folder is given.
MEMORY_BYTES = 2**27
_KEY = np.dtype("S32")


def cache_folder(folder: str | Path | None) -> Path | None:
    """Return the given folder, else that of the environment variable CONSILIENCE_CACHE, else None."""
    chosen = folder or os.environ.get(CACHE_VARIABLE)
    return None if not chosen else Path(chosen).expanduser()


def row_keys(values: np.ndarray, lengths: np.ndarray | None = None) -> list[bytes]:
    """Hash each row's content, type, shape and length: 32 hexadecimal digits a row."""
    keys = []
    for position, row in enumerate(values):
        if isinstance(row, str):
            digest = hashlib.sha256(row.encode("utf-8", "surrogatepass"))
        else:
            array = np.ascontiguousarray(row)
            digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.data)
        if lengths is not None:
            digest.update(str(int(lengths[position])).encode())
        keys.append(digest.hexdigest()[:32].encode())
    return keys


class MemoryCache:
    """Features `[row, width]` in memory, up to a limit: a fit with several folds encodes no row twice."""

    def __init__(self, width: int, limit: int = MEMORY_BYTES):
        self.width, self._rows, self._room = width, dict[bytes, np.ndarray](), limit // (4 * width)

    def find(self, keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return features `[row, width]` float32, zeros for rows that are not cached, and which rows are cached."""
        features = np.zeros((len(keys), self.width), dtype=np.float32)
        cached = np.array([key in self._rows for key in keys], dtype=bool)
        for position in np.flatnonzero(cached):
            features[position] = self._rows[keys[position]]
        return features, cached

    def keep(self, keys: list[bytes], features: np.ndarray) -> None:
        """Store the features of some rows, up to the limit."""
        room = max(0, self._room - len(self._rows))
        self._rows.update(zip(keys[:room], features[:room].astype(np.float32)))


class DiskCache:
    """Features `[row, width]` in files of a folder, each beside a file with the keys of its rows.

    A file is written whole or not at all, under a name of its own: rows encoded before an interruption are not encoded
    again, and several processes may share a folder.
    """

    def __init__(self, folder: Path, width: int):
        self.folder, self.width = folder, width
        self._places: dict[bytes, tuple[Path, int]] = {}
        self._read: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"features cannot be kept in {folder}: {error}") from error
        remove_leftovers(folder)

    def find(self, keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return features `[row, width]` float32, zeros for rows that are not cached, and which rows are cached."""
        self._read_new_keys()
        features = np.zeros((len(keys), self.width), dtype=np.float32)
        cached = np.zeros(len(keys), dtype=bool)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for position, key in enumerate(keys):
            if key in self._places:
                path, row = self._places[key]
                wanted.setdefault(path, []).append((position, row))
        for path, pairs in wanted.items():
            positions, rows = (list(each) for each in zip(*pairs))
            features[positions] = np.load(path, mmap_mode="r")[rows]
            cached[positions] = True
        return features, cached

    def keep(self, keys: list[bytes], features: np.ndarray) -> None:
        """Write the features of some rows."""
        name = uuid.uuid4().hex
        for suffix, array in (("features", features.astype(np.float32)), ("keys", np.array(keys, dtype=_KEY))):
            # The keys last: a piece without them is not read.
            write_atomically(self.folder / f"{name}.{suffix}.npy", partial(np.save, arr=array))

    def _read_new_keys(self) -> None:
        """Read the key files that are new, also those of other processes."""
        for path in self.folder.glob("*.keys.npy"):
            if path.name in self._read:
                continue
            self._read.add(path.name)
            features = path.with_name(path.name.replace(".keys.", ".features."))
            try:
                keys = np.load(path)
                shape = np.load(features, mmap_mode="r").shape
            except (OSError, ValueError):  # damaged: these rows are encoded again
                continue
            if keys.dtype == _KEY and shape == (len(keys), self.width):
                self._places.update((key, (features, row)) for row, key in enumerate(keys.tolist()))
