"""Telling how training goes: a bar on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import Any

logger = logging.getLogger("consilience")
_HELD_OUT = "validation_"


class Progress:
    """Reports epochs. verbose 0: nothing · 1: a bar on a terminal, else a log line per epoch (level INFO)."""

    def __init__(self, title: str, epochs: int, verbose: int):
        self.title, self.epochs = title, epochs
        self._bar: Any = None
        self._task: Any = None
        self._on_terminal = verbose > 0 and sys.stderr.isatty()
        self._logs = verbose > 0 and not self._on_terminal

    def __enter__(self) -> Progress:
        if self._on_terminal:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            counted = TextColumn("{task.completed}/{task.total}")
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), counted)
            status = TextColumn("{task.fields[status]}")
            self._bar = Bar(*columns, TimeRemainingColumn(), status, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.epochs, status="")
        return self

    def epoch(self, number: int, row: dict[str, float]) -> None:
        """Report epoch `number` (from 1) with its figures."""
        if self._bar is None and not self._logs:
            return
        figures = {name: value for name, value in row.items() if isinstance(value, float)}
        if self._bar is None:
            logger.info("%s: epoch %d/%d  %s", self.title, number, self.epochs, _listed(figures))
            return
        # A terminal's line has room for little: what decides, which is validation where there is one.
        held_out = {name.removeprefix(_HELD_OUT): one for name, one in figures.items() if name.startswith(_HELD_OUT)}
        figures.pop("seconds", None)
        status = f"validation: {_listed(held_out)}" if held_out else _listed(figures)
        self._bar.update(self._task, completed=number, status=status)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _listed(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
