"""Looking at a module by running it once: nothing is learned, nothing is kept, every part returns to its own mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients. Afterwards a part that was frozen in evaluation mode is so again."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def find_readers(
    layers: Sequence[nn.Module], run: Callable[[Tensor], Any], hidden: Tensor
) -> tuple[dict[nn.Module, list[Any]], bool]:
    """Which of these layers read what `run` is given, with what each received; and whether anything else reads it.

    Found by gradients: with the outputs of all these layers cut off, does one come back from a layer's input, or from
    the output of the run? A residual connection and a layer not in the list both count as something else.

    >>> block = nn.ModuleDict({"one": nn.Linear(2, 2), "two": nn.Linear(2, 2)})
    >>> readers, around = find_readers([block["one"]], lambda x: block["two"](block["one"](x)) + x, torch.zeros(1, 2))
    >>> len(readers), around
    (1, True)
    """
    received: dict[nn.Module, list[Any]] = {}

    def cut(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        received.setdefault(layer, []).append(next(iter((*args, *kwargs.values()))))
        return detached(output)

    handles = [layer.register_forward_hook(cut, with_kwargs=True) for layer in layers]
    probe = hidden.detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            output = run(probe.clone())  # a copy: a leaf may not be changed in place
    finally:
        for handle in handles:
            handle.remove()
    readers = {layer: seen for layer, seen in received.items() if any(depends(one, probe) for one in seen)}
    return readers, depends(output, probe)


def depends(output: Any, probe: Tensor) -> bool:
    """Whether a gradient of anything in an output reaches a tensor."""
    roots = [one for one in tensors_in(output) if one.requires_grad]
    if not roots:
        return False
    with torch.enable_grad():
        total = torch.stack([one.sum() for one in roots]).sum()
    return torch.autograd.grad(total, probe, allow_unused=True, retain_graph=True)[0] is not None


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors of floating-point numbers in an output: tuples, lists, mappings and dataclasses are looked into."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from tensors_in(one)
    elif isinstance(output, tuple | list):
        for one in output:
            yield from tensors_in(one)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name))


def detached(output: Any) -> Any:
    """A layer's output, tensor or tuple of them, without its history."""
    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, PackedSequence):
        return output._replace(data=output.data.detach())
    return tuple(map(detached, output)) if isinstance(output, tuple) else output


def describe(value: Any) -> str:
    """A value in a message: what it is, and its shape."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {list(value.shape)}"
    return type(value).__name__
