"""Files and folders that are written whole or not at all.

Everything is written beside its target, flushed to disk and then moved into place. What is being written is locked, so
that a writer recognises the rest that a killed process left, and removes it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import ConsilienceError, InputError, WriteError

# Errors of a disk that takes nothing more, whatever is written.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# Earlier versions had no random digits in temporary names.
_LEFTOVER = re.compile(r"\.(?P<name>.+?)\.\d+(\.[0-9a-f]{8})?\.(?P<ending>part|old)", re.DOTALL)
_LONGEST_NAME = 200  # bytes; with what a temporary name adds, below the 255 of most file systems


def write_atomically(path: str | Path, content: bytes | str | Callable[[IO[bytes]], Any]) -> Path:
    """Write a file beside its target, then put it in its place: a crash leaves the old file or none.

    Args:
        path: The file to write. Missing folders are created.
        content: Bytes, text (written as UTF-8), or a function that writes to the open binary file it receives.

    Returns:
        The path.

    Raises:
        WriteError: If the file cannot be written, for example because the disk is full. The old file is kept.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "new" / "notes.txt", "one line").read_text()
        'one line'
    """
    path = Path(path)
    with atomic_file(path) as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces the target after the block; if the block fails, nothing is left of it.

    The new file has the mode of the old one, or what the umask gives. A symbolic link stays, and what it points to is
    replaced. A device or a pipe is written directly.

    Raises:
        WriteError: If the file cannot be written, also where the block catches or replaces the error of a write.
    """
    target = _real(path)
    if path.exists() and not path.is_file():
        with _output(path, lambda: open(path, "wb")) as file:
            yield file
        return
    with _naming(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, target.name)
        temporary, lock = _create(target, folder=False)
    assert lock is not None
    try:
        with _output(path, lambda: os.fdopen(os.dup(lock), "wb")) as file:
            yield file
        with _naming(path):
            if target.exists():
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink()
        os.close(lock)  # last: until then nobody takes the file for a leftover


@contextmanager
def _output(path: Path, opened: Callable[[], IO[bytes]]) -> Iterator[IO[bytes]]:
    """Yield a file, and write it to disk; any error of a write becomes a `WriteError` that names the path."""
    with _naming(path):
        file = _Output(opened())
    try:
        yield file  # type: ignore[misc]
        with _naming(path):
            file.finish()
    except BaseException as error:
        failure = error if isinstance(error, WriteError) else file.failure
        if failure is not None:
            raise _write_error(path, failure) from failure
        raise
    finally:
        file.discard()


class _Output(io.BufferedIOBase):
    """A binary file that remembers the first error of a write, which libraries hide behind errors of their own.

    It has no file descriptor, so that they do not write past it.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.failure: OSError | None = None

    def _do(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except OSError as error:
            self.failure = self.failure or error
            raise

    def write(self, data: Any) -> int:
        return self._do(self._file.write, data)

    def flush(self) -> None:
        if not self._file.closed:  # BufferedIOBase flushes when it is collected
            self._do(self._file.flush)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._do(self._file.seek, offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return self._file.seekable()

    def writable(self) -> bool:
        return True

    def finish(self) -> None:
        """Write everything to disk; raise if any write has failed."""
        if self.failure is not None:
            raise self.failure
        self._file.flush()
        _flush_to_disk(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Close, if that has not been done."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.close()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside the target; after the block it replaces the target as a whole.

    A symbolic link stays, and what it points to is replaced. The new folder has the mode of the old one. The block only
    writes to the folder: its `OSError` is that of a write.

    Raises:
        InputError: If the target exists and is not a folder.
        WriteError: If it cannot be written. The old folder is kept.
    """
    target = _real(path)
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is a file, and a folder cannot be written in its place; choose another path")
    with _naming(path), temporary_folder(target) as temporary:
        yield temporary
        for parent, _, names in os.walk(temporary, topdown=False):
            for name in (*names, "."):
                _sync(os.path.join(parent, name))
        if target.exists():
            shutil.copymode(target, temporary)
        _swap(temporary, target)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside a path for what is not complete yet; it is removed afterwards."""
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        temporary, lock = _create(path, folder=True)
    try:
        yield temporary
    finally:
        _remove(temporary)
        if lock is not None:
            os.close(lock)


def is_temporary(path: Path) -> bool:
    """Return whether a file or folder has the name of one that is not complete."""
    return _LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left in a folder, and restore what one of them had moved away and not replaced.

    Args:
        folder: Only names of the form that this module gives, and that no process holds, are touched.
        name: Only leftovers of this target; without it nothing is restored.
    """
    wanted = None if name is None else _short(name)
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for match in filter(None, map(_LEFTOVER.fullmatch, names)):
        path, moved = folder / match[0], match["ending"] == "old"
        if match["name"] != wanted and (name is not None or moved):
            continue
        lock = _lock(path, wait=moved)  # who moves a folder away holds it only until the next one is in its place
        if lock is None:
            continue
        with suppress(OSError):
            if moved and name is not None and not (folder / name).exists():
                os.replace(path, folder / name)
            else:
                _remove(path)
        os.close(lock)


