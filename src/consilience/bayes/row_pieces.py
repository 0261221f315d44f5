"""Computes rows in pieces, so that what is computed on the way to a result needs a bounded amount of memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from consilience.core.tracing import is_traced


def in_pieces(function: Callable[..., Tensor], size: int, *tensors: Tensor) -> Tensor:
    """Apply a function that treats rows independently to `size` rows at a time.

    Args:
        function: From tensors `[rows, ...]` to one tensor `[rows, ...]`.
        size: The most rows it takes at a time.
        tensors: Its arguments for all rows, `[n, ...]` each.

    >>> in_pieces(lambda a, b: a + b, 2, torch.arange(5), torch.ones(5, dtype=torch.int64))
    tensor([1, 2, 3, 4, 5])
    """
    if is_traced():
        return function(*tensors)
    n = len(tensors[0])
    if n <= size:
        return function(*tensors)
    first = function(*(values[:size] for values in tensors))
    if first.requires_grad:
        rest = [function(*(values[at : at + size] for values in tensors)) for at in range(size, n, size)]
        return torch.cat([first, *rest])
    # One tensor for the result: small results kept between large temporaries would fragment the memory.
    result = first.new_empty(n, *first.shape[1:])
    result[:size] = first
    del first
    for at in range(size, n, size):
        result[at : at + size] = function(*(values[at : at + size] for values in tensors))
    return result
