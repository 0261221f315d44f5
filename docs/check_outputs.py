"""Writes what long checks printed into docs/what-can-go-wrong.md: python docs/check_outputs.py.

The outputs lie in docs/checks; a test fails where page and files disagree. They are made by

    .venv/bin/python tests/faults/memory.py --fits 1000 > docs/checks/memory.txt
    .venv/bin/python tests/faults/kill_runs.py --kills 100 | tail -2 > docs/checks/kills.txt
    .venv/bin/python benchmarks/bench_serve.py --minutes 10 > docs/checks/serve.txt
"""

from __future__ import annotations

from pathlib import Path

from marked_places import filled

PAGE = Path(__file__).with_name("what-can-go-wrong.md")
OUTPUTS = PAGE.parent / "checks"


def page() -> str:
    """The whole page with the outputs as they should be."""
    printed = {path.stem: path.read_text(encoding="utf-8").strip() for path in sorted(OUTPUTS.glob("*.txt"))}
    return filled(PAGE, {name: f"```text\n{text}\n```" for name, text in printed.items()}, "said")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
