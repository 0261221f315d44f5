"""Pickles of plain arrays, read without executing code from the file.

Public sequence files are pickles, and unpickling calls whatever functions a file names. Here a file may name numpy's
arrays and nothing else, and these are built from their bytes by the code below. numpy's own functions are not called,
since they trust the file's description of a type's memory layout.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError

_PLAIN = (str, bytes, int, float, type(None), np.generic)
_KINDS = "biufSUO"  # numbers, strings of a fixed length, Python objects


def read_sequences_pickle(path: Path) -> Any:
    """The content of a pickle: dicts, lists and tuples of arrays, strings, bytes and numbers. Anything else is refused.

    Files of Python 2 are read too; their strings are decoded as Latin-1, as numpy advises. Arrays of numbers are
    read-only views of the bytes of the file.
    """
    try:
        with path.open("rb") as file:
            return _finished(_Reader(file, encoding="latin1").load())
    except _Refused as refused:
        raise InputError(
            f"{path.name} holds {refused}. A pickle can run any code, so arrays, dicts, lists, tuples, strings, bytes "
            "and numbers are read and nothing else"
        ) from None
    except Exception as error:  # damaged bytes fail wherever they lead the reader
        raise InputError(
            f"{path.name} is truncated or not a pickle: {str(error) or type(error).__name__}. Get it again"
        ) from error


class _Refused(Exception):
    """Content that is not allowed."""


class _Reader(pickle.Unpickler):
    """An unpickler that knows only the functions by which numpy's releases pickled arrays."""

    def find_class(self, module: str, name: str) -> Any:
        known = _NAMES.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise _Refused(f"{module}.{name}")
        return known

    def persistent_load(self, pid: Any) -> Any:
        raise _Refused(f"a reference to {pid!r} outside of itself")


class _Type:
    """The type of an array's values."""

    def __init__(self, code: str, *_: Any):
        self.read = np.dtype(code)
        if self.read.kind not in _KINDS:
            raise _Refused(f"an array of {self.read}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]  # the rest of the state repeats what the code said
        if order in ("<", ">"):
            self.read = self.read.newbyteorder(order)


class _Array:
    """An array as the file describes it; `array` is set once its content is known."""

    array: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *_, shape, of, fortran, content = state
        self.array = _filled(content, of, shape, "F" if fortran else "C")


class _ArrayClass:
    """Replaces `numpy.ndarray`, the class that a file names for its arrays."""


def _filled(content: Any, of: _Type, shape: tuple[int, ...], order: Literal["C", "F"]) -> np.ndarray:
    if of.read.kind == "O":  # a flat list, its last axis fastest whatever the order
        values = np.empty(len(content), dtype=object)
        values[:] = [_finished(cell) for cell in content]
        return values.reshape(shape)
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype=of.read).reshape(shape, order=order)


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
        raise _Refused(f"bytes written as {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _finished(value: Any) -> Any:
    """The same value with arrays where their descriptions were."""
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, dict):
        return {_finished(key): _finished(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_finished(item) for item in value)
    if isinstance(value, _PLAIN):
        return value
    raise _Refused(f"a {type(value).__name__.strip('_')}")


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
