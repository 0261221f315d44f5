"""JSON as RFC 8259 has it: without NaN and infinity, without a key twice, and not nested too deeply."""

from __future__ import annotations

import json
import math
from typing import Any

from consilience.core.errors import show
from consilience.serving.refusals import malformed


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        Refusal: It is not JSON in UTF-8, holds NaN, infinity or a number beyond those of 64-bit floats, has a key twice
            in one object, or is nested a thousand levels deep.

    Example:
        >>> read_json(b'{"rows": [{"a": 1.5}]}')
        {'rows': [{'a': 1.5}]}
        >>> read_json(b'[NaN]')
        Traceback (most recent call last):
        consilience.serving.refusals.Refusal: NaN is not a number in JSON: send null for what is missing
    """
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once
        )
    except UnicodeDecodeError as error:
        raise malformed(f"the request is not text in UTF-8: byte {error.start} is invalid") from error
    except RecursionError as error:
        raise malformed("the request is nested too deeply") from error
    except ValueError as error:  # also an integer of more digits than Python reads
        said = "an integer has too many digits" if "digits" in str(error) else str(error)
        raise malformed(f"the request is not JSON: {said}") from error


def write_json(value: Any) -> bytes:
    """Return a value as JSON; a number that is not finite becomes null.

    >>> write_json({"low": float("-inf"), "labels": ["ok"]})
    b'{"low":null,"labels":["ok"]}'
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite_or_none(value), allow_nan=False, separators=(",", ":")).encode()


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite_or_none(each) for name, each in value.items()}
    return [_finite_or_none(each) for each in value] if isinstance(value, list | tuple) else value


def _refuse_constant(name: str) -> Any:
    raise malformed(f"{name} is not a number in JSON: send null for what is missing")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise malformed(f"the number {show(text, 30)} is too large for a 64-bit float")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for twice, _ in pairs:
            if twice in seen:
                break
            seen.add(twice)
        raise malformed(f"the key {show(twice)} is given twice in one object")
    return found
