"""Files with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError
from consilience.data.files.damaged_files import reading_as


def read_json_lines(path: Path, strings: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of a file in their order, each with a string for every key in `strings`; empty lines are left out."""
    with reading_as(path, "JSON lines", advice=""):
        lines = path.read_text(encoding="utf-8").split("\n")
        objects = {number: json.loads(line) for number, line in enumerate(lines, 1) if line.strip()}
    for number, item in objects.items():
        if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in strings):
            wanted = " and ".join(f"a {key}" for key in strings)
            raise InputError(f"{path.name}: line {number} must have {wanted}")
    return list(objects.values())
