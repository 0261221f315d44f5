"""Pickles of plain arrays, read without running anything that a pickle can ask for.

Public sequence files are pickles, and to unpickle is to call whatever the file names. Here a file may name numpy's
arrays and nothing else, and even those are built by the code below from their bytes, not by numpy's own functions:
those believe what a file says about the memory of a type.
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
    """What a pickle holds: dicts, lists and tuples of arrays, strings, bytes and numbers. Anything else is refused.

    Files that Python 2 wrote are read too; their strings are taken for Latin-1, as numpy advises. Arrays of numbers are
    read-only views of the file's bytes.
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
    """What a file holds and must not."""


class _Reader(pickle.Unpickler):
    """An unpickler that knows what arrays are made of, by the names that numpy gave it over the years."""

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
    """An array as the file describes it, made once its content is known."""

    made: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *_, shape, of, fortran, content = state
        self.made = _filled(content, of, shape, "F" if fortran else "C")


class _ArrayClass:
    """Stands for `numpy.ndarray`, which a file names to say that no subclass of it follows."""


def _filled(content: Any, of: _Type, shape: tuple[int, ...], order: Literal["C", "F"]) -> np.ndarray:
    if of.read.kind == "O":  # a flat list, its last axis fastest whatever the order
        values = np.empty(len(content), dtype=object)
        values[:] = [_finished(one) for one in content]
        return values.reshape(shape)
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype=of.read).reshape(shape, order=order)


def _begin_array(*_: Any) -> _Array:
    return _Array()


def _array_of_buffer(content: Any, of: _Type, shape: tuple[int, ...], order: Literal["C", "F"]) -> _Array:
    array = _Array()
    array.made = _filled(content, of, shape, order)
    return array


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
        return value.made
    if isinstance(value, dict):
        return {_finished(key): _finished(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_finished(one) for one in value)
    if isinstance(value, _PLAIN):
        return value
    raise _Refused(f"a {type(value).__name__.strip('_')}")


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _begin_array,
    ("numpy.core.numeric", "_frombuffer"): _array_of_buffer,
    ("numpy.core.multiarray", "scalar"): _number,
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy", "dtype"): _Type,
    # How Python 3 writes bytes that Python 2 is to read.
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
}
