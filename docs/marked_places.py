"""Puts what a run measured or printed into the places of a page that are marked for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

END = "<!-- end -->"


def filled(page: Path, contents: Mapping[str, str], kind: str = "measured") -> str:
    """The text of a page with each `<!-- kind: NAME -->` … `<!-- end -->` filled.

    Args:
        page: The page; it is read, not written.
        contents: What belongs into the place of each name.
        kind: The word before the names.

    Raises:
        SystemExit: The page has no place of a name.
    """
    text = page.read_text(encoding="utf-8")
    for name, content in contents.items():
        mark = f"<!-- {kind}: {name} -->"
        before, found, rest = text.partition(mark)
        _, end, after = rest.partition(END)
        if not found or not end:
            raise SystemExit(f"{page.name} has no place for {name!r}: add {mark} and {END}")
        text = f"{before}{mark}\n{content}\n{END}{after}"
    return text
