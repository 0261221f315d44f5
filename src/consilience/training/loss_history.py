"""How hard each sample has been for each expert so far: the training losses, averaged over epochs.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, eq. 14.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LossHistory:
    """Losses per sample and modality, collected while training: κ_i^m = 1/T Σ_t loss of expert m on sample i.

    start: the first epoch that counts (T_s, from 1) · window: how many epochs count from there (T), all if None.

    >>> history = LossHistory(samples=3, modalities=2)
    >>> history.record(torch.tensor([0, 2]), torch.tensor([[1.0, 4.0], [3.0, 2.0]]), epoch=0)
    >>> history.average().tolist()
    [[1.0, 4.0], [0.0, 0.0], [3.0, 2.0]]
    """

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
        # What this process saw since the last `gather`: samples, losses, and 1 where a modality was present.
        self._fresh: list[tuple[Tensor, Tensor, Tensor]] = []
        self._tables: dict[tuple[bool, bool], Tensor] = {}  # what `past` reads at every step, made once an epoch

    def counts(self, epoch: int) -> bool:
        """Whether an epoch (from 0) lies in the window."""
        return epoch + 1 >= self.start and (self.window is None or epoch + 1 < self.start + self.window)

    def record(self, index: Tensor, losses: Tensor, present: Tensor | None = None, *, epoch: int) -> None:
        """Add the losses `[batch, modality]` of the samples `index` `[batch]`; absent modalities count nothing."""
        if not self.counts(epoch):
            return
        counted = torch.ones_like(losses) if present is None else present
        self._fresh.append((index, losses.detach(), counted))

    def gather(self, fabric: Any = None) -> None:
        """Add up what every process has seen; called by the loop at the end of an epoch."""
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
        """Cumulative losses `[sample, modality]`, as the published code of Zhang et al. keeps them."""
        return self.total + self._fresh_sums()[0]

    def average(self) -> Tensor:
        """Mean losses `[sample, modality]` (eq. 14); 0 where nothing has been seen."""
        total, count = self._fresh_sums()
        return (self.total + total) / (self.count + count).clamp(min=1)

    def seen(self, index: Tensor) -> Tensor:
        """Of which modalities of some samples there is a loss from past epochs: booleans `[batch, modality]`."""
        return self.count[index] > 0

    def past(self, index: Tensor, *, cumulative: bool = False, normalised: bool = False) -> Tensor:
        """The mean or cumulative losses of some samples in past epochs: `[batch, modality]`, 0 where none was seen.

        normalised: brought to [0, 1] over the training set, each modality for itself; what was never seen (a missing
        modality) bounds nothing. The epoch under way counts nothing yet, so that the order of its batches and the
        number of processes do not matter.
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
        """What has been collected, for a checkpoint."""
        return {"total": self.total.cpu(), "count": self.count.cpu()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state."""
        self.total.copy_(state["total"])
        self.count.copy_(state["count"])
        self._tables.clear()
