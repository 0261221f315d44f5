"""Loggers: callbacks that write each epoch's losses and validation figures for TensorBoard or MLflow."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun


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
        self._runs = 0
        self._writer: Any = None

    def on_train_start(self, run: TrainingRun) -> None:
        """Open an event file and write the settings."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("TensorBoardCallback", "tensorboard") from error
        self._writer = SummaryWriter(str(self.folder / f"{self._runs}-{run.method.replace(':', '-')}"))
        self._runs += 1
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
