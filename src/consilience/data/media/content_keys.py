"""Digests of files, by which they are looked up in the cache; a file is not read again while it is as it was.

A file is as it was if the system says so: same device and number, size, time of the last write and time of the last
change of anything. Times are only as fine as a clock tick, so they count only for files that have not been written for
some seconds.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from consilience.core.row_cache import RowCache

_DIGEST = np.dtype("S32")
_SETTLED_SECONDS = 2.0


class ContentKeys:
    """Digests of files, remembered in a folder beside what is looked up by them."""

    def __init__(self, folder: Path):
        self._cache = RowCache(folder / "content", {"digests": ((), _DIGEST)}, "digests of files")

    def find(
        self, paths: Sequence[str], compute: Callable[[Sequence[str]], Sequence[bytes | str]]
    ) -> list[bytes | str]:
        """The digest of each file, or why it cannot be read; `compute` reads those that are not known."""
        before = time.time()
        stamps = [_stamp(path, before) for path in paths]
        asked = [stamp for stamp in stamps if stamp is not None]
        places = dict(zip(asked, self._cache.find(asked)))
        names = {place.piece for place in places.values() if place is not None}
        pieces = {name: self._cache.open(name, "digests").tolist() for name in names}
        known = {stamp: pieces[place.piece][place.row] for stamp, place in places.items() if place is not None}
        unknown = [row for row, stamp in enumerate(stamps) if stamp is None or stamp not in known]
        computed = dict(zip(unknown, compute([paths[row] for row in unknown])))
        new = {
            stamp: digest
            for row, digest in computed.items()
            # Unchanged since before it was read.
            if isinstance(digest, bytes) and (stamp := stamps[row]) is not None and _stamp(paths[row], before) == stamp
        }
        if new:
            self._cache.keep(list(new), {"digests": np.array(list(new.values()), dtype=_DIGEST)})
        return [computed[row] if row in computed else known[stamp] for row, stamp in enumerate(stamps)]  # type: ignore[index]


def digest_of(content: bytes, path: str) -> bytes:
    """A digest of a file's content, and of its ending, by which decoders go."""
    digest = hashlib.blake2b(os.path.splitext(path)[1].lower().encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(b"\0")
    digest.update(content)
    return digest.hexdigest().encode()


def _stamp(path: str, now: float) -> bytes | None:
    """What the system says about a file; None if it was written just now, or cannot be asked."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    if max(about.st_mtime, about.st_ctime) > now - _SETTLED_SECONDS:
        return None
    parts = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns, os.path.splitext(path)[1])
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest().encode()
