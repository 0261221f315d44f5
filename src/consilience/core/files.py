"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import InputError


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
    """Yield an empty temporary folder beside the target; after the block it replaces the target as a whole.

    A symbolic link stays, and what it points to is replaced. The new folder has the mode of the old one.

    Raises:
        InputError: If the target exists and is not a folder.
    """
    target = path.resolve()
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file, and a folder cannot be written in its place; choose another path")
    temporary, old = _beside(target, "part"), _beside(target, "old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
            os.replace(target, old)
        os.replace(temporary, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
        for rest in (temporary, old):
            if rest.exists():
                rest.chmod(0o700)  # the content of a folder without write permission cannot be removed
                shutil.rmtree(rest, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    """A hidden name in the same folder that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.{ending}")
