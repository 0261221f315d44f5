"""A batch: the samples that a method receives, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from consilience.core.errors import InputError


class Batch:
    """Some samples as tensors on one device.

    Args:
        values: Name → `[batch, *shape]`; the rows of missing samples are zeros.
        present: Booleans `[batch, modality]`.
        index: Position of each sample in the training set `[batch]`.
        weight: `[batch]`.
        lengths: Name → `[batch]`, for sequences and tokens.
        y: Class indices `[batch]`, numbers `[batch, target]`, or None.
        complete: Modalities that no sample lacks. This is known on the host, so that the usual case needs neither
            masks nor a wait for the device.
        stacked: Whether this is one of many batches computed at once by `torch.func.vmap`, where rows cannot be
            selected by a mask.

    It is not a dataclass because Fabric walks through dataclasses at every step.
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
    def n(self) -> int:
        """The number of samples, without the conversion to an integer that would fix it while a model is traced."""
        return self.index.shape[0]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.index.device

    @property
    def whole(self) -> bool:
        """Whether no sample lacks a modality."""
        return len(self.complete) == len(self.names)

    def present_in(self, name: str) -> Tensor:
        """Return which samples have a modality, booleans `[batch]`."""
        return self.present[:, self.names.index(name)]

    def select(self, rows: Tensor) -> Batch:
        """Return the samples of some rows, given as integers on the same device."""
        return self._each(lambda tensor: tensor.index_select(0, rows))

    def part(self, start: int, stop: int) -> Batch:
        """Return the samples from `start` up to `stop` as views."""
        return self._each(lambda tensor: tensor[start:stop])

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with a function applied to every tensor."""
        return Batch(
            {name: change(value) for name, value in self.values.items()},
            change(self.present),
            index=change(self.index),
            weight=change(self.weight),
            lengths={name: change(length) for name, length in self.lengths.items()},
            y=None if self.y is None else change(self.y),
            complete=self.complete,
            stacked=self.stacked,
        )

    def hiding(self, hidden: Tensor) -> Batch:
        """Return the batch with some modalities missing: hidden is `[batch, modality]` booleans."""
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
