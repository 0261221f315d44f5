"""The training loop with its settings and callbacks, and the trained model with everything needed to use it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.training.callbacks import Callback as Callback
    from consilience.training.loggers import MLflowCallback as MLflowCallback
    from consilience.training.loggers import TensorBoardCallback as TensorBoardCallback
    from consilience.training.loop import TrainingRun as TrainingRun
    from consilience.training.loss_history import LossHistory as LossHistory
    from consilience.training.model import Model as Model
    from consilience.training.model import load_model as load_model
    from consilience.training.optimizers import Phase as Phase
    from consilience.training.trainer import Trainer as Trainer
    from consilience.training.training_log import Log as Log
    from consilience.training.training_settings import TrainingSettings as TrainingSettings

# Name → its module. Loaded on first use: the settings alone need no torch.
_PUBLIC = {
    "Callback": "callbacks",
    "Log": "training_log",
    "LossHistory": "loss_history",
    "MLflowCallback": "loggers",
    "Model": "model",
    "Phase": "optimizers",
    "TensorBoardCallback": "loggers",
    "Trainer": "trainer",
    "TrainingRun": "loop",
    "TrainingSettings": "training_settings",
    "load_model": "model",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
