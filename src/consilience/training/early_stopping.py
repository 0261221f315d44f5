"""Early stopping: epochs without a lower validation loss are counted, for one model or for many trained at once."""

from __future__ import annotations

import math
from typing import Any


class EarlyStopping:
    """The lowest validation loss of each model, its epoch, and how many epochs have passed since.

    Args:
        patience: Epochs without a lower loss after which a model has ended. None: it never ends.
        models: How many models are trained at once.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.improves(loss, epoch) for epoch, loss in enumerate([0.5, 0.4, 0.6, 0.4])]
        [True, True, False, False]
        >>> stopping.best_epoch, stopping.ended()
        ([1], True)
    """

    def __init__(self, patience: int | None, models: int = 1):
        self.patience = patience
        self.best = [math.inf] * models
        self.best_epoch: list[int | None] = [None] * models
        self.stale = [0] * models

    def improves(self, loss: float, epoch: int, model: int = 0) -> bool:
        """Take note of a model's validation loss in an epoch (from 0); return whether it is the lowest so far."""
        if loss < self.best[model]:
            self.best[model], self.best_epoch[model], self.stale[model] = loss, epoch, 0
            return True
        self.stale[model] += 1
        return False

    def ended(self, model: int = 0) -> bool:
        """Whether the loss of a model has not fallen for `patience` epochs."""
        return self.patience is not None and self.stale[model] >= self.patience

    def state(self) -> dict[str, Any]:
        """Return what changes over time."""
        return {"best": self.best, "best_epoch": self.best_epoch, "stale": self.stale}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.best, self.best_epoch, self.stale = state["best"], state["best_epoch"], state["stale"]
