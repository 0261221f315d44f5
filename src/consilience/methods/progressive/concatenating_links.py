"""Links that concatenate: the context beside what a layer reads, as further input channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from consilience.core.errors import UnsupportedError
from consilience.methods.progressive.dry_run import describe, find_readers
from consilience.methods.progressive.links import (
    CONVOLUTIONS,
    FEW_CHANNELS,
    along,
    constant_convolved,
    first_layer,
    projection,
    samples_of,
)


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
    """The link beside what a module's first layer reads, and the layers to hook it to.

    run: the module, given what it receives; hidden: what it received in a dry run on so many samples; what: what to
    call the module in a message. Concatenation has a meaning only where that layer alone reads what the module
    receives: to what a residual connection carries nothing can be put beside.
    """
    needs = f"progressive: mode='concat' cannot feed back into {what}"
    first = first_layer(module)
    if not isinstance(first, (nn.Linear, *CONVOLUTIONS, nn.RNNBase)):
        begins = "has no weights" if first is None else f"begins with {type(first).__name__}"
        raise UnsupportedError(
            f"{needs}, which {begins}; it must begin with a linear, convolutional or recurrent layer: use mode='add'"
        )
    recurrent = isinstance(first, nn.RNNBase)
    layers = [one for one in module.modules() if isinstance(one, nn.RNNBase)] if recurrent else [first]
    readers, around = find_readers(layers, run, hidden)
    if around or first not in readers:
        raise UnsupportedError(
            f"{needs}: what it receives is read by more than its first layer, {type(first).__name__}: use mode='add'"
        )
    for layer, seen in readers.items():
        if len(seen) > 1:
            raise UnsupportedError(f"{needs}: its {type(layer).__name__} is called {len(seen)} times: use mode='add'")
        if samples_in(layer, seen[0]) != samples:
            raise UnsupportedError(
                f"{needs}: its {type(layer).__name__} reads {describe(seen[0])}, to which a context of {samples} "
                "samples cannot be broadcast: use mode='add'"
            )
    if not recurrent:
        return Concatenation(context, first, rank=rank), [first]
    if not all(parameter.requires_grad for layer in readers for parameter in layer.parameters()):
        raise UnsupportedError(f"{needs}: its {type(first).__name__} is frozen and would not learn to hear: use 'add'")
    read_by: list[Any] = list(readers)
    return RecurrentConcatenation(context, read_by, rank=rank), read_by


def samples_in(layer: nn.Module, received: Tensor | PackedSequence) -> int:
    """How many samples there are in what a layer receives."""
    if isinstance(received, PackedSequence):
        return int(received.batch_sizes[0])
    return received.shape[1 if isinstance(layer, nn.RNNBase) and not layer.batch_first else 0]


class Concatenation(nn.Module):
    """What a layer's output gains when W·context is concatenated to its input: V·W·context.

    layer([x, Wc]) = layer(x) + V·W·c with V the layer's columns for the new inputs: a `Linear` or a convolution of
    the layer's own shape. V starts at zero and W does not, so that gradients reach V at once and W after it. Adding
    to the output, rather than widening the layer, keeps the base model's numbers to the last bit.
    """

    def __init__(self, context: int, layer: nn.Module, *, width: int | None = None, rank: int | None = None):
        super().__init__()
        inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        width = int(inputs) if width is None else width  # type: ignore[arg-type]
        self.project = projection(context, width, rank, silent=False)
        self.extra: nn.Module
        if isinstance(layer, nn.Linear):
            self.extra = nn.Linear(width, layer.out_features, bias=False)
        else:
            assert isinstance(layer, CONVOLUTIONS)
            self.extra = type(layer)(
                width,
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
        """The layer's output, with what it `received` telling the extent over which the context is constant."""
        fed = self.project(context).to(received.dtype)
        if isinstance(self.extra, nn.Linear):
            return output + along(self.extra(fed), output.ndim, -1)
        if received.shape[1] <= FEW_CHANNELS and fed.shape[1] == received.shape[1]:
            return output + constant_convolved(self.extra, fed, received).to(output.dtype)
        spread = along(fed, received.ndim, 1).expand(-1, -1, *received.shape[2:])
        return output + self.extra(spread)


def widen(layer: nn.RNNBase, extra: int) -> None:
    """Let a recurrent layer read `extra` more inputs, which it ignores at first: its new columns are zeros."""
    for name, weight in list(layer.named_parameters()):
        if name.startswith("weight_ih_l0"):
            columns = torch.cat([weight.detach(), weight.new_zeros(len(weight), extra)], dim=1)
            setattr(layer, name, nn.Parameter(columns, requires_grad=weight.requires_grad))
    layer.input_size += extra
    layer.flatten_parameters()


def narrow(layer: nn.RNNBase, extra: int) -> None:
    """Take away the last `extra` inputs of a recurrent layer."""
    for name, weight in list(layer.named_parameters()):
        if name.startswith("weight_ih_l0"):
            columns = weight.detach()[:, : layer.input_size - extra].clone()
            setattr(layer, name, nn.Parameter(columns, requires_grad=weight.requires_grad))
    layer.input_size -= extra
    layer.flatten_parameters()


class RecurrentConcatenation(nn.Module):
    """A recurrent layer's input with W·context beside every step; zeros beside it where there is no context yet.

    The layers themselves are widened, in place: `columns` counts the weights that they gain.
    """

    def __init__(self, context: int, layers: Sequence[nn.RNNBase], *, rank: int | None = None):
        super().__init__()
        self.width, self.batch_first = layers[0].input_size, layers[0].batch_first
        before = sum(parameter.numel() for layer in layers for parameter in layer.parameters())
        for layer in layers:
            widen(layer, self.width)
        self.columns = sum(parameter.numel() for layer in layers for parameter in layer.parameters()) - before
        width = self.width
        self.project = projection(context, width, rank, silent=False)

    def forward(self, x: Tensor | PackedSequence, context: Tensor | None) -> Tensor | PackedSequence:
        """x: `[batch, time, feature]`, `[time, batch, feature]`, or packed."""
        data = x.data if isinstance(x, PackedSequence) else x
        if context is None:
            beside = data.new_zeros(*data.shape[:-1], self.width)
        else:
            fed = self.project(context).to(data.dtype)
            if isinstance(x, PackedSequence):
                beside = fed[samples_of(x)]
            else:
                beside = (fed[:, None] if self.batch_first else fed[None]).expand(*data.shape[:-1], -1)
        together = torch.cat([data, beside], dim=-1)
        return x._replace(data=together) if isinstance(x, PackedSequence) else together
