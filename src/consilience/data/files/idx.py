"""MNIST's idx format: a magic number, the sizes of the dimensions, then bytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError

_BYTES = 0x08  # the only element type MNIST uses


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read a gzipped idx file of unsigned bytes with this many dimensions."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path.name} is truncated or not a gzip file: {error}. Get it again") from error
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, _BYTES, dimensions)) or len(content) < start:
        raise InputError(
            f"{path.name} is not an idx file of bytes with {dimensions} dimensions: it starts with {content[:4].hex()}"
        )
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).astype(int)
    if len(content) - start != shape.prod():
        raise InputError(
            f"{path.name} should hold {'×'.join(map(str, shape))} bytes and holds {len(content) - start}. Get it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
