"""The one training loop, and a trained method with everything needed to use it again."""

from consilience.training.loss_history import LossHistory
from consilience.training.model import Model, load_model
from consilience.training.phases import Phase
from consilience.training.trainer import Log, Trainer

__all__ = ["Log", "LossHistory", "Model", "Phase", "Trainer", "load_model"]
