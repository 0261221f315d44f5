"""The images of MNIST: gzipped idx files."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np

from consilience.core.errors import InputError
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.size_limits import read_limited

_IDX_BYTES = 0x08  # the only element type that MNIST uses


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The array of a gzipped idx file of unsigned bytes with this many dimensions, as MNIST is published."""
    with reading_as(path, "a gzip file"), gzip.open(path) as file:
        content = read_limited(file, path.name, path.stat().st_size)
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, _IDX_BYTES, dimensions)) or len(content) < start:
        raise InputError(
            f"{path.name} is not an idx file of bytes with {dimensions} dimensions: it starts with {content[:4].hex()}"
        )
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist()
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path.name} should hold {'×'.join(map(str, shape))} bytes and holds {len(content) - start}. Get it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
