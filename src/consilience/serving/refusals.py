"""Why a request is not answered: an HTTP status and one line, for every refusal of the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from consilience.core.errors import ConsilienceError, show

RETRY_SECONDS = 1
_LONGEST = 1000


class Refusal(ConsilienceError):
    """A request that is not answered.

    Args:
        status: The HTTP status code.
        reason: One line that says what is wrong and what is allowed.
        headers: Further headers of the response.
    """

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None):
        line = " ".join(reason.split())  # it may quote what was sent, which may be long
        super().__init__(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …")
        self.status, self.headers = status, dict(headers or {})

    @property
    def body(self) -> bytes:
        """The response, as the Open Inference Protocol has it: `{"error": reason}`."""
        return json.dumps({"error": str(self)}).encode()

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers of the response."""
        return {"content-type": "application/json", "content-length": str(len(self.body)), **self.headers}


def malformed(reason: str) -> Refusal:
    """Return the refusal of a request that says something wrong."""
    return Refusal(400, reason)


def read_flag(where: str, parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return a parameter of a request that is true or false; where: what comes before it in a refusal.

    Raises:
        Refusal: It is something else, such as the string "false".

    >>> read_flag("output 'label': ", {"binary_data": False}, "binary_data", True)
    False
    """
    value = parameters.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise malformed(f"{where}{name} must be true or false, got {show(value)}")
    return value


def overloaded(reason: str) -> Refusal:
    """Return the refusal of a request that may be repeated soon."""
    return Refusal(503, reason, {"Retry-After": str(RETRY_SECONDS)})
