"""A limit of the time that training takes: when it ends, and what is left of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.training.training_log import Log

logger = logging.getLogger("consilience")
# What the warnings of the block of `saying_once` were about.
_said: ContextVar[set[str] | None] = ContextVar("said", default=None)


def now() -> float:
    """Return the time in seconds; only differences mean something."""
    return time.monotonic()


@dataclass
class Deadline:
    """When training has to end. The time runs from the first call of `start`.

    Args:
        seconds: How long training may take.
        ends: When it ends, as `now` counts; None before it has started.
        kept: Further seconds, for a refit after it.

    Example:
        >>> deadline = Deadline(3600).start()
        >>> deadline.passed(), 1700 < deadline.part(0.5).left() <= 1800
        (False, True)
    """

    seconds: float
    ends: float | None = None
    kept: float = 0.0

    def start(self) -> Deadline:
        """Let the time run; a second call changes nothing."""
        if self.ends is None:
            self.ends = now() + self.seconds
        return self

    def left(self) -> float:
        """Return the seconds that are left, below 0 when the time is over."""
        return self.seconds if self.ends is None else self.ends - now()

    def passed(self) -> bool:
        """Whether the time is over."""
        return self.left() <= 0

    def part(self, share: float) -> Deadline:
        """Return a deadline after a share of what is left, for one of several trainings."""
        return Deadline(max(self.left(), 0.0) * share).start()

    def anew(self, refit: bool = True) -> Deadline:
        """Return one of as many seconds that has not started. refit: whether there will be one; else none are kept."""
        return Deadline(self.seconds, kept=self.kept) if refit else Deadline(self.seconds + self.kept)


@contextmanager
def saying_once() -> Iterator[None]:
    """Within the block a method says once that its time was short, however many trainings it takes part in."""
    outermost = None if _said.get() is not None else _said.set(set())
    try:
        yield
    finally:
        if outermost is not None:
            _said.reset(outermost)


def said_before(subject: str) -> bool:
    """Return whether a warning of this subject was written within the block of `saying_once`, and note that it is."""
    said = _said.get()
    before = said is not None and subject in said
    if said is not None:
        said.add(subject)
    return before


def say_out_of_time(name: str, logs: Sequence[Log], seconds: float | None) -> None:
    """Write a warning to the log, once for a model, if its time limit ended any of its trainings.

    Args:
        name: The model's method.
        logs: Of its trainings.
        seconds: The limit.
    """
    ended = sum(log.out_of_time for log in logs)
    if ended and seconds is not None and not said_before(f"{name} ended early"):
        which = "its training" if len(logs) == 1 else f"{ended} of its {len(logs)} trainings"
        logger.warning(
            "%s: the time limit of %g s ended %s early; a machine of another speed would give another model",
            name,
            seconds,
            which,
        )
