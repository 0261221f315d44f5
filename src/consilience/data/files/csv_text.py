"""The text of CSV and TSV files: packed or not, its first line, and its records in blocks."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError
from consilience.data.files.size_limits import read_limited

# The first bytes of what polars unpacks: gzip, zlib and zstd.
_PACKED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")
_LONGEST_RECORDS = 2**30  # bytes of the lines that are read at a time
_PIECE = 2**21  # bytes that are searched for short rows at a time


def separator(path: Path) -> str:
    """The character between the cells of a text table."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def plain_text(path: Path) -> Path | bytes:
    """What polars reads a text table from: the path, or the content of a packed file up to the limit."""
    if not path.name.lower().endswith(".gz"):
        return path.absolute()  # polars replaces a leading ~
    with gzip.open(path) as file:
        return read_limited(file, path.name, path.stat().st_size)


def csv_header(path: Path) -> list[str]:
    """The cells of the first line of a text table, before polars renames columns of the same name."""
    import polars as pl

    first = io.BytesIO(first_record(path))
    cells = pl.read_csv(first, separator=separator(path), has_header=False, infer_schema_length=0).row(0)
    return [cell or "" for cell in cells]


def first_record(path: Path) -> bytes:
    """The bytes of the header of a text table, the end of the line included."""
    with _open_text(path) as file:
        return _header_record(file)


def _open_text(path: Path) -> Any:
    """A text table, open for reading bytes.

    Raises:
        InputError: It is packed, but its name does not say so; polars would unpack it without a limit.
    """
    if path.name.lower().endswith(".gz"):
        return gzip.open(path)
    file = path.open("rb")
    if file.read(4).startswith(_PACKED):
        file.close()
        raise InputError(f"{path.name} is compressed: unpack it, or, if gzip packed it, let its name end in .gz")
    file.seek(0)
    return file


def text_blocks(path: Path, lines: int) -> Iterator[bytes]:
    """The text of a file, `lines` lines at a time after the header, never cut inside quotes."""
    with _open_text(path) as file:
        header = _header_record(file)
        while block := _whole_records(file, lines):
            yield header + block


def check_row_widths(path: Path, width: int) -> None:
    """Refuse a row with more or fewer cells than the header, such as one with a decimal comma, or one that is cut off.

    Raises:
        InputError: The message has the first such row.
    """
    row = -1  # the header
    with _open_text(path) as file, suppress(csv.Error):  # a cell that is too long for this reader
        for cells in csv.reader(io.TextIOWrapper(file, encoding="utf-8", errors="replace"), delimiter=separator(path)):
            if (len(cells) > width and any(cells)) or 0 < len(cells) < width:
                count = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}"
                raise InputError(
                    f"{path.name}: row {row} (counted from 0) has {count}, the header has {width}: "
                    + _width_advice(path, len(cells), width)
                )
            row += bool(cells)


def _width_advice(path: Path, cells: int, width: int) -> str:
    if cells > width:
        return "is there a comma in a number, or in text without quotes?"
    mark = "tab" if separator(path) == "\t" else "comma"
    return (
        f"is the line cut off? Complete or remove it; empty cells at its end need their {mark}s too, as "
        "polars.read_csv(path).write_csv(path) writes them"
    )


def check_short_rows(path: Path, width: int) -> None:
    """Refuse a row with fewer cells than the header, to be called if cells of the last column are empty.

    Polars reads the cells that such a row lacks as empty ones.
    """
    with _open_text(path) as file:
        header = _header_record(file)
        short = width > 1 and any(has_short_row(header + piece, separator(path), width) for piece in _pieces(file))
    if short:
        check_row_widths(path, width)


def has_short_row(text: bytes, mark: str, width: int) -> bool:
    """Whether some row of a table lacks its last cell; it may have one more if quotes stand inside its cells.

    Looking at every line in Python would take longer than reading the table. With something in the cells that are blank
    at the end of a line, polars finds a last cell empty only where it is not there.

    >>> has_short_row(b'a,b\\n1,2\\n3,\\n', ",", 2), has_short_row(b'a,b\\n1,2\\n3\\n', ",", 2)
    (False, True)
    """
    import polars as pl

    blank = mark.encode()
    text = text.rstrip(b"\r\n") + b"\n"
    marked = text.replace(blank + b"\n", blank + b"x\n").replace(blank + b"\r\n", blank + b"x\r\n")
    try:
        last = pl.read_csv(io.BytesIO(marked), separator=mark, columns=[width - 1], infer_schema=False)
    except pl.exceptions.PolarsError:  # quotes may end otherwise in a piece than in the whole file
        return True
    return last.to_series().null_count() > 0


def _pieces(file: Any) -> Iterator[bytes]:
    """The text that is left of a file, some lines at a time, never cut inside quotes."""
    left = b""
    while data := file.read(max(_PIECE, len(left))):  # twice as much where quotes are open
        left += data
        end = left.rfind(b"\n") + 1
        if end and left.count(b'"', 0, end) % 2 == 0:
            yield left[:end]
            left = left[end:]
    if left:
        yield left


def _header_record(file: Any) -> bytes:
    """The first record that is not empty; polars skips empty lines before the header."""
    while record := _whole_records(file, 1):
        if record.strip(b"\r\n"):
            return record
    return b""


def _whole_records(file: Any, lines: int) -> bytes:
    """So many lines and what belongs to the last of them, never more bytes than the limit."""
    text = io.BytesIO()
    quotes = count = 0
    while (count < lines or quotes % 2) and (line := file.readline(_LONGEST_RECORDS)):
        text.write(line)
        quotes += line.count(b'"')
        count += 1
        if text.tell() >= _LONGEST_RECORDS:
            raise InputError(f"{lines} lines have more than {_LONGEST_RECORDS} bytes: a quote is not closed, perhaps")
    return text.getvalue()
