"""Callbacks that show each epoch's losses and validation figures: progress, TensorBoard and MLflow."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.file_names import file_name
from consilience.core.progress_lines import Occasionally, say_progress
from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun
    from consilience.training.training_log import Log


# Shared: a method that is trained in parts has many runs, each with a callback of its own.
_LINES = Occasionally(10.0)
_VALIDATION = "validation_"
EVERY_LINE = 2  # the verbosity from which nothing is left out


class Progress(Callback):
    """Shows a bar on a terminal; elsewhere logs every epoch (level INFO), or prints one in ten seconds where none logs.

    Args:
        verbose: From 2 every epoch is printed.
    """

    def __init__(self, verbose: int = 1) -> None:
        self._say = _LINES.say if verbose < EVERY_LINE else say_progress
        self._bar: Any = None
        self._task: Any = None

    def on_phase_start(self, run: TrainingRun) -> None:
        """Show an empty bar."""
        self.begin(run.title, run.epochs)

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Show the figures of an epoch."""
        self.show(run.title, "epoch", run.epoch + 1, run.epochs, row)

    def on_phase_end(self, run: TrainingRun) -> None:
        """Remove the bar."""
        self.end()

    def begin(self, title: str, total: int) -> None:
        """Show an empty bar of so many epochs or steps."""
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
        self._task = self._bar.add_task(title, total=total, status="")

    def show(self, title: str, unit: str, done: int, total: int, row: dict[str, Any]) -> None:
        """Show the figures of a row of the log, after so many epochs or steps."""
        figures = figures_of(row)
        if self._bar is None:
            self._say(f"{title}: {unit} {done}/{total}  {_format(figures)}")
            return
        # A terminal's line has little room: validation figures decide, where there are any.
        validation = {
            name.removeprefix(_VALIDATION): value for name, value in figures.items() if name.startswith(_VALIDATION)
        }
        figures.pop("seconds", None)
        status = f"validation: {_format(validation)}" if validation else _format(figures)
        self._bar.update(self._task, completed=done, status=status)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def announce(text: str, verbose: int = 1) -> None:
    """Write that a part is trained: a line that stays above the bar on a terminal, elsewhere as a log line.

    Args:
        text: The line.
        verbose: 1: one line in ten seconds, though a log takes all; from 2 all lines are printed.
    """
    if not sys.stderr.isatty():
        (_LINES.say if verbose < EVERY_LINE else say_progress)(text)
    elif verbose >= EVERY_LINE or _LINES.due():
        print(text, file=sys.stderr, flush=True)


def say_trained(name: str, logs: Sequence[Log], seconds: float) -> None:
    """Write the last line of a training: of how many runs and epochs it consisted, and how long it took.

    Args:
        name: Of the method.
        logs: Of its runs; none for a method that the loop did not train.
        seconds: Of the whole training.
    """
    epochs = sum(len(log.rows) for log in logs)
    runs = f" in {len(logs)} runs" if len(logs) > 1 else ""
    losses = [row["validation_loss"] for log in logs for row in log.rows if "validation_loss" in row]
    best = f", lowest validation loss {min(losses):.4g}" if losses and len(logs) == 1 else ""
    counted = f", {epochs} epoch{'' if epochs == 1 else 's'}{runs}{best}" if epochs else ""
    say_progress(f"{name}: trained in {seconds:.1f} s{counted}")


class TensorBoardCallback(Callback):
    """Writes TensorBoard event files: `tensorboard --logdir FOLDER` shows them. Needs `consilience[tensorboard]`.

    Args:
        folder: Each training run writes to a subfolder of its own, `0-concat`, `1-concat`, ….

    Example:
        >>> from consilience.training import Trainer
        >>> trainer = Trainer(callbacks=[TensorBoardCallback("runs")])
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._writer: Any = None

    def on_train_start(self, run: TrainingRun) -> None:
        """Open an event file and write the settings."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("TensorBoardCallback", "tensorboard") from error
        self._writer = SummaryWriter(str(_new_folder(self.folder, run.method.replace(":", "-"))))
        rows = [f"| {name} | {value} |" for name, value in run.describe().items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]))

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Write an epoch's figures."""
        for name, value in figures_of(row).items():
            self._writer.add_scalar(name, value, len(run.log.rows))

    def on_train_end(self, run: TrainingRun) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _new_folder(parent: Path, name: str) -> Path:
    """Create the folder of a run with the next number; copies of a callback, as in cross-validation, share a parent."""
    parent.mkdir(parents=True, exist_ok=True)
    number = sum(1 for _ in parent.iterdir())
    while True:
        try:
            (folder := parent / file_name(f"{number}-{name}")).mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


class MLflowCallback(Callback):
    """Logs settings and figures to MLflow, each training run as a run of its own. Needs `consilience[mlflow]`.

    Args:
        experiment: Name of the experiment; it is created if it does not exist.
        tracking_uri: Where MLflow keeps its data. None: as MLflow is configured.

    Example:
        >>> from consilience.training import Trainer
        >>> trainer = Trainer(callbacks=[MLflowCallback("fusion", tracking_uri="http://localhost:5000")])
    """

    def __init__(self, experiment: str = "consilience", tracking_uri: str | None = None):
        self.experiment, self.tracking_uri = experiment, tracking_uri
        self._client: Any = None
        self._run = ""

    def on_train_start(self, run: TrainingRun) -> None:
        """Create a run and log the settings."""
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise _missing("MLflowCallback", "mlflow") from error
        self._client = MlflowClient(self.tracking_uri)
        known = self._client.get_experiment_by_name(self.experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(self.experiment)
        self._run = self._client.create_run(experiment, run_name=run.method).info.run_id
        for name, value in run.describe().items():
            self._client.log_param(self._run, name, value)

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Log an epoch's figures."""
        for name, value in figures_of(row).items():
            self._client.log_metric(self._run, name, value, int(time.time() * 1000), len(run.log.rows))

    def on_train_end(self, run: TrainingRun) -> None:
        """Close the run with its status."""
        if self._client is not None:
            status = "FINISHED" if run.log.finished else "KILLED" if run.log.interrupted else "FAILED"
            self._client.set_terminated(self._run, status)
            self._client = None


def figures_of(row: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a log row: losses, validation figures and seconds.

    >>> figures_of({"phase": "fit", "epoch": 3, "task": 0.5, "validation_loss": 0.6, "seconds": 1.0})
    {'task': 0.5, 'validation_loss': 0.6, 'seconds': 1.0}
    """
    return {name: value for name, value in row.items() if isinstance(value, float) and math.isfinite(value)}


def _missing(callback: str, extra: str) -> InputError:
    return InputError(f"{callback} needs {extra}, which is not installed: pip install 'consilience[{extra}]'")


def _format(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
