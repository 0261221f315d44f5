"""Names of sets, modalities, methods and parts as names of files: always one component, never a path."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from consilience.core.errors import InputError

MOST_BYTES = 100  # room for an ending and for the names of temporary files, of which file systems allow 255
_MOST_READABLE = 70  # bytes of a shortened name before its digest
# Reserved on some file system; "~" marks the names that were changed.
_RESERVED = frozenset('<>:"/\\|?*~')
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)


def file_name(name: str, among: Iterable[str] = ()) -> str:
    r"""Return the name of a file or folder for any name; different names have different files.

    An ordinary name is returned unchanged. Any other is returned as what is readable of it, "~" and a digest: paths,
    `.` and `..`, hidden and empty names, control characters, lone surrogates, reserved names of Windows, blanks at an
    end, and more than 100 bytes.

    Args:
        name: Any string.
        among: Other names in the same folder. A name that some file systems do not distinguish from one of them, such
            as "A" from "a", gets a digest too.

    Returns:
        One path component of at most 100 bytes.

    Example:
        >>> file_name("sensors"), file_name("../sensors")
        ('sensors', '___sensors~66767de9d2dd62cc99b443e9')
        >>> file_name("Audio"), file_name("Audio", among=["audio"])
        ('Audio', 'Audio~bc1b88907d3b748af99cb9d4')
    """
    shared = _folded(name) in map(_folded, among)
    if not shared and _is_ordinary(name) and _is_ordinary(unicodedata.normalize("NFKC", name)):
        return name
    readable = "".join(char if char.isalnum() or char in "-_" else "_" for char in unicodedata.normalize("NFC", name))
    shortened = readable.encode()[:_MOST_READABLE].decode(errors="ignore") or "name"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"{shortened}~{digest}"


def check_text(what: str, name: str) -> None:
    """Raise an error if a name has lone surrogates: such text can be written to no table, file or terminal."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} {name!r} has a lone surrogate at position {error.start}, half a character that cannot be written "
            "to a table or a file: rename it"
        ) from None


def path_inside(folder: Path, *names: str) -> Path:
    """Return the path of what a folder of ours holds; raise an error if a symbolic link stands in the way.

    What is written to, replaced or removed below a run folder must be in it.
    """
    path = folder
    for name in names:
        path = path / name
        if path.is_symlink():
            raise InputError(
                f"{path} is a symbolic link, and nothing outside {folder} is written or removed: "
                "delete the link, or choose another folder"
            )
    return path


def _is_ordinary(name: str) -> bool:
    """Whether every file system stores a file under this name as it is."""
    return (
        name.isprintable()  # no control characters, no surrogates, no marks of direction
        and name == unicodedata.normalize("NFC", name)
        and 0 < len(name.encode()) <= MOST_BYTES
        and name == name.strip().rstrip(".")
        and not name.startswith(".")
        and _RESERVED.isdisjoint(name)
        and name.partition(".")[0].strip().casefold() not in _DEVICES
    )


def _folded(name: str) -> str:
    """What is left of a name on a file system that ignores case and the form of accents."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
