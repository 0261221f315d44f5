"""Where shards are: a folder, a glob, or a URL that fsspec opens; sorted by name, with numbers by their value."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from consilience.core.errors import InputError, MissingDataError, wrapped

PARQUET, ARROW = (".parquet",), (".arrow", ".feather", ".ipc")
TABLE_SHARDS = (*PARQUET, *ARROW)
# NAME-NUMBER.npy is one shard of the array NAME.
NUMBERED = re.compile(r"(?P<name>.+)-(?P<number>\d+)\.npy")
_GLOB = re.compile(r"[*?\[]")


def is_url(place: Any) -> bool:
    """Whether a place is a URL, such as s3://bucket/folder.

    >>> is_url("s3://bucket/part-*.parquet"), is_url("C:/data"), is_url(Path("data"))
    (True, False, False)
    """
    return isinstance(place, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", place) is not None


def names_shards(place: Any, target: str | None = None) -> bool:
    """Whether a place is a URL, a glob, an Arrow file, or a folder of shards.

    Args:
        place: What `load_data` was given.
        target: The array of targets. A folder of `.npy` has shards if this one is there by number only.
    """
    if is_url(place):
        return True
    if not isinstance(place, str | os.PathLike):
        return False
    path = Path(place)
    if not path.exists():
        return _GLOB.search(str(place)) is not None
    if path.is_file():
        return path.name.lower().endswith(ARROW)
    names = [file.name for file in path.iterdir()]
    if any(name.lower().endswith(TABLE_SHARDS) for name in names):
        return True
    target = target or "y"
    numbered = [found["name"] for name in names if (found := NUMBERED.fullmatch(name))]
    return target in numbered and f"{target}.npy" not in names


def find_shards(place: str | os.PathLike[str]) -> list[str]:
    """Return the paths or URLs of the shards, in order.

    Raises:
        MissingDataError: There is no file of a known ending.
        InputError: There are files of different formats.
    """
    found = _remote(str(place)) if is_url(place) else _local(Path(place))
    found = [name for name in found if name.lower().endswith((*TABLE_SHARDS, ".npy"))]
    if not found:
        raise MissingDataError(
            f"there is no file {str(place)!r}, and no shards in it or like it: files of {', '.join(TABLE_SHARDS)} or "
            ".npy are read as shards"
        )
    kinds = {Path(name).suffix.lower() for name in found}
    if len(kinds) > 1:
        raise InputError(
            f"{str(place)!r} holds shards of different formats ({', '.join(sorted(kinds))}): give those of one as a "
            "glob, such as folder/*.parquet"
        )
    return sorted(found, key=_by_number)


def _local(path: Path) -> list[str]:
    if path.is_dir():
        return [str(file.absolute()) for file in path.iterdir() if file.is_file()]
    if path.is_file():
        return [str(path.absolute())]
    return [os.path.abspath(name) for name in glob.glob(str(path), recursive=True) if os.path.isfile(name)]


def _remote(url: str) -> list[str]:
    system, path = _system(url)
    try:
        if _GLOB.search(path):
            found = system.glob(path)
        elif system.isdir(path):
            found = [entry["name"] for entry in system.ls(path, detail=True) if entry["type"] == "file"]
        else:
            found = [path]
    except Exception as error:  # of the storage: access, network, a name that does not exist
        raise wrapped(error, f"shards: {url!r} cannot be listed") from error
    return [system.unstrip_protocol(name) for name in found]


def _system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise InputError(f"{url!r} is a URL, which needs fsspec: pip install fsspec") from error
    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # s3fs or its like is not installed, or the protocol is unknown
        raise InputError(f"{url!r} cannot be opened: {error}") from error


@contextmanager
def opened(place: str) -> Iterator[IO[bytes]]:
    """Open a path or URL for reading within a block."""
    if not is_url(place):
        with Path(place).open("rb") as file:
            yield file
        return
    system, path = _system(place)
    with system.open(path, "rb") as remote:
        yield remote


def size_of(place: str) -> int:
    """Return the bytes of a file at a path or URL."""
    if not is_url(place):
        return Path(place).stat().st_size
    system, path = _system(place)
    return int(system.size(path))


def _by_number(name: str) -> list[tuple[int, str]]:
    """Names with their numbers by value, so that part-10 comes after part-2.

    >>> sorted(["part-10", "part-2"], key=_by_number)
    ['part-2', 'part-10']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
