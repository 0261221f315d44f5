"""Locks between processes, which end with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file that exists only for that; the file vanishes afterwards.

    The lock is the operating system's: it ends with the process, however that ends. The file that a killed process
    leaves is harmless, and the next holder removes it.

    Args:
        path: The file. A symbolic link is refused.
        wait: Wait until no other process holds it; if not, yields False where one does.

    Yields:
        Whether the lock is held.
    """
    import fcntl

    mine, descriptor = False, -1
    while not mine:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine = _is_at(path, descriptor)  # if not, the last holder has removed the file that was opened here
        except BlockingIOError:
            break
        finally:
            if not mine:
                os.close(descriptor)
    try:
        yield mine
    finally:
        if mine:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
