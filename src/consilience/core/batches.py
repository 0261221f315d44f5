"""A batch: what a method sees. Tensors with the batch first, who is present, lengths, who is who, targets, weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from consilience.core.errors import InputError


class Batch:
    """Some samples as tensors on one device.

    values: name → `[batch, *shape]`, rows of missing samples are zeros · present: `[batch, modality]` booleans ·
    lengths: name → `[batch]` for sequences and tokens · index: `[batch]`, who is who in the training set ·
    y: `[batch]` class indices or `[batch, target]` numbers, or None · weight: `[batch]`.

    `complete` names the modalities known to be there for every sample. It is known on the host, so that the usual
    case needs neither masks nor a wait for the device.

    `stacked` says that this is one of many batches computed at once by `torch.func.vmap`, where rows cannot be selected
    by a mask.

    Not a dataclass on purpose: Fabric walks through dataclasses at every step, and this one is made at every step.
    """

    __slots__ = ("complete", "index", "lengths", "names", "present", "stacked", "values", "weight", "y")

    def __init__(
        self,
        values: Mapping[str, Tensor],
        present: Tensor,
        *,
        index: Tensor,
        weight: Tensor,
        lengths: Mapping[str, Tensor] | None = None,
        y: Tensor | None = None,
        complete: frozenset[str] = frozenset(),
        stacked: bool = False,
    ):
        self.values = dict(values)
        self.names = tuple(self.values)
        self.present = present
        self.lengths = dict(lengths or {})
        self.index, self.weight, self.y = index, weight, y
        self.complete, self.stacked = complete, stacked

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.index.device

    @property
    def whole(self) -> bool:
        """Whether every modality is known to be there for every sample."""
        return len(self.complete) == len(self.names)

    def present_in(self, name: str) -> Tensor:
        """Who has this modality: booleans `[batch]`."""
        return self.present[:, self.names.index(name)]

    def select(self, rows: Tensor) -> Batch:
        """The samples of these rows, a tensor of integers on the same device."""
        return Batch(
            {name: value.index_select(0, rows) for name, value in self.values.items()},
            self.present.index_select(0, rows),
            index=self.index.index_select(0, rows),
            weight=self.weight.index_select(0, rows),
            lengths={name: length.index_select(0, rows) for name, length in self.lengths.items()},
            y=None if self.y is None else self.y.index_select(0, rows),
            complete=self.complete,
            stacked=self.stacked,
        )

    def part(self, start: int, stop: int) -> Batch:
        """The samples from `start` up to `stop`, as views: nothing is copied."""
        return Batch(
            {name: value[start:stop] for name, value in self.values.items()},
            self.present[start:stop],
            index=self.index[start:stop],
            weight=self.weight[start:stop],
            lengths={name: length[start:stop] for name, length in self.lengths.items()},
            y=None if self.y is None else self.y[start:stop],
            complete=self.complete,
            stacked=self.stacked,
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(
            {name: value.to(device, non_blocking=True) for name, value in self.values.items()},
            self.present.to(device, non_blocking=True),
            index=self.index.to(device, non_blocking=True),
            weight=self.weight.to(device, non_blocking=True),
            lengths={name: length.to(device, non_blocking=True) for name, length in self.lengths.items()},
            y=None if self.y is None else self.y.to(device, non_blocking=True),
            complete=self.complete,
            stacked=self.stacked,
        )

    def hiding(self, hidden: Tensor) -> Batch:
        """The same batch with some modalities taken away (as zeros): hidden is `[batch, modality]` booleans."""
        if hidden.shape != self.present.shape or hidden.dtype != torch.bool:
            raise InputError(
                f"what to hide must be booleans [batch, modality] = {list(self.present.shape)}, got {hidden.dtype} of "
                f"shape {list(hidden.shape)}"
            )
        column = dict(zip(self.names, hidden.T))
        return Batch(
            {
                name: value.masked_fill(column[name].view(-1, *[1] * (value.ndim - 1)), 0)
                for name, value in self.values.items()
            },
            self.present & ~hidden,
            index=self.index,
            weight=self.weight,
            lengths={name: length.masked_fill(column[name], 0) for name, length in self.lengths.items()},
            y=self.y,
            stacked=self.stacked,
        )
