"""Links: the layers that bring the context `[batch, width]` into a hidden tensor, by addition or by concatenation.

A link acts on channels and broadcasts over time and space, so that its size does not depend on the number of pixels
or steps. New links contribute zero: a looped model starts with the outputs of its base model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.rnn import PackedSequence

from consilience.core.errors import UnsupportedError
from consilience.methods.progressive.dry_run import describe, find_readers

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# A convolution of at most this many input channels is taken to read an image, not the features of another layer.
IMAGE_CHANNELS = 4


def projection(context: int, outputs: int, rank: int | None = None, *, zero: bool = True) -> nn.Sequential:
    """Build W: `[batch, context]` → `[batch, outputs]`, without bias, of low rank if a rank is given.

    It starts at zero unless `zero` is False. Of a low-rank W only the second factor is zero: with both at zero no
    gradient would reach either.

    >>> sum(weight.numel() for weight in projection(64, 32).parameters())
    2048
    >>> sum(weight.numel() for weight in projection(64, 32, rank=4).parameters())
    384
    """
    sizes = [context, outputs] if rank is None else [context, rank, outputs]
    layers = [nn.Linear(inner, outer, bias=False) for inner, outer in pairwise(sizes)]
    if zero:
        nn.init.zeros_(layers[-1].weight)
    return nn.Sequential(*layers)


class Addition(nn.Module):
    """hidden + W·context, on the channels of hidden: a tensor `[batch, …]`, or a packed sequence."""

    def __init__(self, context: int, channels: int, *, axis: int = -1, rank: int | None = None):
        super().__init__()
        self.axis = axis
        self.project = projection(context, channels, rank)

    def forward(self, hidden: Any, context: Tensor, mask: Tensor | None = None) -> Any:
        """Add to hidden; where mask `[batch, step]` is False nothing is added."""
        added = self.project(context)
        if isinstance(hidden, PackedSequence):
            return hidden._replace(data=hidden.data + added.to(hidden.data.dtype)[sample_of_each_row(hidden)])
        added = on_axis(added.to(hidden.dtype), hidden.ndim, self.axis)
        # A mask of steps fits sequences, and waveforms `[batch, step]`, which have one channel; not features.
        if mask is not None and mask.shape == hidden.shape[:2] and (hidden.ndim == 3 or added.shape[-1] == 1):
            added = added * mask.view(*mask.shape, *[1] * (hidden.ndim - 2))
        return hidden + added


class ImageAddition(nn.Module):
    """The change of a convolution's output when W·context is added to every pixel of its input.

    A convolution is linear, so that this equals an `Addition` before it. It saves the gradient with respect to all
    pixels of an image, which costs as much as a pass and which a base model never needs.
    """

    def __init__(self, context: int, layer: nn.Module, *, rank: int | None = None):
        super().__init__()
        self.project = projection(context, layer.in_channels, rank)  # type: ignore[arg-type]

    def forward(self, output: Tensor, context: Tensor, received: Tensor, layer: Any) -> Tensor:
        """Return the layer's output for what it `received` and the context `[batch, width]`."""
        return output + convolve_constants(layer, self.project(context), received).to(output.dtype)


class Concatenation(nn.Module):
    """The change of a layer's output when W·context is concatenated to its input: V·W·context.

    layer([x, Wc]) = layer(x) + V·W·c with V the layer's columns for the new inputs: a `Linear` or a convolution of
    the layer's own shape. V starts at zero and W does not, so that gradients reach V at once and W after it. Adding
    to the output, rather than widening the layer, keeps the base model's numbers to the last bit.
    """

    def __init__(self, context: int, layer: nn.Module, *, rank: int | None = None):
        super().__init__()
        self.extra: nn.Module
        if isinstance(layer, nn.Linear):
            self.project = projection(context, layer.in_features, rank, zero=False)
            self.extra = nn.Linear(layer.in_features, layer.out_features, bias=False)
        else:
            assert isinstance(layer, CONVOLUTIONS)
            self.project = projection(context, layer.in_channels, rank, zero=False)
            self.extra = type(layer)(
                layer.in_channels,
                layer.out_channels,
                layer.kernel_size,  # type: ignore[arg-type]
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                dilation=layer.dilation,  # type: ignore[arg-type]
                bias=False,
                padding_mode=layer.padding_mode,
            )
        nn.init.zeros_(self.extra.weight)

    def forward(self, output: Tensor, context: Tensor, received: Tensor, layer: nn.Module) -> Tensor:
        """Return the layer's output for what it `received`, over whose extent the context is constant."""
        beside = self.project(context).to(received.dtype)
        if isinstance(self.extra, nn.Linear):
            return output + on_axis(self.extra(beside), output.ndim, -1)
        if received.shape[1] <= IMAGE_CHANNELS and beside.shape[1] == received.shape[1]:
            return output + convolve_constants(self.extra, beside, received).to(output.dtype)
        return output + self.extra(on_axis(beside, received.ndim, 1).expand(-1, -1, *received.shape[2:]))


