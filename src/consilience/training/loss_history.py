"""How hard each sample has been for each expert so far: the training losses, averaged over epochs.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, eq. 14.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.core.errors import InputError
from consilience.methods import Prediction, expert_losses
from consilience.training.callbacks import Callback

if TYPE_CHECKING:
    from consilience.training.loop import TrainingRun

_LOSSES = "expert losses"


class LossHistory(Callback):
    """Losses per sample and modality, collected while training: κ_i^m = 1/T Σ_t loss of expert m on sample i.

    Args:
        samples: Number of training samples.
        modalities: Number of modalities.
        start: The first epoch that counts (T_s, from 1).
        window: How many epochs count from there (T); None: all.
        device: Where the losses are kept.

    Example:
        >>> history = LossHistory(samples=3, modalities=2)
        >>> history.record(torch.tensor([0, 2]), torch.tensor([[1.0, 4.0], [3.0, 2.0]]), epoch=0)
        >>> history.average().tolist()
        [[1.0, 4.0], [0.0, 0.0], [3.0, 2.0]]
    """

    every_process = True

    def __init__(
        self,
        samples: int,
        modalities: int,
        *,
        start: int = 1,
        window: int | None = None,
        device: torch.device | str = "cpu",
    ):
        self.start, self.window = start, window
        self.total = torch.zeros(samples, modalities, device=device)
        self.count = torch.zeros(samples, modalities, device=device)
        # What this process recorded since the last `gather`: samples, losses, and 1 where a modality was present.
        self._fresh: list[tuple[Tensor, Tensor, Tensor]] = []
        self._tables: dict[tuple[bool, bool], Tensor] = {}  # what `past` reads at every step, computed once an epoch

    def on_epoch_start(self, run: TrainingRun) -> None:
        """Give the method's objective this history."""
        run.step.history = self

    def observe(self, run: TrainingRun, prediction: Prediction, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of the experts themselves."""
        if prediction.opinions is None:
            raise InputError(f"{type(run.module).__name__} keeps a loss history but its predictions have no opinions")
        own = prediction.extra.get("expert_losses")
        losses = expert_losses(run.module.task, prediction.opinions.detach(), batch) if own is None else own.detach()
        return {_LOSSES: losses}

    def on_batch_end(self, run: TrainingRun) -> None:
        """Record the losses of a batch."""
        assert run.batch is not None
        self.record(run.batch.index, run.observed[_LOSSES], run.batch.present, epoch=run.epoch)

    def on_epoch_end(self, run: TrainingRun, row: dict[str, Any]) -> None:
        """Make the losses of this epoch part of the past."""
        self.gather(run.fabric)

    def counts(self, epoch: int) -> bool:
        """Whether an epoch (from 0) counts."""
        return epoch + 1 >= self.start and (self.window is None or epoch + 1 < self.start + self.window)

    def record(self, index: Tensor, losses: Tensor, present: Tensor | None = None, *, epoch: int) -> None:
        """Record the losses of a batch.

        Args:
            index: Position of each sample in the training set `[batch]`.
            losses: `[batch, modality]`.
            present: Booleans `[batch, modality]`; losses of missing modalities do not count. None: all are present.
            epoch: Epoch, from 0.
        """
        if not self.counts(epoch):
            return
        counted = torch.ones_like(losses) if present is None else present
        self._fresh.append((index, losses.detach(), counted))

    def gather(self, fabric: Any = None) -> None:
        """End an epoch: add up what every process has recorded."""
        total, count = self._fresh_sums()
        if fabric is not None and fabric.world_size > 1:  # each saw its share of the samples
            total, count = fabric.all_reduce(total, reduce_op="sum"), fabric.all_reduce(count, reduce_op="sum")
        self.total += total
        self.count += count
        self._fresh.clear()
        self._tables.clear()

    def _fresh_sums(self) -> tuple[Tensor, Tensor]:
        total, count = torch.zeros_like(self.total), torch.zeros_like(self.count)
        if self._fresh:
            index, losses, counted = (torch.cat(parts) for parts in zip(*self._fresh))
            counted = counted.to(count.dtype)
            # index_add_ also serves an epoch in which a sample occurs twice.
            total.index_add_(0, index, losses.to(total.dtype) * counted)
            count.index_add_(0, index, counted)
        return total, count

    def sum(self) -> Tensor:
        """Return cumulative losses `[sample, modality]`, as the published code of Zhang et al. keeps them."""
        return self.total + self._fresh_sums()[0]

    def average(self) -> Tensor:
        """Return mean losses `[sample, modality]` (eq. 14); 0 where nothing was recorded."""
        total, count = self._fresh_sums()
        return (self.total + total) / (self.count + count).clamp(min=1)

    def seen(self, index: Tensor) -> Tensor:
        """Return whether past epochs have a loss of these samples: booleans `[batch, modality]`."""
        return self.count[index] > 0

    def past(self, index: Tensor, *, cumulative: bool = False, normalised: bool = False) -> Tensor:
        """Return the mean or cumulative losses of some samples in past epochs.

        The current epoch does not count yet, so that the order of its batches and the number of processes do not
        matter.

        Args:
            index: Positions of the samples in the training set `[batch]`.
            cumulative: The sum over epochs instead of the mean.
            normalised: Scale each modality to [0, 1] over the training samples that have it.

        Returns:
            `[batch, modality]`, 0 where no loss was recorded.
        """
        if (cumulative, normalised) not in self._tables:
            self._tables[cumulative, normalised] = self._table(cumulative, normalised)
        return self._tables[cumulative, normalised][index]

    def _table(self, cumulative: bool, normalised: bool) -> Tensor:
        values, seen = (self.total if cumulative else self.total / self.count.clamp(min=1)), self.count > 0
        if normalised:
            low = values.masked_fill(~seen, torch.inf).amin(dim=0)
            high = values.masked_fill(~seen, -torch.inf).amax(dim=0)
            values = ((values - low) / (high - low).clamp(min=1e-12)).masked_fill(~seen, 0)
        return values

    def state(self) -> dict[str, Tensor]:
        """Return what was recorded."""
        return {"total": self.total.cpu(), "count": self.count.cpu()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a saved state."""
        self.total.copy_(state["total"])
        self.count.copy_(state["count"])
        self._tables.clear()
