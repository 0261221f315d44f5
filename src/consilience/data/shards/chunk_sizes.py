"""How shards are cut into the chunks that are read at once, so that several of them fit into the buffer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from consilience.core.chunked_rows import BUFFER_BYTES, Column, rows_of_bytes
from consilience.core.errors import InputError

# Half of the buffer is shuffled together while the other half is read: with fewer chunks little would be mixed.
_CHUNKS = 16


class Piece(NamedTuple):
    """Successive rows of one shard."""

    shard: int
    start: int
    stop: int


def settle_buffer(columns: Mapping[str, Column], buffer: int | None) -> tuple[int, int]:
    """Return the largest number of rows of a chunk, and the rows of the buffer.

    Args:
        columns: What a row holds.
        buffer: As the user gave it. None: as many rows as take 256 MiB.
    """
    if buffer is not None and buffer < 1:
        raise InputError(f"shards: buffer must be a number of rows ≥ 1, got {buffer}")
    rows = rows_of_bytes(columns, BUFFER_BYTES) if buffer is None else buffer
    return max(1, rows // _CHUNKS), rows


def cut_shards(rows: Sequence[int], most: int) -> tuple[list[Piece], np.ndarray]:
    """Return the chunks of shards with these numbers of rows, and the row at which each begins `[chunk + 1]`.

    >>> pieces, starts = cut_shards([5, 2], most=3)
    >>> pieces[1:], starts.tolist()
    ([Piece(shard=0, start=2, stop=5), Piece(shard=1, start=0, stop=2)], [0, 2, 5, 7])
    """
    pieces = []
    for shard, count in enumerate(rows):
        edges = np.linspace(0, count, -(-count // most) + 1).round().astype(int).tolist()
        pieces += [Piece(shard, start, stop) for start, stop in itertools.pairwise(edges)]
    return pieces, np.cumsum([0, *(piece.stop - piece.start for piece in pieces)])
