"""Seeds of what is random in training; torch's global random state is left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_CPU = torch.device("cpu")


def epoch_seed(seed: int, phase: int, epoch: int) -> int:
    """Return the seed of an epoch. Since each epoch has its own, checkpoints need no random state."""
    return (seed * 1_000_003 + phase * 10_007 + epoch) % 2**63


def seed_device(seed: int, device: torch.device = _CPU) -> None:
    """Seed torch on the CPU and on one device; `torch.manual_seed` would seed every GPU of the machine."""
    torch.default_generator.manual_seed(seed % 2**63)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed % 2**63)


@contextmanager
def seeded(seed: int, device: torch.device = _CPU) -> Iterator[None]:
    """Seed torch within a block, and leave its random state as it was before.

    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     first = torch.rand(1)
    >>> with seeded(3):
    ...     torch.equal(torch.rand(1), first)
    True
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_device(seed, device)
        yield
