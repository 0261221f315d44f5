"""Progress of training: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun

logger = logging.getLogger("consilience")
_VALIDATION = "validation_"


class Progress(Callback):
    """Shows a bar on a terminal; elsewhere writes a log line (level INFO) per epoch."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def on_phase_start(self, run: TrainingRun) -> None:
        """Show an empty bar."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        counted = TextColumn("{task.completed}/{task.total}")
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=10), counted)
        status = TextColumn("{task.fields[status]}")
        self._bar = Bar(*columns, TimeRemainingColumn(), status, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(run.title, total=run.epochs, status="")

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Show the figures of an epoch."""
        figures = {name: value for name, value in row.items() if isinstance(value, float)}
        if self._bar is None:
            logger.info("%s: epoch %d/%d  %s", run.title, run.epoch + 1, run.epochs, _format(figures))
            return
        # A terminal's line has little room: validation figures decide, where there are any.
        prefix = len(_VALIDATION)
        validation = {name[prefix:]: value for name, value in figures.items() if name.startswith(_VALIDATION)}
        figures.pop("seconds", None)
        status = f"validation: {_format(validation)}" if validation else _format(figures)
        self._bar.update(self._task, completed=run.epoch + 1, status=status)

    def on_phase_end(self, run: TrainingRun) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _format(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
