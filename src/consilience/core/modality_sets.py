"""Sets of modalities and their numbers: the one numbering of the house, bit m is modality m."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from consilience.core.tracing import is_traced

MOST_NUMBERED = 62  # modalities whose sets have numbers of 64 bits


def all_sets(modalities: int) -> Tensor:
    """Return all sets of modalities, booleans `[2^modality, modality]`, in the order of `set_numbers`.

    >>> all_sets(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    numbers = torch.arange(2**modalities)[:, None]
    if not is_traced():
        return (numbers >> torch.arange(modalities)) & 1 == 1
    powers = torch.tensor([2**m for m in range(modalities)])  # as in `set_numbers`
    return torch.div(numbers, powers, rounding_mode="floor") % 2 == 1


def set_numbers(present: Tensor) -> Tensor:
    """Return the number Σ 2^m over the members of each set, its place among `all_sets`: `[…, modality]` → `[…]`.

    There are at most `MOST_NUMBERED` modalities.

    >>> set_numbers(all_sets(2)).tolist()
    [0, 1, 2, 3]
    """
    if not is_traced():  # without numbers from the host, which a GPU would wait for
        return (present.long() << torch.arange(present.shape[-1], device=present.device)).sum(dim=-1)
    powers = [2**m for m in range(present.shape[-1])]  # a product: exported graphs cannot shift signed numbers
    return (present.long() * torch.tensor(powers, dtype=torch.int64, device=present.device)).sum(dim=-1)


def number_of_members(members: Iterable[int]) -> int:
    """Return the number of one set, given by the places of its members.

    >>> number_of_members([0, 2])
    5
    """
    return sum(2**m for m in members)