class RecurrentConcatenation(nn.Module):
    """A recurrent layer's input with W·context beside every step, or with zeros in a pass without context.

    The layers themselves are widened in place: `columns` counts the weights that they gain.
    """

    def __init__(self, context: int, layers: Sequence[nn.RNNBase], *, rank: int | None = None):
        super().__init__()
        self.width, self.batch_first = layers[0].input_size, layers[0].batch_first
        before = sum(parameter.numel() for layer in layers for parameter in layer.parameters())
        for layer in layers:
            resize_input(layer, self.width)
        self.columns = sum(parameter.numel() for layer in layers for parameter in layer.parameters()) - before
        self.project = projection(context, self.width, rank, zero=False)

    def forward(self, x: Tensor | PackedSequence, context: Tensor | None) -> Tensor | PackedSequence:
        """Widen x: `[batch, time, feature]`, `[time, batch, feature]`, or packed."""
        data = x.data if isinstance(x, PackedSequence) else x
        if context is None:
            beside = data.new_zeros(*data.shape[:-1], self.width)
        else:
            beside = self.project(context).to(data.dtype)
            if isinstance(x, PackedSequence):
                beside = beside[sample_of_each_row(x)]
            else:
                beside = (beside[:, None] if self.batch_first else beside[None]).expand(*data.shape[:-1], -1)
        together = torch.cat([data, beside], dim=-1)
        return x._replace(data=together) if isinstance(x, PackedSequence) else together


def build_addition(
    module: nn.Module | None, run: Callable[[Tensor], Any], hidden: Tensor, *, context: int, axis: int, rank: int | None
) -> tuple[Addition | ImageAddition, list[Any]]:
    """Build the link that adds to what a module receives; also return the layers to hook it to, if it is inside.

    `run` calls the module with what it receives, which was `hidden` in a dry run. `axis` is that of its channels.
    """
    first = None if module is None else first_layer(module)
    if isinstance(first, CONVOLUTIONS) and axis == 1 and first.in_channels <= IMAGE_CHANNELS:
        readers, others = find_readers([first], run, hidden)
        received = readers.get(first, [])
        if not others and len(received) == 1 and torch.equal(received[0], hidden):
            return ImageAddition(context, first, rank=rank), [first]
    return Addition(context, hidden.shape[axis], axis=axis, rank=rank), []


def build_concatenation(
    module: nn.Module,
    run: Callable[[Tensor], Any],
    hidden: Tensor,
    *,
    context: int,
    samples: int,
    rank: int | None,
    what: str,
) -> tuple[Concatenation | RecurrentConcatenation, list[Any]]:
    """Build the link beside what a module's first layer reads, and return the layers to hook it to.

    Arguments as in `build_addition`; `samples` is the number of samples of the dry run, `what` the module's name in
    messages. Only the first layer may read what the module receives: nothing can be concatenated to what a residual
    connection carries.
    """
    refusal = f"progressive: mode='concat' cannot feed back into {what}"
    first = first_layer(module)
    if not isinstance(first, (nn.Linear, *CONVOLUTIONS, nn.RNNBase)):
        begins = "has no weights" if first is None else f"begins with {type(first).__name__}"
        raise UnsupportedError(
            f"{refusal}, which {begins}; it must begin with a linear, convolutional or recurrent layer: use mode='add'"
        )
    recurrent = isinstance(first, nn.RNNBase)
    layers = [part for part in module.modules() if isinstance(part, nn.RNNBase)] if recurrent else [first]
    readers, others = find_readers(layers, run, hidden)
    if others or first not in readers:
        raise UnsupportedError(
            f"{refusal}: what it receives is read by more than its first layer, {type(first).__name__}: use mode='add'"
        )
    for layer, received in readers.items():
        name = type(layer).__name__
        if len(received) > 1:
            raise UnsupportedError(f"{refusal}: its {name} is called {len(received)} times: use mode='add'")
        if samples_in(layer, received[0]) != samples:
            raise UnsupportedError(
                f"{refusal}: its {name} reads {describe(received[0])}, to which a context of {samples} "
                "samples cannot be broadcast: use mode='add'"
            )
    if not recurrent:
        return Concatenation(context, first, rank=rank), [first]
    if not all(parameter.requires_grad for layer in readers for parameter in layer.parameters()):
        raise UnsupportedError(
            f"{refusal}: its {type(first).__name__} is frozen and cannot learn to read the context: use mode='add'"
        )
    read_by: list[Any] = list(readers)
    return RecurrentConcatenation(context, read_by, rank=rank), read_by


