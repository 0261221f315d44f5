"""Files with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError


def read_json_lines(path: Path, strings: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of a file in their order, each with a string for every key in `strings`; empty lines are left out."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        objects = {number: json.loads(line) for number, line in enumerate(lines, 1) if line.strip()}
    except ValueError as error:
        raise InputError(f"{path.name} is truncated or not JSON lines: {error}") from error
    for number, one in objects.items():
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in strings):
            wanted = " and ".join(f"a {key}" for key in strings)
            raise InputError(f"{path.name}: line {number} must have {wanted}")
    return list(objects.values())
