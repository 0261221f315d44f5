"""What `consilience reproduce` returns, and where it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.report.document import Document


@dataclass(frozen=True)
class Reproduction:
    """A finished reproduction: its run folder, its contents as plain data, and the path of its page."""

    folder: Path
    document: Document
    page: Path


def run_folder(name: str, quick: bool, out: str | Path | None = None) -> Path:
    """Return the run folder of a reproduction: `out` if given, else a folder below `runs`, one for each size.

    Example:
        >>> run_folder("qmf-table1", quick=True).as_posix()
        'runs/qmf-table1-quick'
    """
    return Path(out) if out is not None else Path("runs") / f"{name}{'-quick' if quick else ''}"
