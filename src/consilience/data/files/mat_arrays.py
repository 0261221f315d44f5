"""The arrays of numbers in a MATLAB file of version 4, 6 or 7, with every length checked before it is used.

scipy's reader trusts the lengths in a file and can end the process if one is wrong. The layout is that of MathWorks'
"MAT-File Format": a header, then elements, each with a type and a number of bytes. An element is a matrix, or zlib's
compression of one.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.data.files.damaged_files import reading_as
from consilience.data.files.size_limits import check_unpacked, most_bytes

Order = Literal["<", ">"]
_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES = range(6, 16)  # double, single, and the integers
_COMPLEX = 0x08  # a flag of a matrix
_MOST_DIMENSIONS = 32
_V4_HEADER = 20
_V4_NUMBERS = ("f8", "f4", "i4", "i2", "u2", "u1")


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """The real arrays of numbers in a MATLAB file by name; whatever else it holds is left out.

    An array has the type that it is stored with: MATLAB stores whole numbers in as few bytes as they need.

    Raises:
        InputError: The file is damaged, of version 7.3, or holds two arrays of the same name.
    """
    with reading_as(path, "a MATLAB file"):
        content = memoryview(path.read_bytes())
        found = _read_v4(content) if len(content) and 0 in content[:4].tolist() else _read_v5(path, content)
        arrays: dict[str, np.ndarray] = {}
        for name, array in found:
            if name in arrays:
                raise InputError(f"{path.name} holds two arrays with the name {name!r}: remove one")
            arrays[name] = array
        return arrays


def _read_v5(path: Path, content: memoryview) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of versions 6 and 7."""
    mark = bytes(content[_HEADER - 2 : _HEADER])
    if mark not in (b"IM", b"MI"):
        raise ValueError("its header has no mark of the byte order")
    order: Order = "<" if mark == b"IM" else ">"
    version = int(_numbers(content[_HEADER - 4 : _HEADER - 2], "u2", order)[0]) >> 8
    if version == 2:
        raise InputError(
            f"{path.name} is a MATLAB 7.3 file, which is not supported: save it again with save(..., '-v7')"
        )
    if version != 1:
        raise ValueError(f"its version is {version}")
    unpacked = 0
    for kind, data in _elements(content[_HEADER:], order):
        if kind == _COMPRESSED:
            data = memoryview(_unpack(data, most_bytes(len(content)) - unpacked, path, len(content)))
            unpacked += len(data)
            elements = list(_elements(data, order))
            if len(elements) != 1:
                raise ValueError(f"a compressed element holds {len(elements)} elements")
            kind, data = elements[0]
        if kind == _MATRIX and (found := _matrix(data, order)) is not None:
            yield found


def _unpack(data: memoryview, most: int, path: Path, stored: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(data, max(most, 1))
    if stream.unconsumed_tail:
        check_unpacked(path.name, most_bytes(stored) + 1, stored)
    if not stream.eof:
        raise ValueError("a compressed element is truncated")
    return content


def _elements(content: memoryview, order: Order) -> Iterator[tuple[int, memoryview]]:
    """The type and the bytes of each element; matrices inside a matrix have the same layout."""
    at = 0
    while at < len(content):
        tag = _taken(content, at, 8)
        first, size = (int(number) for number in _numbers(tag, "u4", order))
        if first >> 16:  # up to four bytes are stored within the tag
            size = first >> 16
            if size > 4:
                raise ValueError(f"an element of {size} bytes is stored in 4")
            yield first & 0xFFFF, tag[4 : 4 + size]
            at += 8
            continue
        yield first, _taken(content, at + 8, size)
        # Elements start at multiples of 8 bytes, but for compressed ones.
        at += 8 + size + (0 if first == _COMPRESSED else -size % 8)


def _matrix(content: memoryview, order: Order) -> tuple[str, np.ndarray] | None:
    """Name and values of a matrix, or None if it does not hold real numbers."""
    if not len(content):
        return None
    parts = _elements(content, order)
    flags = int(_integers(next(parts), order, 6)[0])
    if flags & 0xFF not in _NUMERIC_CLASSES or flags >> 8 & _COMPLEX:
        return None
    shape = tuple(int(length) for length in _integers(next(parts), order, 5))
    name = bytes(next(parts)[1]).decode("latin-1")
    kind, data = next(parts)
    if kind not in _NUMBERS:
        raise ValueError(f"{name!r} has elements of type {kind}")
    return name, _shaped(name, _numbers(data, _NUMBERS[kind], order), shape)


def _integers(element: tuple[int, memoryview], order: Order, wanted: int) -> np.ndarray:
    kind, data = element
    if kind != wanted or not len(data):
        raise ValueError(f"an element of type {kind} with {len(data)} bytes where type {wanted} is expected")
    return _numbers(data, _NUMBERS[wanted], order)


def _shaped(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if not 2 <= len(shape) <= _MOST_DIMENSIONS or min(shape) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"{name!r} has {len(values)} values and dimensions {list(shape[:_MOST_DIMENSIONS])}")
    return values.reshape(shape, order="F")


def _read_v4(content: memoryview) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of version 4: for each a header of five integers, its name, and its values."""
    file = io.BytesIO(content)
    order: Order = "<" if int(_numbers(_taken(content, 0, 4), "u4", "<")[0]) < 5000 else ">"
    while head := file.read(_V4_HEADER):
        kind, rows, columns, imaginary, name_size = (int(number) for number in _numbers(memoryview(head), "i4", order))
        digits = f"{kind:04d}"
        if len(head) < _V4_HEADER or len(digits) != 4 or digits[0] not in "01" or int(digits[2]) >= len(_V4_NUMBERS):
            raise ValueError("the header of an array is not one of version 4")
        if min(rows, columns) < 0 or imaginary not in (0, 1) or not 0 < name_size <= len(content):
            raise ValueError("the header of an array has impossible sizes")
        name = file.read(name_size).rstrip(b"\0").decode("latin-1")
        stored = np.dtype(_V4_NUMBERS[int(digits[2])])
        size = rows * columns * stored.itemsize
        data = _taken(content, file.tell(), size * (1 + imaginary))
        file.seek(len(data), io.SEEK_CUR)
        if digits[3] == "0" and not imaginary:
            yield name, _shaped(name, _numbers(data, stored.str[1:], order), (rows, columns))


def _taken(content: memoryview, start: int, size: int) -> memoryview:
    if start + size > len(content):
        raise ValueError(f"it ends within {size} bytes at {start}")
    return content[start : start + size]


def _numbers(data: memoryview, kind: str, order: Order) -> np.ndarray:
    """Values of this type, in the byte order of this machine."""
    return np.frombuffer(data, dtype=order + kind).astype(kind, copy=False)
