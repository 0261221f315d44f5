"""Shares that a method reports while it is trained, such as of pairs with a ranking loss, in the training log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods import Prediction
from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun

_SHARE = "share of "


class LoggedShares(Callback):
    """Adds up what the objective left in `prediction.extra["shares"]`, and writes each share into the epoch's row.

    `prediction.extra["shares"]` maps names to tensors `[2]`: how many are counted, and of how many. An epoch in which
    nothing could be counted has no such figure in its row.
    """

    every_process: ClassVar[bool] = True

    def __init__(self) -> None:
        self._counts: dict[str, list[Tensor]] = {}

    def on_epoch_start(self, run: TrainingRun) -> None:
        """Start from nothing."""
        self._counts = {}

    def observe(self, run: TrainingRun, prediction: Prediction, batch: Batch) -> dict[str, Tensor]:
        """Return the counts of a batch."""
        return {_SHARE + name: counts for name, counts in prediction.extra.get("shares", {}).items()}

    def on_batch_end(self, run: TrainingRun) -> None:
        """Keep the counts of a batch."""
        for name, counts in run.observed.items():
            if name.startswith(_SHARE):
                # A recorded step writes into the same memory again.
                self._counts.setdefault(name.removeprefix(_SHARE), []).append(counts.clone())

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Write the shares of the epoch into its row."""
        for name, counts in self._counts.items():
            total = torch.stack(counts).sum(dim=0)
            if run.fabric.world_size > 1:  # each process saw its share of the samples
                total = run.fabric.all_reduce(total, reduce_op="sum")
            part, whole = total.tolist()
            if whole:
                row[name] = part / whole
