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
        # What this process saw since the last `gather`; several processes each see their share of the samples.
        self._fresh_total = torch.zeros_like(self.total)
        self._fresh_count = torch.zeros_like(self.count)

    def counts(self, epoch: int) -> bool:
        """Whether an epoch (from 0) lies in the window."""
        return epoch + 1 >= self.start and (self.window is None or epoch + 1 < self.start + self.window)

    def record(self, index: Tensor, losses: Tensor, present: Tensor | None = None, *, epoch: int) -> None:
        """Add the losses `[batch, modality]` of the samples `index` `[batch]`; absent modalities count nothing."""
        if not self.counts(epoch):
            return
        counted = torch.ones_like(losses) if present is None else present.to(losses.dtype)
        # index_add_ also serves a batch in which a sample occurs twice.
        self._fresh_total.index_add_(0, index, (losses.detach() * counted).to(self.total.dtype))
        self._fresh_count.index_add_(0, index, counted.to(self.count.dtype))

    def gather(self, fabric: Any = None) -> None:
        """Share what every process has seen; called by the loop at the end of an epoch."""
        if fabric is not None and fabric.world_size > 1:
            self._fresh_total = fabric.all_reduce(self._fresh_total, reduce_op="sum")
            self._fresh_count = fabric.all_reduce(self._fresh_count, reduce_op="sum")
        self.total += self._fresh_total
        self.count += self._fresh_count
        self._fresh_total.zero_()
        self._fresh_count.zero_()

    def sum(self) -> Tensor:
        """Cumulative losses `[sample, modality]`, as the published code of Zhang et al. keeps them."""
        return self.total + self._fresh_total

    def average(self) -> Tensor:
        """Mean losses `[sample, modality]` (eq. 14); 0 where nothing has been seen."""
        return self.sum() / (self.count + self._fresh_count).clamp(min=1)

    def normalised(self, index: Tensor, cumulative: bool = False) -> Tensor:
        """The losses of some samples, brought to [0, 1] over the training set per modality: `[batch, modality]`.

        What has never been seen (a missing modality) bounds nothing, and is 0 itself.
        """
        values, seen = (self.sum() if cumulative else self.average()), self.count + self._fresh_count > 0
        low = values.masked_fill(~seen, torch.inf).amin(dim=0)
        high = values.masked_fill(~seen, -torch.inf).amax(dim=0)
        scaled = (values[index] - low) / (high - low).clamp(min=1e-12)
        return scaled.masked_fill(~seen[index], 0)

    def state(self) -> dict[str, Tensor]:
        """What has been collected, for a checkpoint."""
        return {"total": self.total.cpu(), "count": self.count.cpu()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state."""
        self.total.copy_(state["total"])
        self.count.copy_(state["count"])