def full_disk(error: BaseException) -> int | None:
    """Return the number of an error, or of one that caused it, by which the disk takes nothing more; else None."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        if isinstance(following, OSError) and following.errno in _NO_ROOM:
            return following.errno
        seen.add(id(following))
        following = following.__cause__ or following.__context__
    return None


def _real(path: Path) -> Path:
    """The path behind symbolic links."""
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # a null character, or one that no file name can hold
        raise InputError(f"cannot write {str(path)!r}: this is no path of a file ({error})") from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the target."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ConsilienceError) and not isinstance(error, WriteError):
            raise
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> WriteError:
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    if isinstance(error, shutil.Error):  # of several files; each with its source, its target and the reason
        reason = str(error.args[0][0][-1])
    made = WriteError(f"cannot write {path}: {reason}. What was there before is kept")
    made.errno = error.errno
    return made


def _swap(new: Path, target: Path) -> None:
    """Put a folder in the place of another, which is then under the name of the first."""
    if _exchange(new, target):
        return
    if not target.exists():
        os.replace(new, target)
        return
    old = _beside(target, "old")
    lock = _lock(target)
    try:
        os.replace(target, old)  # killed from here to the next move: the next reader or writer moves it back
        try:
            os.replace(new, target)
        except BaseException:
            os.replace(old, target)
            raise
        os.replace(old, new)
    finally:
        if lock is not None:
            os.close(lock)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step, so that none is ever missing; False where system or file system cannot."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return function is not None and function(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def _create(target: Path, *, folder: bool) -> tuple[Path, int | None]:
    """Create a temporary file or folder beside a target, and lock it.

    Returns:
        Its path, and the descriptor that holds the lock; None for a folder that cannot be locked here.
    """
    while True:
        path = _beside(target, "part")
        if folder:
            path.mkdir()
            lock = _lock(path, wait=True)
        else:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            _flock(lock, wait=True)
        if path.exists():  # else another process took it for a leftover before it was locked
            return path, lock
        if lock is not None:
            os.close(lock)


def _lock(path: Path, wait: bool = False) -> int | None:
    """Return a descriptor that holds a lock on a file or folder; None if another has it, or locks do not work here."""
    if os.name != "posix":
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    held = _flock(descriptor, wait)
    with suppress(OSError):
        if held and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    os.close(descriptor)
    return None


def _flock(descriptor: int, wait: bool) -> bool:
    """Lock a descriptor as long as it is open, however the process ends; False if that is not possible."""
    if os.name != "posix":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another, or on a file system without locks, where no leftover is ever removed
        return False
    return True


def _remove(path: Path) -> None:
    """Remove a temporary file or folder, as far as possible; it may be gone, and its name may have been moved."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError):
        path.chmod(0o700)  # the content of a folder without write permission cannot be removed
    shutil.rmtree(path, ignore_errors=True)


def _sync(path: str) -> None:
    """Flush a file or folder to disk."""
    if os.name != "posix" and os.path.isdir(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


def _flush_to_disk(descriptor: int) -> None:
    """Wait until everything is on disk: a full one may be noticed no earlier."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of devices and pipes, and of folders on some file systems
            raise


def _beside(path: Path, ending: str) -> Path:
    """A hidden name in the same folder that no other process or thread uses."""
    return path.with_name(f".{_short(path.name)}.{os.getpid()}.{uuid.uuid4().hex[:8]}.{ending}")


def _short(name: str) -> str:
    """The name itself, or a digest of one so long that a temporary name could not hold it."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST_NAME else hashlib.sha256(encoded).hexdigest()
