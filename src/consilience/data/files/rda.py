"""Files of R's `save()`: what R writes on any machine (XDR), compressed or not, as far as data go.

The format is that of R Internals, Serialization Formats. Vectors, matrices, lists, data frames and factors are read;
functions, environments and other objects of a running R are refused.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError

_DECOMPRESS = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ\x00": lzma.decompress}
_MAGIC = {b"RDX2\n": 2, b"RDX3\n": 3}
_NIL, _SYMBOL, _PAIRS, _TEXT, _LOGICAL, _INTEGER, _REAL, _COMPLEX = 0, 1, 2, 9, 10, 13, 14, 15
_STRINGS, _LIST, _COMPACT, _NOTHING, _REFERENCE = 16, 19, 238, 254, 255
_NUMBERS = {_LOGICAL: ">i4", _INTEGER: ">i4", _REAL: ">f8", _COMPLEX: ">c16"}
_ATTRIBUTES, _TAG, _LATIN = 1 << 9, 1 << 10, 1 << 14
_NOT_DATA = {
    3: "a function",
    4: "an environment",
    6: "a call",
    8: "a function",
    20: "an expression",
    25: "an S4 object",
}
_NA = -(2**31)


def read_rda(path: Path) -> dict[str, Any]:
    """Every object in the file by name.

    A vector becomes an array `[n]`, a matrix `[row, column]`, a factor its labels `[n]`, a list whose names all differ
    (a data frame too) a dict, any other a list. Integers and logicals of which some are NA become floats with nan.
    Names of rows and columns are left behind.
    """
    try:
        content = _decompress(path.read_bytes())
        if content[:5] not in _MAGIC or content[5:7] != b"X\n":
            raise InputError(
                f"{path.name} is not a file of R's save() in binary: it starts with {content[:7]!r}. Write it in R "
                "with save(object, file=...)"
            )
        return _Reader(content, path.name).objects()
    except InputError:
        raise
    except Exception as error:  # damaged bytes fail wherever they lead the reader
        raise InputError(
            f"{path.name} is truncated or damaged: {str(error) or type(error).__name__}. Get it again"
        ) from error


def _decompress(content: bytes) -> bytes:
    for magic, decompress in _DECOMPRESS.items():
        if content.startswith(magic):
            return decompress(content)
    return content


class _Reader:
    """Reads one item after another. References point at symbols seen before."""

    def __init__(self, content: bytes, name: str):
        self.content, self.name, self.place = content, name, 7
        self.symbols: list[str] = []

    def objects(self) -> dict[str, Any]:
        version, _, _ = struct.unpack(">3i", self._take(12))
        if version != _MAGIC[self.content[:5]]:
            raise ValueError(f"it says to be of version {version}")
        if version == 3:
            self._take(self._integer())  # the encoding of the machine it was written on
        found = self._pairs(self._integer())
        if self.place != len(self.content):
            raise ValueError(f"{len(self.content) - self.place} bytes are left over")
        return found

    def _take(self, count: int) -> bytes:
        end = self.place + count
        if count < 0 or end > len(self.content):
            raise EOFError(f"{count} bytes wanted, {len(self.content) - self.place} are there")
        taken, self.place = self.content[self.place : end], end
        return taken

    def _integer(self) -> int:
        return struct.unpack(">i", self._take(4))[0]

    def _item(self) -> Any:
        flags = self._integer()
        kind = flags & 0xFF
        if kind in (_NIL, _NOTHING):
            return None
        if kind == _REFERENCE:
            number = flags >> 8 or self._integer()
            if not 0 < number <= len(self.symbols):
                raise ValueError(f"it refers to a symbol {number} of {len(self.symbols)}")
            return self.symbols[number - 1]
        if kind == _SYMBOL:
            self.symbols.append(self._item())
            return self.symbols[-1]
        if kind == _PAIRS:
            return self._pairs(flags)
        if kind == _TEXT:
            length = self._integer()
            return None if length == -1 else self._take(length).decode("latin-1" if flags & _LATIN else "utf-8")
        if kind == _COMPACT:
            raise InputError(f"{self.name} holds a compact vector: write it again in R with save(..., version=2)")
        values = self._vector(kind)
        return _shaped(values, self._pairs(self._integer()) if flags & _ATTRIBUTES else {})

    def _pairs(self, flags: int) -> dict[str, Any]:
        """A chain of tagged values, from the flags of its first link on."""
        found: dict[str, Any] = {}
        while flags & 0xFF == _PAIRS:
            if flags & _ATTRIBUTES:
                self._item()
            tag = self._item() if flags & _TAG else str(len(found))
            found[tag] = self._item()
            flags = self._integer()
        if flags & 0xFF not in (_NIL, _NOTHING):
            raise ValueError(f"a list of pairs ends in type {flags & 0xFF}")
        return found

    def _vector(self, kind: int) -> Any:
        if kind not in _NUMBERS and kind not in (_STRINGS, _LIST):
            raise InputError(f"{self.name} holds {_NOT_DATA.get(kind, f'an object of type {kind}')}, which is no data")
        length = self._integer()
        if length < 0:
            raise InputError(f"{self.name} holds a vector of more than 2³¹ − 1 values, which is not read")
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            values = np.frombuffer(self._take(length * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))
            return _without_na(values, kind)
        items = [self._item() for _ in range(length)]
        return items if kind == _LIST else np.array(items, dtype=object if None in items or not items else np.str_)


def _without_na(values: np.ndarray, kind: int) -> np.ndarray:
    if kind not in (_LOGICAL, _INTEGER):
        return values
    absent = values == _NA
    if absent.any():
        return np.where(absent, np.nan, values)
    return values.astype(bool) if kind == _LOGICAL else values


def _shaped(values: Any, attributes: dict[str, Any]) -> Any:
    """Values in the form their attributes give them."""
    if isinstance(values, list):
        names = attributes["names"].tolist() if "names" in attributes else []
        differ = names and len(set(names)) == len(names)
        return dict(zip(names, values, strict=True)) if differ else values
    if (labels := attributes.get("levels")) is not None:
        return _labels(values, labels)
    shape = attributes.get("dim")
    return values if shape is None else values.reshape(shape, order="F")


def _labels(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The labels of a factor `[n]`; None where there is none."""
    absent = np.isnan(codes)
    places = np.where(absent, 1, codes).astype(np.int64) - 1
    if len(places) and not (places.min() >= 0 and places.max() < len(labels)):
        raise ValueError(f"a factor of {len(labels)} labels holds number {places.max() + 1}")
    found: np.ndarray = labels[places]
    if absent.any():
        found = found.astype(object)
        found[absent] = None
    return found
