"""Tables that arrive piece by piece, as CSV or as one JSON object per line: their rows, without waiting for more."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError, TableWarning, listed
from consilience.data.files.damaged_files import reason_of

if TYPE_CHECKING:
    import polars

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST = 2**26  # bytes of one record
_AT_ONCE = 2**20  # bytes that are asked for at a time


def stream_rows(
    read: Callable[[int], bytes],
    name: str,
    numbers: Collection[str],
    strings: Collection[str],
    kept: Collection[str] = (),
) -> Iterator[polars.DataFrame]:
    """Yield the rows of a stream as soon as their lines are complete, some at a time.

    A stream whose first character is `{` holds one JSON object per line, where a key that a row lacks is an empty cell.
    Any other is a CSV with a header.

    Args:
        read: Returns the bytes that are there, at most as many as it is asked for, and none at the end.
        name: What error messages call the stream.
        numbers: Columns of numbers; the cells of a CSV stay strings, which the reader of a recipe parses.
        strings: Columns of strings.
        kept: Further columns to take from JSON lines; a CSV has all of its own.

    Raises:
        InputError: A line is neither; the message has its number.

    Example:
        >>> pieces = iter([b"id,x\\n1,2.5\\n2,", b"3.5\\n", b""])
        >>> [frame.rows() for frame in stream_rows(lambda size: next(pieces), "the pipe", ["x"], [], ["id"])]
        [[('1', '2.5')], [('2', '3.5')]]
    """
    blocks = _complete_lines(read, name)
    first = next((block for block in blocks if block.strip()), None)
    if first is None:
        raise InputError(f"{name} is empty: give a CSV with a header, or one JSON object per line")
    if _begins_json(first):
        text = first.removeprefix(_BYTE_ORDER_MARK).lstrip()
        yield from _json_rows(chain([text], blocks), name, numbers, strings, kept)
    else:
        yield from _csv_rows(first, blocks, name, numbers)


def _complete_lines(read: Callable[[int], bytes], name: str) -> Iterator[bytes]:
    """Whole lines, of a CSV never cut inside quotes; the last line may lack its end."""
    pending = b""
    json_lines: bool | None = None  # before there is a line that is not blank
    while data := read(_AT_ONCE):
        pending += data
        end = pending.rfind(b"\n") + 1
        if end and json_lines is None and pending.strip():
            json_lines = _begins_json(pending)
        # JSON escapes ends of lines, and its quotes may be escaped too, so they are no guide.
        if end and (json_lines or pending.count(b'"', 0, end) % 2 == 0):
            yield pending[:end]
            pending = pending[end:]
        elif len(pending) > _LONGEST:
            raise InputError(f"{name}: a row has more than {_LONGEST} bytes: a quote is not closed, perhaps")
    if pending.strip():
        yield pending


def _begins_json(text: bytes) -> bool:
    return text.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{")


def _csv_rows(first: bytes, blocks: Iterator[bytes], name: str, numbers: Collection[str]) -> Iterator[polars.DataFrame]:
    import polars as pl

    header, rest = _header(first)
    try:
        names = pl.read_csv(io.BytesIO(header), has_header=False, infer_schema=False).row(0)
    except Exception as error:  # of polars, or of text that is not UTF-8
        raise InputError(f"{name} cannot be read as CSV: {reason_of(error)}") from error
    if twice := [cell for cell, count in Counter(names).items() if count > 1 and cell]:
        raise InputError(f"{name} has two columns with the name {twice[0]!r}: rename or remove one")
    rows = 0
    for block in chain([rest], blocks):
        whole, cells = _until_ragged(block, len(names))
        frame = _parse_csv(header + whole, name, rows, numbers)
        rows += len(frame)
        if len(frame):
            yield frame
        if cells is not None:
            raise InputError(
                f"{name}: row {rows} (counted from 0) has {cells} cells, the header has {len(names)}: is the line cut "
                "off, or is there a comma in a number, or in text without quotes?"
            )
    if not rows:
        raise InputError(f"{name} has a header but no rows")


def _until_ragged(block: bytes, width: int) -> tuple[bytes, int | None]:
    """The lines of a block before the first row that has another number of cells than the header, and that number."""
    reader = csv.reader(io.StringIO(block.decode("utf-8", "replace"), newline=""))
    lines = 0
    with suppress(csv.Error):  # a cell that is too long for this reader; polars says whether it is one for a table
        for cells in reader:
            if cells and len(cells) != width:
                return b"".join(block.splitlines(keepends=True)[:lines]), len(cells)
            lines = reader.line_num
    return block, None


def _header(block: bytes) -> tuple[bytes, bytes]:
    """The header, whose names may hold ends of lines in quotes, and what follows it; empty lines before it are left."""
    block = block.lstrip(b"\r\n")
    end = block.find(b"\n") + 1
    while end and block.count(b'"', 0, end) % 2:
        end = block.find(b"\n", end) + 1
    return (block[:end], block[end:]) if end else (block + b"\n", b"")


def _parse_csv(text: bytes, name: str, rows: int, numbers: Collection[str]) -> polars.DataFrame:
    import polars as pl

    try:
        frame = pl.read_csv(io.BytesIO(text), infer_schema=False)
    except Exception as error:  # of polars, or of text that is not UTF-8
        raise InputError(f"{name} cannot be read as CSV after {rows} rows: {reason_of(error)}") from error
    blank = [
        pl.when(pl.col(column).str.strip_chars() != "").then(pl.col(column)).alias(column)
        for column in frame.columns
        if column in numbers
    ]
    return frame.with_columns(blank)


def _json_rows(
    blocks: Iterator[bytes], name: str, numbers: Collection[str], strings: Collection[str], kept: Collection[str]
) -> Iterator[polars.DataFrame]:
    import polars as pl

    lines, told = 0, False
    for block in blocks:
        texts = block.removesuffix(b"\n").split(b"\n")
        rows, wrong = [], None
        for place, text in enumerate(texts, 1):
            if text.strip():
                try:
                    rows.append(_json_object(text, name, lines + place))
                except InputError as error:  # after the rows before it
                    wrong = error
                    break
        lines += len(texts)
        if not rows and wrong is None:
            continue
        if not told and rows:
            told = True
            _tell_lacking(name, [column for column in (*numbers, *strings) if not any(column in row for row in rows)])
        columns = [_json_numbers(column, [row.get(column) for row in rows], name) for column in numbers]
        columns += [_json_strings(column, [row.get(column) for row in rows], name) for column in strings]
        columns += [_json_cells(column, [row.get(column) for row in rows]) for column in kept]
        if rows:
            yield pl.DataFrame(columns)
        if wrong is not None:
            raise wrong


def _tell_lacking(name: str, columns: Sequence[str]) -> None:
    """Say which keys the first rows do not have, since one may be misspelt."""
    if columns:
        warnings.warn(
            f"{name}: the first rows lack columns of training, whose cells are empty then: {listed(columns)}",
            TableWarning,
            stacklevel=2,
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _json_object(text: bytes, name: str, line: int) -> Mapping[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_unique)
        if b"\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name}: line {line} holds half of a character, {error.object[error.start]!r}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: line {line} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{name}: line {line} is a JSON {type(found).__name__}; every line must be an object")
    return found


def _json_numbers(column: str, cells: list[Any], name: str) -> polars.Series:
    """Numbers as floats; with a string among them all as strings, which the reader of a recipe parses."""
    import polars as pl

    for cell in cells:
        if cell is not None and not isinstance(cell, int | float | str):
            raise InputError(f"{name}: column {column!r} holds {cell!r}; a number, a string or null is allowed")
    if any(isinstance(cell, str) for cell in cells):
        texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]
        return pl.Series(column, [text if text and text.strip() else None for text in texts], dtype=pl.String)
    try:
        numbers = [None if cell is None else float(cell) for cell in cells]
    except OverflowError as error:
        raise InputError(f"{name}: column {column!r} holds a number that is too large: {error}") from error
    return pl.Series(column, numbers, dtype=pl.Float64).fill_nan(None)


def _json_strings(column: str, cells: list[Any], name: str) -> polars.Series:
    import polars as pl

    for cell in cells:
        if cell is not None and (isinstance(cell, bool) or not isinstance(cell, str | int)):
            raise InputError(f"{name}: column {column!r} holds {cell!r}, in training it held strings")
    texts = [None if cell is None else str(cell) for cell in cells]
    return pl.Series(column, texts, dtype=pl.String)


def _json_cells(column: str, cells: list[Any]) -> polars.Series:
    """Cells of any type: of the type that all have, else as strings."""
    import polars as pl

    types = {type(cell) for cell in cells if cell is not None}
    if len(types) <= 1 and types <= {str, int, float, bool}:
        with suppress(OverflowError):  # a whole number beyond 64 bits
            return pl.Series(column, cells)
    texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False) for cell in cells]
    return pl.Series(column, texts, dtype=pl.String)
