"""Batch norm in a loop: of several passes through one layer, which statistics does each have at test time?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from consilience.core.errors import InputError

CHOICES = ("first", "last", "per-step")


class Statistics(nn.Module):
    """Which pass updates the running statistics of the batch norms in a loop.

    `"per-step"`: every pass keeps statistics of its own, used by that pass at test time, so that each does then what it
    did in training. `"last"`: only the last pass, whose features are read. `"first"`: only the first, as if there were
    no loop. With either, the other passes are given statistics at test time that they never had in training, and the
    context with them. Left alone, a batch norm would average over all passes and fit none of them.

    The statistics of later passes begin as those that the module has here: load a trained base before putting the loop
    around it.
    """

    def __init__(self, module: nn.Module, steps: int, which: str = "per-step", once: Iterable[nn.Module] = ()):
        """once: parts of the module that run in the first pass only; their norms are left alone."""
        super().__init__()
        self.steps, self.which = steps, check_statistics(which)
        outside = {one for part in once for one in part.modules()}
        # In a tuple, not registered: they belong to the base model and are saved with it.
        self.norms = tuple(
            one
            for one in module.modules()
            if isinstance(one, _BatchNorm) and one.track_running_stats and one not in outside
        )
        if which == "per-step":
            for number, norm in enumerate(self.norms):
                for step in range(1, steps):
                    for name, buffer in norm.named_buffers(recurse=False):
                        self.register_buffer(f"{name}_{number}_{step}", buffer.clone())

    @contextmanager
    def during(self, step: int) -> Iterator[None]:
        """One pass, counted from 0."""
        if self.which == "per-step":
            with self._own(step):
                yield
            return
        if step == (0 if self.which == "first" else self.steps - 1):
            yield
            return
        with self.aside():
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A run that updates nothing, in training too."""
        # Without tracking, a norm in training neither reads nor writes its running statistics; at test it reads them.
        for norm in self.norms:
            norm.track_running_stats = False
        try:
            yield
        finally:
            for norm in self.norms:
                norm.track_running_stats = True

    @contextmanager
    def _own(self, step: int) -> Iterator[None]:
        if step == 0:
            yield
            return
        kept = [dict(norm.named_buffers(recurse=False)) for norm in self.norms]
        for number, norm in enumerate(self.norms):
            for name in kept[number]:
                setattr(norm, name, getattr(self, f"{name}_{number}_{step}"))
        try:
            yield
        finally:
            for norm, buffers in zip(self.norms, kept):
                for name, buffer in buffers.items():
                    setattr(norm, name, buffer)


def check_statistics(which: str) -> str:
    """Refuse a choice that does not exist."""
    if which not in CHOICES:
        raise InputError(f"progressive: statistics must be one of {', '.join(map(repr, CHOICES))}, got {which!r}")
    return which
