"""Limits while a saved model is built: its description may ask for no more memory than its weights account for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from consilience.core.errors import SavedModelError

# A method is built once, but for one that is built again and again while its widths are searched.
BUILDS = {"wide:": 64}
# Numbers of one tensor, numbers and tensors that are not weights: a batch of inputs, positions, masks.
INPUT, NUMBERS, TENSORS = 2**24, 2**26, 4000


class BuildingLimits(TorchDispatchMode):
    """Within a block, raise an error before a tensor is made that the saved weights do not account for.

    A width of 50 000 in a changed description would otherwise take the machine's memory before the weights turn out not
    to fit, and a billion layers all of its time.

    Args:
        weights: The saved tensors.
        method: The name of the method that is built.

    >>> with BuildingLimits([torch.zeros(3)]):
    ...     torch.empty(50_000, 50_000)
    Traceback (most recent call last):
    consilience.core.errors.SavedModelError: the settings ask for a tensor of 2,500,000,000 numbers, and the saved ...
    """

    def __init__(self, weights: Iterable[Tensor], method: str = ""):
        super().__init__()
        sizes = [value.numel() for value in weights]
        builds = next((count for family, count in BUILDS.items() if method.startswith(family)), 1)
        self.saved = sum(sizes)
        self.largest = max(INPUT, 4 * self.saved)
        self.numbers, self.tensors = NUMBERS + 4 * builds * self.saved, TENSORS + 8 * builds * len(sizes)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while a model is built; torch would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what a function makes from nothing; what is computed from tensors is about as large as these."""
        kwargs = kwargs or {}
        if "device" in kwargs and not any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
            size = _size_of(func, args, kwargs)
            self.numbers -= size
            self.tensors -= 1
            if size > self.largest:
                raise SavedModelError(
                    f"the settings ask for a tensor of {size:,} numbers, and the saved weights have {self.saved:,}"
                )
            if self.numbers < 0 or self.tensors < 0:
                raise SavedModelError(
                    f"the settings ask for many times the {self.saved:,} numbers that the saved weights have"
                )
        return func(*args, **kwargs)


def _size_of(func: Any, args: Any, kwargs: Any) -> int:
    """How many numbers a function makes from nothing."""
    # torch computes the meta tensors of these two in Python, and imports its compiler for that.
    if func in (torch.ops.aten.eye.default, torch.ops.aten.eye.m):
        return int(args[0]) * int(args[-1])
    if func in (torch.ops.aten.arange.default, torch.ops.aten.arange.start):
        start, end = (0, *args)[-2:]
        return max(0, math.ceil(end - start))
    # A meta tensor has a size and no memory; generators and pinned memory are for devices that have some.
    others = {name: None for name in ("generator", "pin_memory") if name in kwargs}
    return int(func(*args, **{**kwargs, **others, "device": torch.device("meta")}).numel())
