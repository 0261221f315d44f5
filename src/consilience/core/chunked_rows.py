"""Rows that are read in chunks when they are needed: shards of files, or parts of a Dataset, larger than memory.

Whatever can return one chunk of rows at a time is a `ChunkSource`. `Chunks` keeps what was read of it within a bound,
and `ChunkedRows` is one modality of it, which `Samples.of` takes like an array.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from consilience.core.errors import InputError
from consilience.core.modalities import MappedRows

# Rows that are kept in memory where no number is given: as many as take so many bytes.
BUFFER_BYTES = 2**28
# What one string is taken to need.
_OBJECT = 256
# Threads that read chunks ahead of the batches that need them.
READERS = 2


class Column(NamedTuple):
    """Shape of one row and type of the values of one modality; of strings `()` and object."""

    shape: tuple[int, ...]
    dtype: np.dtype


class ChunkSource(Protocol):
    """Rows in successive chunks, each of which can be read again at any time, from several threads at once.

    A source that is pickled, for other processes, must find its rows again.
    """

    @property
    def columns(self) -> Mapping[str, Column]:
        """Modality → shape and type of its rows."""

    @property
    def starts(self) -> np.ndarray:
        """The row at which each chunk begins, and at last the number of rows `[chunk + 1]`."""

    def read(self, chunk: int, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """The rows of a chunk for some modalities, `[rows, *shape]` each."""


class Chunks:
    """The chunks of a source that are in memory.

    Args:
        source: What is read.
        buffer: Rows that are kept in memory, and shuffled together in training. None: as many as take 256 MiB.
    """

    def __init__(self, source: ChunkSource, buffer: int | None = None):
        if buffer is not None and buffer < 1:
            raise InputError(f"shards: buffer must be a number of rows ≥ 1, got {buffer}")
        self.source = source
        self.starts = np.asarray(source.starts, dtype=np.int64)
        self.columns = dict(source.columns)
        self.buffer = rows_of_bytes(self.columns, BUFFER_BYTES) if buffer is None else buffer
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], np.ndarray] = OrderedDict()  # the last one that was used is last
        self._ahead: tuple[_ReadAhead, ...] = ()  # several if batches of two sets, or of two threads, are read

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    @property
    def fit(self) -> bool:
        """Whether all rows are kept in memory."""
        return self.rows <= self.buffer

    def column(self, name: str) -> MappedRows:
        """Return all rows of a modality, for `Samples.of`."""
        return MappedRows(ChunkedRows(self, name), np.arange(self.rows))

    def samples(self) -> dict[str, MappedRows]:
        """Return every modality by name."""
        return {name: self.column(name) for name in self.columns}

    def chunk_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the chunk in which each of these rows lies `[n]`."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def values(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return some rows of a modality `[n, *shape]`, in the order in which they are given."""
        known = self.columns[name]
        found = np.empty((len(rows), *known.shape), dtype=known.dtype)
        chunk = self.chunk_of(rows)
        for number in np.unique(chunk).tolist():
            here = np.flatnonzero(chunk == number)
            found[here] = self._chunk(number, name)[rows[here] - self.starts[number]]
        return found

    def _chunk(self, number: int, name: str) -> np.ndarray:
        for ahead in self._ahead:
            if (values := ahead.take(number, name)) is not None:
                return values
        with self._lock:
            if (number, name) in self._kept:
                self._kept.move_to_end((number, name))
                return self._kept[number, name]
        values = self.read(number, [name])[name]
        with self._lock:
            self._kept[number, name] = values
            while not self.fit and len(self._kept) > 1 and self._rows_kept() > self.buffer // 2:
                self._kept.popitem(last=False)
        return values

    def _rows_kept(self) -> int:
        """Rows in memory, of all modalities: one that is kept for some modalities counts in part."""
        kept = sum(self.size(number) for number, _ in self._kept)
        return kept // len(self.columns)

    def size(self, number: int) -> int:
        """Return the number of rows of a chunk."""
        return int(self.starts[number + 1] - self.starts[number])

    def read(self, number: int, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """Read a chunk, and check that it is as the source described it."""
        found = self.source.read(number, names)
        for name in names:
            expected = (self.size(number), *self.columns[name].shape)
            if found[name].shape != expected:
                raise InputError(
                    f"modality {name!r}: chunk {number} has shape {list(found[name].shape)}, expected "
                    f"{list(expected)}: were the files changed while they were read?"
                )
        return found

    @contextmanager
    def reading_ahead(self, batches: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[_ReadAhead]:
        """Within a block, have threads read the chunks that batches of rows need, before they need them.

        Args:
            batches: The rows of each batch.
            names: Modalities to read.
        """
        ahead = _ReadAhead(self, batches, [name for name in names if name in self.columns])
        with self._lock:
            if not self.fit:
                self._kept.clear()
            self._ahead = (*self._ahead, ahead)
        try:
            yield ahead
        finally:
            with self._lock:
                self._ahead = tuple(other for other in self._ahead if other is not ahead)
            ahead.end()

    def keep(self, number: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep a chunk that was read, where all rows are kept."""
        with self._lock:
            for name, each in values.items():
                self._kept[number, name] = each

    def kept(self, number: int, names: Sequence[str]) -> Mapping[str, np.ndarray] | None:
        """Return a chunk that is in memory, or None."""
        with self._lock:
            if all((number, name) in self._kept for name in names):
                return {name: self._kept[number, name] for name in names}
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_kept", "_ahead")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()


class ChunkedRows:
    """One modality of `Chunks`: rows are read when they are indexed, by whole numbers or by a slice."""

    def __init__(self, chunks: Chunks, name: str, axis: int | None = None):
        """`axis`: where a dimension of size 1 is added, as for a vector of one feature."""
        self.chunks, self.name, self.axis = chunks, name, axis
        known = chunks.columns[name]
        shape = (chunks.rows, *known.shape)
        self.shape = shape if axis is None else (*shape[:axis], 1, *shape[axis:])
        self.dtype, self.ndim = known.dtype, len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple):  # as `array[:, None]`
            return ChunkedRows(self.chunks, self.name, len(rows) - 1)
        chosen = np.arange(len(self))[rows]
        values = self.chunks.values(self.name, np.atleast_1d(chosen))
        values = values if self.axis is None else np.expand_dims(values, self.axis)
        return values if chosen.ndim else values[0]


class _ReadAhead:
    """Reads the chunks of successive batches in threads, as far ahead as the buffer allows, and forgets those done."""

    def __init__(self, chunks: Chunks, batches: Sequence[np.ndarray], names: Sequence[str]):
        self.chunks, self.names = chunks, names
        self._needed = [np.unique(chunks.chunk_of(rows)).tolist() for rows in batches]
        self._last = {number: batch for batch, needed in enumerate(self._needed) for number in needed}
        first: dict[int, int] = {}
        for batch, needed in enumerate(self._needed):
            for number in needed:
                first.setdefault(number, batch)
        self._coming = sorted(first.items(), key=lambda item: item[1])  # chunk and the first batch that needs it
        self._coming.reverse()
        self._held: dict[int, Future[Mapping[str, np.ndarray]]] = {}
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="consilience-shards")

    def advance(self, batch: int) -> None:
        """Forget what no batch from this one on needs, and start to read what comes next."""
        for number in [number for number in self._held if self._last[number] < batch]:
            del self._held[number]
        rows = sum(map(self.chunks.size, self._held))
        while self._coming:
            number, needed_in = self._coming[-1]
            rows += self.chunks.size(number)
            if rows > self.chunks.buffer and needed_in > batch:
                return
            self._coming.pop()
            self._held[number] = self._pool.submit(self._read, number)

    def _read(self, number: int) -> Mapping[str, np.ndarray]:
        if not self.chunks.fit:
            return self.chunks.read(number, self.names)
        found = self.chunks.kept(number, self.names)
        if found is None:
            found = self.chunks.read(number, self.names)
            self.chunks.keep(number, found)
        return found

    def take(self, number: int, name: str) -> np.ndarray | None:
        """Return a modality of a chunk that was asked for, or None."""
        coming = self._held.get(number)
        if coming is None or name not in self.names:
            return None
        try:
            return coming.result()[name]
        except CancelledError:  # these batches have ended, and another thread reads the same chunk
            return None

    def end(self) -> None:
        """Wait for the threads, and forget what they have read."""
        self._pool.shutdown(cancel_futures=True)
        self._held.clear()


def rows_of_bytes(columns: Mapping[str, Column], size: int) -> int:
    """Return how many rows take so many bytes, at least one.

    >>> rows_of_bytes({"image": Column((3, 8, 8), np.dtype("uint8"))}, size=2**20)
    5461
    """
    row = sum(
        int(np.prod(shape)) * (_OBJECT if dtype.hasobject else dtype.itemsize) for shape, dtype in columns.values()
    )
    return max(1, size // max(1, row))


def chunks_of(values: Mapping[str, Any]) -> Chunks | None:
    """Return the chunks of which all values that are not in memory are modalities; None if there are no such."""
    found = {
        id(value.base.chunks): value.base.chunks
        for value in values.values()
        if isinstance(value, MappedRows) and isinstance(value.base, ChunkedRows)
    }
    return next(iter(found.values())) if len(found) == 1 else None
