"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write_atomically(path: str | Path, content: bytes | str | Callable[[IO[bytes]], Any]) -> Path:
    """Write a file beside its target, then put it in its place: a crash leaves the old file or none.

    Args:
        path: The file to write. Missing folders are created.
        content: Bytes, text (written as UTF-8), or a function that writes to the open binary file it receives.

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "new" / "notes.txt", "one line").read_text()
        'one line'
    """
    path = Path(path)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside the target; after the block it replaces the target.

    The new file has the mode of the old one, or what the umask gives. If the block fails, nothing is left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, "part")
    try:
        yield temporary
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside the target; after the block it replaces the target as a whole."""
    path = path.absolute()
    temporary, old = _beside(path, "part"), _beside(path, "old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(temporary, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    """A hidden name in the same folder that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.{ending}")