def convolve_constants(layer: Any, constants: Tensor, like: Tensor) -> Tensor:
    """Convolve, without bias, maps that are constant in every channel: constants `[batch, channel]`.

    A unit in each channel is convolved once for all samples, borders included; that is cheap for few channels. `like`
    has the maps' height and width.

    >>> layer, map = nn.Conv1d(2, 3, 3, padding=1, bias=False), torch.randn(4, 2, 1).expand(-1, -1, 5)
    >>> torch.allclose(convolve_constants(layer, map[..., 0], map), layer(map), atol=1e-6)
    True
    """
    channels, extent = like.shape[1], like.shape[2:]
    units = torch.eye(channels, dtype=like.dtype, device=like.device)
    units = units.view(channels, channels, *[1] * len(extent)).expand(-1, -1, *extent)
    gains = layer._conv_forward(units, layer.weight, None)  # [channel in, channel out, …]
    return torch.tensordot(constants.to(gains.dtype), gains, dims=1)


def on_axis(values: Tensor, dimensions: int, axis: int) -> Tensor:
    """View `[batch, channel]` as `[batch, 1, …, channel, …, 1]`, to be broadcast.

    >>> on_axis(torch.zeros(5, 3), 4, 1).shape, on_axis(torch.zeros(5, 3), 3, -1).shape
    (torch.Size([5, 3, 1, 1]), torch.Size([5, 1, 3]))
    """
    shape = [values.shape[0]] + [1] * (dimensions - 1)
    shape[axis % dimensions] = values.shape[1]
    return values.view(shape)


def channel_axis(hidden: Tensor, layer: nn.Module | None = None) -> int:
    """Return the axis of a hidden tensor's channels: the one its layer uses; without a layer, the second of maps.

    >>> image = torch.zeros(2, 3, 8, 8)
    >>> channel_axis(image), channel_axis(image, nn.Linear(8, 4)), channel_axis(torch.zeros(2, 5, 3))
    (1, -1, -1)
    """
    if isinstance(layer, (*CONVOLUTIONS, _BatchNorm)):
        return 1
    return -1 if hidden.ndim < 4 or isinstance(layer, nn.Linear | nn.LayerNorm) else 1


def first_layer(module: nn.Module) -> nn.Module | None:
    """Return the first part of a module, in the order of registration, that has parameters of its own."""
    return next((part for part in module.modules() if next(part.parameters(recurse=False), None) is not None), None)


def samples_in(layer: nn.Module, received: Tensor | PackedSequence) -> int:
    """Return the number of samples in what a layer receives."""
    if isinstance(received, PackedSequence):
        return int(received.batch_sizes[0])
    return received.shape[1 if isinstance(layer, nn.RNNBase) and not layer.batch_first else 0]


def sample_of_each_row(packed: PackedSequence) -> Tensor:
    """Return the sample that each row of a packed sequence's data belongs to.

    Steps lie one after another, each with its samples in the packed order, the longest first.
    """
    sizes = packed.batch_sizes.to(packed.data.device)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.arange(len(packed.data), device=packed.data.device) - starts
    return place if packed.sorted_indices is None else packed.sorted_indices[place]


def resize_input(layer: nn.RNNBase, extra: int) -> None:
    """Give a recurrent layer `extra` further inputs whose weights are zero; with a negative number, take them away."""
    for name, weight in list(layer.named_parameters()):
        if name.startswith("weight_ih_l0"):
            old = weight.detach()
            columns = torch.cat([old, old.new_zeros(len(old), extra)], dim=1) if extra > 0 else old[:, :extra].clone()
            setattr(layer, name, nn.Parameter(columns, requires_grad=weight.requires_grad))
    layer.input_size += extra
    layer.flatten_parameters()
