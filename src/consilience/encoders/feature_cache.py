"""Features of rows kept on disk, found by what the rows hold: encoded once, whoever asks and however often."""

from __future__ import annotations

import hashlib
import os
import uuid
from functools import partial
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError
from consilience.core.files import write_atomically

CACHE_VARIABLE = "CONSILIENCE_CACHE"
# Without a folder, so much is kept in memory.
MEMORY_BYTES = 2**27
_KEY = np.dtype("S32")


def find_cache(folder: str | Path | None) -> Path | None:
    """The folder given, else that of the environment variable CONSILIENCE_CACHE, else none."""
    chosen = folder or os.environ.get(CACHE_VARIABLE)
    return None if not chosen else Path(chosen).expanduser()


def row_keys(values: np.ndarray, lengths: np.ndarray | None = None) -> list[bytes]:
    """What tells rows apart: 32 hexadecimal digits of each row's content (and its length), type and shape included."""
    keys = []
    for position, row in enumerate(values):
        if isinstance(row, str):
            summed = hashlib.sha256(row.encode("utf-8", "surrogatepass"))
        else:
            array = np.ascontiguousarray(row)
            summed = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
            summed.update(array.data)
        if lengths is not None:
            summed.update(str(int(lengths[position])).encode())
        keys.append(summed.hexdigest()[:32].encode())
    return keys


class RowMemory:
    """Features `[row, width]` in memory while there is room: a fit with several folds encodes no row twice."""

    def __init__(self, width: int, limit: int = MEMORY_BYTES):
        self.width, self._rows, self._room = width, dict[bytes, np.ndarray](), limit // (4 * width)

    def find(self, keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Features `[row, width]` float32 of the rows that are there, zeros for the others, and which are there."""
        features = np.zeros((len(keys), self.width), dtype=np.float32)
        there = np.array([key in self._rows for key in keys], dtype=bool)
        for position in np.flatnonzero(there):
            features[position] = self._rows[keys[position]]
        return features, there

    def keep(self, keys: list[bytes], features: np.ndarray) -> None:
        """Remember the features of some rows while there is room."""
        room = max(0, self._room - len(self._rows))
        self._rows.update(zip(keys[:room], features[:room].astype(np.float32)))


class RowCache:
    """Pieces of features `[row, width]` in a folder, each beside the keys of its rows.

    A piece is written whole or not at all, under a name of its own: what was encoded before an interruption is not
    encoded again, and several processes may share a folder.
    """

    def __init__(self, folder: Path, width: int):
        self.folder, self.width = folder, width
        self._where: dict[bytes, tuple[Path, int]] = {}
        self._read: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"features cannot be kept in {folder}: {error}") from error

    def find(self, keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Features `[row, width]` float32 of the rows that are there, zeros for the others, and which are there."""
        self._look()
        features = np.zeros((len(keys), self.width), dtype=np.float32)
        there = np.zeros(len(keys), dtype=bool)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for position, key in enumerate(keys):
            if key in self._where:
                path, row = self._where[key]
                wanted.setdefault(path, []).append((position, row))
        for path, pairs in wanted.items():
            positions, rows = (list(each) for each in zip(*pairs))
            features[positions] = np.load(path, mmap_mode="r")[rows]
            there[positions] = True
        return features, there

    def keep(self, keys: list[bytes], features: np.ndarray) -> None:
        """Write the features of some rows."""
        name = uuid.uuid4().hex
        for suffix, array in (("features", features.astype(np.float32)), ("keys", np.array(keys, dtype=_KEY))):
            # The keys last: a piece without them is not read.
            write_atomically(self.folder / f"{name}.{suffix}.npy", partial(np.save, arr=array))

    def _look(self) -> None:
        """Read the keys of pieces not seen before, another process's among them."""
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
                self._where.update((key, (features, row)) for row, key in enumerate(keys.tolist()))
