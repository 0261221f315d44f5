"""Subsets of modalities as boolean tensors, the weight of each in the objective, and random chains of nested sets."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import all_sets

# With more modalities, objectives that visit every subset are refused.
MOST_ENUMERATED = 12


def all_subsets(modalities: int) -> Tensor:
    """Return every non-empty subset, booleans `[2^N − 1, N]`; row c − 1 is the subset of the number c (`set_numbers`).

    >>> all_subsets(2).tolist()
    [[True, False], [False, True], [True, True]]
    """
    if modalities > MOST_ENUMERATED:
        raise UnsupportedError(
            f"{modalities} modalities have {2**modalities - 1} subsets, too many to visit at every step (the most is "
            f"{MOST_ENUMERATED} modalities, {2**MOST_ENUMERATED - 1} subsets): use subsets='chain' with "
            "subset_encoder='set' or 'poe'"
        )
    return all_sets(modalities)[1:]


def weight(modalities: int, size: int) -> float:
    """c(N, k) = (k−1)!(N−k)!/N! = 1/(k·C(N, k)), the weight of a subset of size k in the objective (Shapley weight).

    >>> [round(1 / weight(4, size)) for size in (1, 2, 3, 4)]
    [4, 12, 12, 4]
    """
    return 1 / (size * math.comb(modalities, size))


def weights(modalities: int) -> Tensor:
    """Return all c(n, k) for n, k = 0 … N as a table `[N + 1, N + 1]` in float64; 0 where k = 0 or k > n."""
    table = torch.zeros(modalities + 1, modalities + 1, dtype=torch.float64)
    for n, k in itertools.product(range(1, modalities + 1), repeat=2):
        if k <= n:
            table[n, k] = weight(n, k)
    return table


def leave_one_out(subsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return all pairs of a set and the same set without one member, among `all_subsets`.

    They are positions of the larger set, of the smaller set and of the member, each `[pair]`.

    >>> [positions.tolist() for positions in leave_one_out(all_subsets(2))]
    [[2, 2], [1, 0], [0, 1]]
    """
    pairs = (subsets & (subsets.sum(-1, keepdim=True) > 1)).nonzero()
    larger, member = pairs[:, 0], pairs[:, 1]
    # The set of number c lies in row c − 1.
    return larger, larger - (1 << member), member


class Lattice(NamedTuple):
    """What depends on the number of modalities alone.

    Attributes:
        subsets: `all_subsets`, `[S, N]`.
        weights: The table of `weights`, `[N + 1, N + 1]`.
        pairs: Positions of a set and of the same set without one member, `[pair, 2]`.
    """

    subsets: Tensor
    weights: Tensor
    pairs: Tensor


@lru_cache(maxsize=64)
def lattice(modalities: int, device: torch.device, dtype: torch.dtype = torch.float64) -> Lattice:
    """Return the lattice on a device, with weights of this type; it is computed once.

    >>> lattice(2, torch.device("cpu")).pairs.tolist()
    [[2, 1], [2, 0]]
    """
    with torch.inference_mode(False):  # first used for prediction, it may be used for training later
        subsets = all_subsets(modalities)
        larger, smaller, _ = leave_one_out(subsets)
        pairs = torch.stack([larger, smaller], dim=1)
        return Lattice(subsets.to(device), weights(modalities).to(device, dtype), pairs.to(device))


class Chain(NamedTuple):
    """Nested sets, each with one member more than the one before.

    Attributes:
        sets: `[step, …, N]`. At a step whose modality is not present the set stays the same.
        newest: The member that each step adds, `[step, …, N]`; none at such a step.
    """

    sets: Tensor
    newest: Tensor


def chain(present: Tensor, generator: torch.Generator | None = None, *, order: Tensor | None = None) -> Chain:
    """Return nested sets by random permutations of what is present: sets of 1, 2, … members.

    Args:
        present: `[batch, N]`, or `[N]` for a chain shared by a batch.
        generator: Draws the permutations.
        order: The permutations of the N modalities, `[batch, N]` or `[N]`, drawn if None. Each sample skips the
            modalities that it does not have.

    Example:
        >>> chain(torch.tensor([True, False, True]), order=torch.tensor([1, 2, 0])).sets.tolist()
        [[False, False, False], [False, False, True], [True, False, True]]
    """
    if order is None:
        order = torch.rand(present.shape, generator=generator, device=present.device).argsort(-1)
    rank = order.argsort(-1)
    steps = torch.arange(present.shape[-1], device=present.device).view(-1, *[1] * present.ndim)
    return Chain((rank <= steps) & present, (rank == steps) & present)
