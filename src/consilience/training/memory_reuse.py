"""Memory that training steps free, kept for the next step rather than given back to the system."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

# Of GNU's malloc.h: how much may be free at the end of the heap, and from which size on a piece is mapped alone, and
# returned to the system as soon as it is freed. 32 MiB is the largest value of the second that every version accepts
# (and where its own adaptive rule ends); that rule then leaves twice as much free.
_TRIM_THRESHOLD, _MOST_FREE, _USUALLY_FREE = -1, 2**31 - 1, 2**26
_MMAP_THRESHOLD, _LARGE = -3, 2**25
# Seconds after which free memory is returned to the system; in a large process the search for it takes 0.1 s.
LONG = 1.0

_lock = Lock()
_inside = 0


@contextmanager
def kept_memory(enabled: bool = True) -> Iterator[bool]:
    """Keep freed memory in the process within a block; return it to the system after a block that took long.

    A training step frees memory that the next one allocates again. If the C library returns it to the system in
    between, the system clears every page again, which takes a fifth of the time of recurrent encoders on a CPU. GNU's
    library can be set to keep the memory that the main thread frees; with other libraries, on a GPU and in other
    threads nothing changes. Yields whether the library keeps memory.
    """
    library = _library() if enabled else None
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
    """The number of open blocks after this change. With none, the library's usual setting is restored."""
    global _inside
    with _lock:
        _inside += more
        library.mallopt(_TRIM_THRESHOLD, _MOST_FREE if _inside else _USUALLY_FREE)
        return _inside


@cache
def _library() -> ctypes.CDLL | None:
    """GNU's C library, set to map only large pieces alone; None if there is another one, or it refuses."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library of the process itself
        return None
    if not all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")):
        return None
    return library if library.mallopt(_MMAP_THRESHOLD, _LARGE) else None
