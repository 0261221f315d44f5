"""The error for a file that cannot be read, whatever the library that reads it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from consilience.core.errors import ConsilienceError, InputError

_Read = TypeVar("_Read")
_LONGEST = 300  # characters of a reason


@contextmanager
def reading_as(path: Path | str, what: str, advice: str = "Get it again") -> Iterator[None]:
    """Turn every error of reading a file into an InputError of one line that names the file.

    Damaged bytes fail wherever they lead a parser, so no list of exceptions is complete.

    Args:
        path: The file, or its name in an archive.
        what: What it should be, such as "a zip archive".
        advice: What to do; empty for none.

    Raises:
        InputError: For every error but those of this library, which pass unchanged.

    Example:
        >>> with reading_as("a.npz", "a zip archive"):
        ...     b"abc"[7]
        Traceback (most recent call last):
        consilience.core.errors.InputError: a.npz is truncated or not a zip archive: index out of range. Get it again
    """
    try:
        yield
    except (ConsilienceError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # polars' PanicException is no Exception
        name = path.name if isinstance(path, Path) else path
        end = f". {advice}" if advice else ""
        raise InputError(f"{name} is truncated or not {what}: {reason_of(error).rstrip('.')}{end}") from error


def reason_of(error: BaseException) -> str:
    """The first line of an error's message, not longer than a message should be; its type if there is none.

    >>> reason_of(ValueError("no\\nlines")), reason_of(EOFError())
    ('no', 'EOFError')
    """
    if isinstance(error, MemoryError):
        return "there is not enough memory for it"
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0].strip() if lines else type(error).__name__
    return first if len(first) <= _LONGEST else first[:_LONGEST] + "…"


def reading(path: Path, read: Callable[[], _Read]) -> _Read:
    """What `read` returns; an error of polars becomes one line that names the file."""
    if path.is_dir():
        raise InputError(f"{path.name} is a folder, not a table: give the path of a file")
    try:
        with reading_as(path, "a table"):
            return read()
    except InputError as error:
        if error.__cause__ is None:
            raise
        raise InputError(f"{path.name} cannot be read as a table: {reason_of(error.__cause__)}") from error.__cause__
