"""How large the content of a compressed file may be, checked before or while memory is taken for it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from consilience.core.errors import InputError

# A file may unpack to so many times its size. Text and numbers shrink to a tenth, arrays of few values to a hundredth.
MOST_TIMES = 200
# Every file may unpack to so many bytes.
ALWAYS_ALLOWED = 2**30
_PIECE = 2**20
_ENCRYPTED = 0x1  # a flag of a file in a zip archive


class Unpacking(Protocol):
    """What unpacks a file piece by piece."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


def most_bytes(stored: int) -> int:
    """How many bytes a file of `stored` bytes may unpack to.

    >>> most_bytes(1000) == 2**30, most_bytes(2**30) == 200 * 2**30
    (True, True)
    """
    return max(ALWAYS_ALLOWED, MOST_TIMES * stored)


def check_unpacked(name: str, unpacked: int, stored: int, otherwise: str = "save it without compression") -> None:
    """Refuse content that is too large for the size of its file.

    Args:
        name: Of the file, for the error.
        unpacked: The bytes of its content.
        stored: The bytes of the file.
        otherwise: What to do if the file is sound.

    Raises:
        InputError: It has more bytes than `most_bytes` allows.
    """
    if unpacked > most_bytes(stored):
        raise InputError(
            f"{name} would unpack from {stored} bytes to {unpacked / 1e9:.3g} GB or more, over {MOST_TIMES} times its "
            f"size: this is damage or an attack. If it is neither, {otherwise}"
        )


def read_limited(file: Unpacking, name: str, stored: int) -> bytes:
    """The content of an open, compressed file, which is read piece by piece until the limit is reached.

    Args:
        file: What unpacks the file, such as `gzip.open(path)`.
        name: Of the file, for the error.
        stored: The size of the packed file.

    Raises:
        InputError: The content has more bytes than `most_bytes` allows.

    Example:
        >>> import gzip
        >>> packed = gzip.compress(b"abc")
        >>> read_limited(gzip.open(io.BytesIO(packed)), "a.gz", len(packed))
        b'abc'
    """
    content = io.BytesIO()
    for piece in iter(lambda: file.read(_PIECE), b""):
        content.write(piece)
        check_unpacked(name, content.tell(), stored)
    return content.getvalue()


def zip_members(archive: ZipFile, name: str, stored: int) -> Iterator[ZipInfo]:
    """The files of a zip archive, after a check of what all of them unpack to.

    Args:
        archive: Open for reading.
        name: Of the archive, for errors.
        stored: Its size.

    Raises:
        InputError: They are too large, encrypted, packed by a method that Python's own archives do not use, or two of
            them have the same name.
    """
    members = [member for member in archive.infolist() if not member.is_dir()]
    # The directory of an archive says how large its files are; zipfile reads no more than that.
    check_unpacked(name, sum(member.file_size for member in members), stored)
    names = set()
    for member in members:
        if member.flag_bits & _ENCRYPTED:
            raise InputError(f"{name}: {member.filename!r} is encrypted: save it without a password")
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InputError(
                f"{name}: {member.filename!r} is packed by method {member.compress_type}: only stored and "
                "deflated files are read"
            )
        if member.filename in names:
            raise InputError(f"{name} holds two files with the name {member.filename!r}: remove one")
        names.add(member.filename)
        yield member
