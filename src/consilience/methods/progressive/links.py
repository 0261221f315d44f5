"""Links that add: how the context `[batch, width]` reaches a hidden tensor.

A link acts on channels and broadcasts over time and space, so that its size does not depend on the number of pixels
or steps. New links are silent: the looped model starts out as the base model, whatever the number of passes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.rnn import PackedSequence

from consilience.core.errors import InputError
from consilience.methods.progressive.dry_run import find_readers

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MODES = ("add", "concat")
# Up to so many channels a convolution reads an image, not the features of another layer.
FEW_CHANNELS = 4


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


class ImageAddition(nn.Module):
    """What a convolution's output gains when W·context is added to every pixel of its input.

    The same as `Addition` before the convolution, which is linear, but without the gradient with respect to all pixels
    of an image, which costs as much as a pass and is never needed by a base model.
    """

    def __init__(self, context: int, layer: nn.Module, *, rank: int | None = None):
        super().__init__()
        self.project = projection(context, layer.in_channels, rank)  # type: ignore[arg-type]

    def forward(self, output: Tensor, context: Tensor, received: Tensor, layer: Any) -> Tensor:
        """The layer's output for what it `received` and the context `[batch, width]`."""
        return output + constant_convolved(layer, self.project(context), received).to(output.dtype)


class PackedAddition(nn.Module):
    """A packed sequence, with W·context added to every step of each sample."""

    def __init__(self, context: int, channels: int, *, rank: int | None = None):
        super().__init__()
        self.project = projection(context, channels, rank)

    def forward(self, packed: PackedSequence, context: Tensor, mask: Tensor | None = None) -> PackedSequence:
        """One addition for all steps of all samples."""
        fed = self.project(context).to(packed.data.dtype)
        return packed._replace(data=packed.data + fed[samples_of(packed)])


def constant_convolved(layer: Any, constants: Tensor, like: Tensor) -> Tensor:
    """A convolution, without its bias, of maps that are constant in every channel: constants `[batch, channel]`.

    like: a tensor of the maps' extent. What one unit in each channel gives is convolved once for all samples, borders
    included; that is cheap for few channels.

    >>> layer, map = nn.Conv1d(2, 3, 3, padding=1, bias=False), torch.randn(4, 2, 1).expand(-1, -1, 5)
    >>> torch.allclose(constant_convolved(layer, map[..., 0], map), layer(map), atol=1e-6)
    True
    """
    channels, extent = like.shape[1], like.shape[2:]
    units = torch.eye(channels, dtype=like.dtype, device=like.device)
    units = units.view(channels, channels, *[1] * len(extent)).expand(-1, -1, *extent)
    gains = layer._conv_forward(units, layer.weight, None)  # [channel in, channel out, …]
    return torch.tensordot(constants.to(gains.dtype), gains, dims=1)


def build_addition(
    module: nn.Module | None,
    run: Callable[[Tensor], Any],
    hidden: Tensor,
    *,
    context: int,
    axis: int,
    rank: int | None,
) -> tuple[Addition | ImageAddition, list[Any]]:
    """The link that adds to what a module receives, and the layers to hook it to: none, for one before the module.

    run: the module, given what it receives; hidden: what it received in a dry run.
    """
    first = None if module is None else first_layer(module)
    if isinstance(first, CONVOLUTIONS) and axis == 1 and first.in_channels <= FEW_CHANNELS:
        readers, around = find_readers([first], run, hidden)
        seen = readers.get(first, [])
        if not around and len(seen) == 1 and torch.equal(seen[0], hidden):
            return ImageAddition(context, first, rank=rank), [first]
    return Addition(context, hidden.shape[axis], axis=axis, rank=rank), []


def along(fed: Tensor, dimensions: int, axis: int) -> Tensor:
    """`[batch, channel]` → `[batch, 1, …, channel, …, 1]`, to be broadcast.

    >>> along(torch.zeros(5, 3), 4, 1).shape, along(torch.zeros(5, 3), 3, -1).shape
    (torch.Size([5, 3, 1, 1]), torch.Size([5, 1, 3]))
    """
    shape = [len(fed)] + [1] * (dimensions - 1)
    shape[axis % dimensions] = fed.shape[1]
    return fed.view(shape)


def channel_axis(hidden: Tensor, layer: nn.Module | None = None) -> int:
    """Where the channels of a hidden tensor are: as the layer that reads or gives it has them; else second in maps.

    >>> image = torch.zeros(2, 3, 8, 8)
    >>> channel_axis(image), channel_axis(image, nn.Linear(8, 4)), channel_axis(torch.zeros(2, 5, 3))
    (1, -1, -1)
    """
    if isinstance(layer, (*CONVOLUTIONS, _BatchNorm)):
        return 1
    return -1 if hidden.ndim < 4 or isinstance(layer, nn.Linear | nn.LayerNorm) else 1


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
