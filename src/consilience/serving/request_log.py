"""The log of the server: one JSON object a line, without what clients send and without keys."""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("consilience.serving")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LONGEST = 4000


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
