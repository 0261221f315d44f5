"""Warnings of reading rows, such as of a category that training did not have, collected for the answer."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from consilience.core.errors import TableWarning

_MOST, _LONGEST = 20, 1000  # warnings of one request, and characters of each
_OF_THREAD = threading.local()


@contextmanager
def collecting() -> Iterator[list[str]]:
    """Collect the table warnings of this thread, if `dispatching` is active; others are dropped.

    `warnings.catch_warnings` is one for all threads, so that it would mix the warnings of several requests.
    """
    said: list[str] = []
    _OF_THREAD.said = said
    try:
        yield said
    finally:
        _OF_THREAD.said = None


@contextmanager
def dispatching() -> Iterator[None]:
    """Give every warning to the thread that raised it, for as long as the server runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **further: Any) -> None:
            said = getattr(_OF_THREAD, "said", None)
            if said is None:
                before(message, category, *place, **further)
            elif issubclass(category, TableWarning) and len(said) < _MOST:
                said.append(" ".join(str(message).split())[:_LONGEST])

        warnings.showwarning = show
        yield
