"""Writes what long checks printed into docs/what-can-go-wrong.md: python docs/check_outputs.py.

The outputs lie in docs/checks; a test fails where page and files disagree. They are made by

    .venv/bin/python tests/faults/memory.py --fits 1000 > docs/checks/memory.txt
    .venv/bin/python tests/faults/kill_runs.py --kills 100 | tail -2 > docs/checks/kills.txt
    .venv/bin/python benchmarks/bench_serve.py --minutes 10 > docs/checks/serve.txt
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).with_name("what-can-go-wrong.md")
OUTPUTS = PAGE.parent / "checks"


def page() -> str:
    """The whole page with the outputs as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for path in sorted(OUTPUTS.glob("*.txt")):
        mark = f"<!-- said: {path.stem} -->"
        before, found, rest = text.partition(mark)
        assert found, f"{PAGE.name} has no place for the output {path.name}: {mark}"
        printed = path.read_text(encoding="utf-8").strip()
        text = f"{before}{mark}\n```text\n{printed}\n```\n<!-- end -->" + rest.partition("<!-- end -->")[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
