"""Writes the tables of docs/defaults.md from docs/defaults.json: python docs/defaults_tables.py.

No number in those tables is typed by hand; a test fails where page and file disagree.
"""

from __future__ import annotations

import json
from pathlib import Path

PAGE = Path(__file__).with_name("defaults.md")
FILE = PAGE.with_suffix(".json")
SIZES = {"all": "all rows", "300": "300 rows", "100": "100 rows"}


def tables() -> dict[str, str]:
    """The tables by the name of their mark on the page."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: _table(content[name], _stopping if name == "rule" else _pair) for name in ("experts", "fused", "rule")
    }


def _table(by_size: dict[str, dict[str, list[float]]], show: object) -> str:
    names = list(dict.fromkeys(name for figures in by_size.values() for name in figures))
    lines = ["| | " + " | ".join(SIZES.values()) + " |", "|---" * (len(SIZES) + 1) + "|"]
    for name in names:
        cells = [show(by_size[size][name]) if name in by_size[size] else "–" for size in SIZES]  # type: ignore[operator]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _pair(values: list[float]) -> str:
    return f"{values[0]:.1f} / {values[1]:.3f}"


def _stopping(values: list[float]) -> str:
    return f"{_pair(values[:2])} → {_pair(values[2:])}"


def written(text: str) -> str:
    """The page with its tables made anew."""
    for name, table in tables().items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not mark or not end:
            raise SystemExit(f"{PAGE} has no place for the table {name!r}")
        text = f"{before}{mark}\n{table}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
