"""A cache of encoded features, on disk or in memory, looked up by the content of the rows."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from consilience.core.row_cache import RowCache

# The size of the cache in memory, used where no folder is given.
MEMORY_BYTES = 2**27


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
    """Features `[row, width]` in a folder: a `RowCache` of one column."""

    def __init__(self, folder: Path, width: int):
        self.width = width
        self._rows = RowCache(folder, {"features": ((width,), np.dtype(np.float32))}, "features")

    def find(self, keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return features `[row, width]` float32, zeros for rows that are not cached, and which rows are cached."""
        features = np.zeros((len(keys), self.width), dtype=np.float32)
        cached = np.zeros(len(keys), dtype=bool)
        wanted: dict[str, list[tuple[int, int]]] = {}
        for position, place in enumerate(self._rows.find(keys)):
            if place is not None:
                wanted.setdefault(place.piece, []).append((position, place.row))
        for piece, pairs in wanted.items():
            positions, rows = (list(each) for each in zip(*pairs))
            features[positions] = self._rows.open(piece, "features")[rows]
            cached[positions] = True
        return features, cached

    def keep(self, keys: list[bytes], features: np.ndarray) -> None:
        """Write the features of some rows."""
        self._rows.keep(keys, {"features": features})
