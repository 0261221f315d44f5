"""The training loop with its settings and callbacks, and the trained model with everything needed to use it."""

from typing import TYPE_CHECKING, Any

from consilience.training.callbacks import Callback
from consilience.training.loop import TrainingRun
from consilience.training.loss_history import LossHistory
from consilience.training.model import Model, load_model
from consilience.training.phases import Phase
from consilience.training.settings import TrainingSettings
from consilience.training.trainer import Trainer
from consilience.training.training_log import Log

if TYPE_CHECKING:
    from consilience.training.loggers import MLflowCallback, TensorBoardCallback

__all__ = [
    "Callback",
    "Log",
    "LossHistory",
    "MLflowCallback",
    "Model",
    "Phase",
    "TensorBoardCallback",
    "Trainer",
    "TrainingRun",
    "TrainingSettings",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Import loggers when they are used."""
    if name in ("MLflowCallback", "TensorBoardCallback"):
        from consilience.training import loggers

        return getattr(loggers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
