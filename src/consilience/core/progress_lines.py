"""Lines of progress where there is no terminal to draw a bar on."""

from __future__ import annotations

import logging
import sys
import time

logger = logging.getLogger("consilience")


class ConsoleHandler(logging.StreamHandler):
    """Prints what the command line logs. Lines of progress that go nowhere else are few, as a person reads them."""


def kept_in_a_log() -> bool:
    """Return whether lines of progress go to a log that the user has set up, and not just to the console."""
    if not logger.isEnabledFor(logging.INFO):
        return False
    place: logging.Logger | None = logger
    while place is not None:
        if any(not isinstance(handler, ConsoleHandler) for handler in place.handlers):
            return True
        place = place.parent if place.propagate else None
    return False


def say_progress(line: str) -> None:
    """Log a line at level INFO; print it to standard error where nobody has set up logging, so that it is seen."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info("%s", line)
    else:
        print(line, file=sys.stderr, flush=True)


class Occasionally:
    """Says at most one line in so many seconds, where lines are printed; a log takes all of them.

    Args:
        seconds: Between two lines.

    Example:
        >>> lines = Occasionally(3600.0)
        >>> lines.due(), lines.due()
        (True, False)
    """

    def __init__(self, seconds: float):
        self.seconds, self._last = seconds, -float("inf")

    def due(self) -> bool:
        """Return whether the time for another line has come, which then begins again."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True

    def say(self, line: str) -> None:
        """Say a line if one is due, or if it goes to a log."""
        if kept_in_a_log() or self.due():
            say_progress(line)
