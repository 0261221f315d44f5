"""Looking at a module by running it once: nothing is learned, and every part returns to its mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Use evaluation mode without gradients; afterwards every part has the mode that it had before."""
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
    """Find which layers depend on the input of `run`, by gradients through a run that detaches their outputs.

    Returns:
        The layers that depend on the input, with what each received; and whether the output still depends on it,
        through a residual connection or a layer that is not in the list.

    Example:
        >>> block = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
        >>> run = lambda x: block["second"](block["first"](x)) + x
        >>> readers, others = find_readers([block["first"]], run, torch.zeros(1, 2))
        >>> len(readers), others
        (1, True)
    """
    received: dict[nn.Module, list[Any]] = {}

    def detach_output(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        received.setdefault(layer, []).append(next(iter((*args, *kwargs.values()))))
        return detached(output)

    handles = [layer.register_forward_hook(detach_output, with_kwargs=True) for layer in layers]
    probe = hidden.detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            output = run(probe.clone())  # a copy: a leaf may not be changed in place
    finally:
        for handle in handles:
            handle.remove()
    readers = {layer: inputs for layer, inputs in received.items() if any(depends(value, probe) for value in inputs)}
    return readers, depends(output, probe)


def dependent_modules(
    base: nn.Module, source: nn.Module, modules: Sequence[nn.Module], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[nn.Module]:
    """Return the modules that receive something which depends on the output of `source`, by gradients.

    Example:
        >>> base = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
        >>> dependent_modules(base, base[1], [base[0], base[2]], (torch.zeros(1, 2),), {})
        [Linear(in_features=2, out_features=1, bias=True)]
    """
    probe = torch.zeros((), requires_grad=True)
    received: dict[nn.Module, Any] = {}

    def add_probe(module: nn.Module, args: Any, output: Any) -> Any:
        return _mapped(output, lambda tensor: tensor + probe.to(tensor))

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        received[module] = (*args, *kwargs.values())

    handles = [source.register_forward_hook(add_probe)]
    handles += [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
    try:
        with torch.enable_grad():
            base(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return [module for module in modules if module in received and depends(received[module], probe)]


def depends(output: Any, probe: Tensor) -> bool:
    """Return whether the gradient of anything in an output reaches a tensor."""
    roots = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not roots:
        return False
    with torch.enable_grad():
        total = torch.stack([tensor.sum() for tensor in roots]).sum()
    return torch.autograd.grad(total, probe, allow_unused=True, retain_graph=True)[0] is not None


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in an output, also inside tuples, lists, mappings and dataclasses."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
        return
    if isinstance(output, Mapping):
        output = list(output.values())
    elif is_dataclass(output) and not isinstance(output, type):
        output = [getattr(output, field.name) for field in fields(output)]
    if isinstance(output, tuple | list):
        for item in output:
            yield from tensors_in(item)


def detached(output: Any) -> Any:
    """Return a layer's output, a tensor or a tuple of tensors, without its history."""
    return _mapped(output, Tensor.detach)


def _mapped(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return an output with its floating-point tensors changed, also inside tuples, lists and mappings."""
    if isinstance(output, Tensor):
        return change(output) if output.is_floating_point() else output
    if isinstance(output, PackedSequence):
        return output._replace(data=change(output.data))
    if isinstance(output, tuple | list):
        items = [_mapped(item, change) for item in output]
        return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
    if isinstance(output, Mapping):  # also the output objects of transformers, which are mappings
        changed = copy.copy(output)
        for key, value in output.items():
            changed[key] = _mapped(value, change)  # type: ignore[index]
        return changed
    return output


def describe(value: Any) -> str:
    """Describe a value for a message: its type and shape."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {list(value.shape)}"
    return type(value).__name__
