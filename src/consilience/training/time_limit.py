"""A limit of the time that training takes: when it ends, and what is left of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.training.training_log import Log

logger = logging.getLogger("consilience")


def now() -> float:
    """Return the time in seconds; only differences mean something."""
    return time.monotonic()


@dataclass
class Deadline:
    """When training has to end. The time runs from the first call of `start`.

    Args:
        seconds: How long training may take.
        ends: When it ends, as `now` counts; None before it has started.

    Example:
        >>> deadline = Deadline(3600).start()
        >>> deadline.passed(), 1700 < deadline.part(0.5).left() <= 1800
        (False, True)
    """

    seconds: float
    ends: float | None = None

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


def say_out_of_time(name: str, logs: Sequence[Log], seconds: float | None) -> None:
    """Write a warning to the log, once for a model, if its time limit ended any of its trainings.

    Args:
        name: The model's method.
        logs: Of its trainings.
        seconds: The limit.
    """
    ended = sum(log.out_of_time for log in logs)
    if ended and seconds is not None:
        which = "its training" if len(logs) == 1 else f"{ended} of its {len(logs)} trainings"
        logger.warning(
            "%s: the time limit of %g s ended %s early; a machine of another speed would give another model",
            name,
            seconds,
            which,
        )
