"""A table of text, which pages, consoles and files show each in their own way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A table as text: names in the first column, numbers in the others. marked: rows to be highlighted."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[int, ...] = ()
