"""Files of R's `save()`, read by the package rdata."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InputError, UnsupportedError
from consilience.data.files.damaged_files import reason_of
from consilience.data.files.size_limits import check_unpacked, most_bytes, read_limited

_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ"
_XZ_MEMORY = 2**29  # bytes of working memory; xz itself never asks for more than 65 MiB
_ONLY_DATA: ContextVar[bool] = ContextVar("only data are read", default=False)


def read_r_data(path: Path) -> dict[str, Any]:
    """Every object in an `.rda` file by name.

    Args:
        path: Of the file.

    Returns:
        A vector is an array `[n]`, a matrix `[row, column]`, a factor the array of its labels `[n]`, a named list or a
        data frame a dict. Missing numbers are NaN. The names of rows and columns are dropped.

    Raises:
        UnsupportedError: The package rdata is not installed.
        InputError: The file is damaged, or not a file of `save()`.
    """
    try:
        import rdata
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"reading {path.name} needs the package rdata: pip install 'consilience[rdata]'"
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of R that rdata does not convert
            raw = _unpacked(path)
            altreps = _limited_sequences(rdata.parser.DEFAULT_ALTREP_MAP, path.name, path.stat().st_size)
            with _without_functions():
                parsed = rdata.parser.parse_data(raw, altrep_constructor_dict=altreps, extension=".rda")
            content = rdata.conversion.convert(parsed)
    except InputError:
        raise
    except Exception as error:  # damaged bytes fail wherever they lead the parser
        reason = reason_of(error)
        raise InputError(
            f"{path.name} is damaged, or not a file of R's save(): {reason}. Get it again, or write it in R with "
            "save(object, file=...)"
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"{path.name} is a file of R's saveRDS(); write it in R with save(object, file=...)")
    return _as_arrays(content)


def _unpacked(path: Path) -> bytes:
    """The content of a file that gzip, bzip2, xz or nothing packed, up to the limit."""
    raw = path.read_bytes()
    if raw.startswith(_GZIP):
        with gzip.open(io.BytesIO(raw)) as file:
            content = read_limited(file, path.name, len(raw))
    elif raw.startswith(_BZIP2):
        with bz2.open(io.BytesIO(raw)) as file:
            content = read_limited(file, path.name, len(raw))
    elif raw.startswith(_XZ):
        stream = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
        content = stream.decompress(raw, max_length=most_bytes(len(raw)) + 1)
        check_unpacked(path.name, len(content), len(raw))
        if not stream.eof:
            raise EOFError("the compressed content is truncated")
    else:
        return raw
    if content.startswith((_GZIP, _BZIP2, _XZ)):
        raise ValueError("it is compressed twice")
    return content


def _limited_sequences(constructors: Mapping[bytes, Any], name: str, stored: int) -> dict[bytes, Any]:
    """The same constructors of rdata; those of sequences, of which a file holds start and length, have a limit."""
    taken = 0

    def limited(construct: Callable[[Any], Any], state: Any) -> Any:
        nonlocal taken
        taken += 8 * abs(int(state.value[0]))
        check_unpacked(name, taken, stored)
        return construct(state)

    return {
        kind: partial(limited, construct) if kind.startswith(b"compact_") else construct
        for kind, construct in constructors.items()
    }


@contextmanager
def _without_functions() -> Iterator[None]:
    """Refuse compiled functions while a file is read here.

    rdata allocates a list as long as such a function says, before it looks at the rest of the file. Other uses of rdata
    in this process are not affected.
    """
    from rdata.parser._parser import Parser

    parse = Parser._parse_bytecode
    if not hasattr(parse, "__wrapped__"):

        @wraps(parse)
        def checked(self: Any, *given: Any, **named: Any) -> Any:
            if _ONLY_DATA.get():
                raise ValueError("it holds a compiled function, and only data are read")
            return parse(self, *given, **named)

        Parser._parse_bytecode = checked  # type: ignore[method-assign]
    token = _ONLY_DATA.set(True)
    try:
        yield
    finally:
        _ONLY_DATA.reset(token)


def _as_arrays(value: Any) -> Any:
    """Arrays in place of the types of pandas and xarray that rdata returns."""
    if isinstance(value, dict):
        return {str(name): _as_arrays(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_arrays(item) for item in value]
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a data frame
        return {str(name): _as_arrays(value[name].array) for name in value.columns}
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.filled(value.astype(np.float64), np.nan)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        labels = array.dtype.kind == "O" and all(isinstance(cell, str) for cell in array.flat)
        return array.astype(np.str_) if labels else array
    return value
