"""All sets of modalities in one order, for tables that have a row for each set."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor


def all_sets(modalities: int) -> Tensor:
    """All sets of modalities: `[2^modality, modality]` booleans, in the order of `set_numbers`.

    >>> all_sets(2).int().tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    return torch.tensor(list(product((False, True), repeat=modalities)))


def set_numbers(present: Tensor) -> Tensor:
    """The place of each row of `present` `[n, modality]` among `all_sets`: `[n]`.

    >>> set_numbers(all_sets(2)).tolist()
    [0, 1, 2, 3]
    """
    powers = [2**power for power in reversed(range(present.shape[1]))]
    return (present.long() * torch.tensor(powers, device=present.device)).sum(dim=1)
