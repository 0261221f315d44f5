"""Seeds of torch within a block. Threads take turns, since torch has one random state for all of them.

Initial weights and dropout are drawn from torch's global generator, also by modules that are not ours. A block that
needs them therefore has the generator to itself: it sets its own state, and puts back the one it found. Other threads
wait until it ends, or until it lets them by between two steps.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

_CPU = torch.device("cpu")


class _Turns:
    """A lock that threads get in the order in which they asked for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._owner: int | None = None

    @property
    def wanted(self) -> bool:
        """Whether a thread waits for its turn."""
        return bool(self._waiting)

    def take(self) -> None:
        """Wait for one's turn; a turn that an interruption kept from ending is one's own already."""
        me, ticket = threading.get_ident(), object()
        with self._changed:
            if self._owner == me:
                return
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._owner is None and self._waiting[0] is ticket)
                self._owner = me
            finally:  # also if waiting was interrupted
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def end(self) -> None:
        """Let the next thread have its turn."""
        with self._changed:
            if self._owner == threading.get_ident():
                self._owner = None
                self._changed.notify_all()


class _OwnBlocks(threading.local):
    """The open blocks of a thread: what each found when it began."""

    def __init__(self) -> None:
        self.found: list[_State] = []


@dataclass(frozen=True)
class _State:
    """What torch has once for all threads: the random state of the CPU and of a GPU, and the default dtype."""

    device: torch.device
    cpu: Tensor
    gpu: Tensor | None
    dtype: torch.dtype

    @classmethod
    def now(cls, device: torch.device) -> _State:
        gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(device, torch.get_rng_state(), gpu, torch.get_default_dtype())

    def restore(self) -> None:
        torch.set_default_dtype(self.dtype)
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)


_turns, _own = _Turns(), _OwnBlocks()


def _start_anew() -> None:
    """A child process has none of its parent's other threads, and would wait for them in vain."""
    global _turns
    taken = bool(_own.found)
    _turns = _Turns()
    if taken:
        _turns.take()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


@contextmanager
def seeded(seed: int, device: torch.device = _CPU) -> Iterator[None]:
    """Seed torch within a block, and leave its random state and default dtype as they were before.

    Blocks of several threads run one after another, so that each draws the numbers that it would draw alone.

    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     first = torch.rand(1)
    >>> with seeded(3):
    ...     torch.equal(torch.rand(1), first)
    True
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    outermost = not _own.found
    try:
        if outermost:
            _turns.take()
        _own.found.append(_State.now(device))
        try:
            seed_device(seed, device)
            yield
        finally:
            _own.found.pop().restore()
    finally:
        if outermost:
            _turns.end()


def seed_device(seed: int, device: torch.device = _CPU) -> None:
    """Seed torch on the CPU and on one device; `torch.manual_seed` would seed every GPU of the machine."""
    torch.default_generator.manual_seed(seed % 2**63)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed % 2**63)


def let_others_by() -> None:
    """Within `seeded`, between two steps of long work: let threads that wait have their turn, then go on as before."""
    if _turns.wanted and _own.found:
        with stepped_aside():
            pass


@contextmanager
def stepped_aside() -> Iterator[None]:
    """Within `seeded`, let other threads have their turn while this block waits for something.

    Without it, waiting for a thread that needs its turn would never end.
    """
    if not _own.found:
        yield
        return
    blocks, mine = _own.found, _State.now(_own.found[-1].device)
    try:
        for found in reversed(blocks):
            found.restore()
        _own.found = []
        _turns.end()
        yield
    finally:
        try:
            _take_again()
        finally:
            _own.found = blocks
            mine.restore()


def _take_again() -> None:
    """Wait for one's turn even if interrupted, since the blocks that are open need it to end."""
    try:
        _turns.take()
    except KeyboardInterrupt:
        _take_again()
        raise
