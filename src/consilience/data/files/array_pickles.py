"""Pickles of plain arrays, read without executing code from the file.

Public sequence files are pickles, and unpickling calls whatever functions a file names. Here a file may name numpy's
arrays and nothing else, and these are built from their bytes by the code below. numpy's own functions are not called,
since they trust the file's description of a type's memory layout.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.data.files.arrays import check_characters
from consilience.data.files.damaged_files import reading_as, reason_of
from consilience.data.files.pickle_opcodes import Refused, read_pickle

_KINDS = "biufSUO"  # numbers, strings of a fixed length, Python objects
_LONGEST_CODE = 20  # characters


def read_sequences_pickle(path: Path) -> Any:
    """The content of a pickle: dicts, lists and tuples of arrays, strings, bytes and numbers. Anything else is refused.

    Files of Python 2 are read too; their strings are decoded as Latin-1, as numpy advises. Arrays of numbers are
    read-only.
    """
    try:
        with (
            reading_as(path, "a pickle"),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return read_pickle(content, _find, (_Array, _Type))
    except InputError as error:
        if not isinstance(error.__cause__, Refused):
            raise
        raise InputError(
            f"{path.name} holds {reason_of(error.__cause__)}. A pickle can run any code, so arrays, dicts, lists, "
            "tuples, strings, bytes and numbers are read and nothing else"
        ) from None


def _find(module: str, name: str) -> Any:
    known = _NAMES.get((module.replace("numpy._core", "numpy.core"), name))
    if known is None:
        raise Refused(f"{module}.{name}")
    return known


class _Type:
    """The type of an array's values."""

    def __init__(self, code: str, *_: Any):
        if not isinstance(code, str) or len(code) > _LONGEST_CODE:
            raise Refused("an array of a type without a name")
        self.read = np.dtype(code)
        if self.read.kind not in _KINDS:
            raise Refused(f"an array of {self.read}")

    def build(self, state: tuple[Any, ...]) -> None:
        """Take the byte order."""
        order = state[1]  # the rest of the state repeats what the code said
        if order in ("<", ">"):
            self.read = self.read.newbyteorder(order)

    def settled(self) -> _Type:
        """Itself: types are arguments of arrays."""
        return self


class _Array:
    """An array as the file describes it; `array` is set once its content is known."""

    array: np.ndarray

    def build(self, state: tuple[Any, ...]) -> None:
        """Take the content."""
        *_, shape, of, fortran, content = state
        self.array = _filled(content, of, shape, "F" if fortran else "C")

    def settled(self) -> np.ndarray:
        """The array; an error if the file uses it before it gives its content."""
        return self.array


class _ArrayClass:
    """Replaces `numpy.ndarray`, the class that a file names for its arrays."""


def _filled(content: Any, of: _Type, shape: tuple[int, ...], order: Literal["C", "F"]) -> np.ndarray:
    if not isinstance(shape, tuple) or not all(isinstance(length, int) and length >= 0 for length in shape):
        raise ValueError("an array has a shape that is not made of whole numbers")
    if of.read.kind == "O":  # a flat list, its last axis fastest whatever the order
        values = np.empty(len(content), dtype=object)
        for place, cell in enumerate(content):  # numpy would take apart cells of the same length
            values[place] = cell
        return values.reshape(shape)
    raw = content.encode("latin1") if isinstance(content, str) else content
    values = np.frombuffer(raw, dtype=of.read).reshape(shape, order=order)
    check_characters(values)
    return values


def _begin_array(*_: Any) -> _Array:
    return _Array()


def _array_of_buffer(content: Any, of: _Type, shape: tuple[int, ...], order: Literal["C", "F"]) -> _Array:
    described = _Array()
    described.array = _filled(content, of, shape, order)
    return described


def _number(of: _Type, content: Any) -> Any:
    return _filled(content, of, (1,), "C")[0]


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise Refused(f"bytes written as {encoding!r}" if isinstance(encoding, str) else "bytes of no encoding")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _begin_array,
    ("numpy.core.numeric", "_frombuffer"): _array_of_buffer,
    ("numpy.core.multiarray", "scalar"): _number,
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy", "dtype"): _Type,
    # How Python 3 pickles bytes for Python 2.
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
}
