"""Whether a model is being traced for export, where Python may ask neither for values nor for the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TRACED: ContextVar[bool] = ContextVar("consilience_traced", default=False)


def is_traced() -> bool:
    """Return whether the calling thread traces a model: code then runs once for all values and numbers of rows.

    A function that usually selects rows, or stops early, computes all of them instead.

    >>> is_traced()
    False
    """
    return _TRACED.get()


@contextmanager
def tracing() -> Iterator[None]:
    """Say that what runs inside is traced."""
    token = _TRACED.set(True)
    try:
        yield
    finally:
        _TRACED.reset(token)
