"""The log of the server: one JSON object a line, without what clients send and without keys."""

from __future__ import annotations

import json
import logging
import math
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("consilience.serving")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LONGEST = 4000
_MOST_LINES = 10_000


def log(event: str, level: str = "info", **fields: Any) -> None:
    """Write one line: time, level, event, and further fields; long texts are cut."""
    if not _LOGGER.isEnabledFor(_LEVELS[level]):
        return
    entry: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level}
    entry["event"] = event
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        entry[name] = value[:_LONGEST] if isinstance(value, str) else value
    _LOGGER.log(_LEVELS[level], json.dumps(entry, default=str))


@contextmanager
def written_apart() -> Iterator[None]:
    """Write the log to standard error in a thread, so that whoever does not read it cannot stop the server.

    Lines that wait for a reader are kept up to a number; further ones are dropped, and counted in the next line.
    """
    lines: queue.Queue[str | None] = queue.Queue(_MOST_LINES)
    dropped = 0

    class Queued(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal dropped
            try:
                if dropped:
                    lines.put_nowait(json.dumps({"level": "warning", "event": "log", "dropped": dropped}))
                    dropped = 0
                lines.put_nowait(record.getMessage())
            except queue.Full:
                dropped += 1

    def write() -> None:
        while (line := lines.get()) is not None:
            with suppress(OSError, ValueError):  # standard error is closed: there is nobody to tell
                print(line, file=sys.stderr, flush=True)

    handler, before = Queued(), _LOGGER.propagate
    writer = threading.Thread(target=write, name="log", daemon=True)
    writer.start()
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.propagate = before
        _LOGGER.removeHandler(handler)
        with suppress(queue.Full):
            lines.put(None, timeout=1)
        writer.join(2)
