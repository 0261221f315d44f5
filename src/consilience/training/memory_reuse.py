"""Memory that training steps free, kept for the next step rather than given back to the system."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

# Of GNU's malloc.h: how much may lie free at the end of the heap, and from which size on a piece is mapped alone, which
# gives it back as soon as it is freed. 32 MiB is the most that every version takes for the second, and where its own
# rule would end; twice that is what the rule then leaves free.
_TRIM_THRESHOLD, _MOST_FREE, _USUALLY_FREE = -1, 2**31 - 1, 2**26
_MMAP_THRESHOLD, _LARGE = -3, 2**25
# Seconds after which giving back is worth looking for what is free, which in a large process takes a tenth of one.
LONG = 1.0

_lock = Lock()
_inside = 0


@contextmanager
def kept_memory(asked: bool = True) -> Iterator[bool]:
    """Inside, what is freed stays with the process; at the end of a while, what is free goes back to the system.

    A training step frees what the next one asks for again. Where the C library hands it over to the system in between,
    the system clears every page anew, which costs recurrent encoders on a CPU a fifth of their time. GNU's library can
    be told to keep it, for the whole process and what its main thread frees; in others, on a GPU and in other threads
    nothing changes. asked: whether to do anything at all. Gives whether the library keeps memory.
    """
    library = _library() if asked else None
    if library is None:
        yield False
        return
    began = time.monotonic()
    _count(library, 1)
    try:
        yield True
    finally:
        if not _count(library, -1) and time.monotonic() - began > LONG:
            library.malloc_trim(0)


def _count(library: ctypes.CDLL, more: int) -> int:
    """How many are inside now. Where nobody is, the library goes back to its usual ways."""
    global _inside
    with _lock:
        _inside += more
        library.mallopt(_TRIM_THRESHOLD, _MOST_FREE if _inside else _USUALLY_FREE)
        return _inside


@cache
def _library() -> ctypes.CDLL | None:
    """GNU's C library, told to map only large pieces alone; None where there is another, or it refuses."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library of the process itself
        return None
    if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
        return None
    return library if library.mallopt(_MMAP_THRESHOLD, _LARGE) else None
