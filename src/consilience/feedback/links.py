"""Links that add: how the context `[batch, width]` reaches a hidden tensor.

A link acts on channels and broadcasts over time and space, so that its size does not depend on the number of pixels
or steps. New links are silent: the looped model starts out as the base model, whatever the number of passes.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.rnn import PackedSequence

from consilience.errors import InputError

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MODES = ("add", "concat")


def projection(context: int, outputs: int, rank: int | None = None, *, silent: bool = True) -> nn.Sequential:
    """W: `[batch, context]` → `[batch, outputs]`, without bias; of low rank if asked; all zeros at first if silent.

    Of a low-rank W only the second factor is zero: with both at zero no gradient would ever reach either.

    >>> sum(one.numel() for one in projection(64, 32).parameters())
    2048
    >>> sum(one.numel() for one in projection(64, 32, rank=4).parameters())
    384
    """
    sizes = [context, outputs] if rank is None else [context, rank, outputs]
    layers = [nn.Linear(inner, outer, bias=False) for inner, outer in pairwise(sizes)]
    if silent:
        nn.init.zeros_(layers[-1].weight)
    return nn.Sequential(*layers)


class Addition(nn.Module):
    """hidden + W·context, on the channels of hidden."""

    def __init__(self, context: int, channels: int, *, axis: int, rank: int | None = None):
        super().__init__()
        self.axis = axis
        self.project = projection(context, channels, rank)

    def forward(self, hidden: Tensor, context: Tensor, mask: Tensor | None = None) -> Tensor:
        """hidden `[batch, …]` with channels at `axis`; where mask `[batch, part]` is False nothing is added."""
        fed = along(self.project(context).to(hidden.dtype), hidden.ndim, self.axis)
        # A mask of parts fits sequences and waveforms `[batch, step]`, which have one channel; not features.
        if mask is not None and mask.shape == hidden.shape[:2] and (hidden.ndim == 3 or fed.shape[-1] == 1):
            fed = fed * mask.view(*mask.shape, *[1] * (hidden.ndim - 2))
        return hidden + fed


class PackedAddition(nn.Module):
    """A packed sequence, with W·context added to every step of each sample."""

    def __init__(self, context: int, channels: int, *, rank: int | None = None):
        super().__init__()
        self.project = projection(context, channels, rank)

    def forward(self, packed: PackedSequence, context: Tensor, mask: Tensor | None = None) -> PackedSequence:
        """One addition for all steps of all samples."""
        fed = self.project(context).to(packed.data.dtype)
        return packed._replace(data=packed.data + fed[samples_of(packed)])


def along(fed: Tensor, dimensions: int, axis: int) -> Tensor:
    """`[batch, channel]` → `[batch, 1, …, channel, …, 1]`, to be broadcast.

    >>> along(torch.zeros(5, 3), 4, 1).shape, along(torch.zeros(5, 3), 3, -1).shape
    (torch.Size([5, 3, 1, 1]), torch.Size([5, 1, 3]))
    """
    shape = [len(fed)] + [1] * (dimensions - 1)
    shape[axis % dimensions] = fed.shape[1]
    return fed.view(shape)


def channel_axis(hidden: Tensor, receiver: nn.Module | None = None) -> int:
    """Where the channels of a hidden tensor are: as the first layer that reads it wants them; else second in maps.

    >>> image = torch.zeros(2, 3, 8, 8)
    >>> channel_axis(image), channel_axis(image, nn.Linear(8, 4)), channel_axis(torch.zeros(2, 5, 3))
    (1, -1, -1)
    """
    first = None if receiver is None else first_layer(receiver)
    if isinstance(first, (*CONVOLUTIONS, _BatchNorm)):
        return 1
    return -1 if hidden.ndim < 4 or isinstance(first, nn.Linear | nn.LayerNorm) else 1


def first_layer(module: nn.Module) -> nn.Module | None:
    """The first layer with weights of its own in a module, in the order of registration; itself if it is one."""
    for one in module.modules():
        if next(one.parameters(recurse=False), None) is not None:
            return one
    return None


def check_mode(mode: str) -> str:
    """Refuse a way of feeding back that does not exist."""
    if mode not in MODES:
        raise InputError(f"progressive: mode must be {' or '.join(map(repr, MODES))}, got {mode!r}")
    return mode


def samples_of(packed: PackedSequence) -> Tensor:
    """Which sample each row of a packed sequence's data belongs to.

    Steps lie one after another, each with its samples in the packed order, the longest first.
    """
    sizes = packed.batch_sizes.to(packed.data.device)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.arange(len(packed.data), device=packed.data.device) - starts
    return place if packed.sorted_indices is None else packed.sorted_indices[place]
