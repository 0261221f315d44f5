"""Writes the measured tables of docs/watching.md from docs/watch.json: python docs/watch_tables.py.

The file is filled by a run, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_monitor.py --keep docs/watch.json
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from marked_places import filled

PAGE = Path(__file__).with_name("watching.md")
FILE = PAGE.with_name("watch.json")


def tables() -> dict[str, str]:
    """The tables of the page."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {"clean": clean(found), "delays": delays(found)}


def clean(found: dict[str, Any]) -> str:
    """The share of unchanged streams with an alarm, for each stated share."""
    shares = list(next(iter(found["sets"].values()))["clean"]["raised"])
    rows = []
    for name, own in found["sets"].items():
        streams = own["clean"]["streams"]
        cells = [_with_error(own["clean"]["raised"][share], streams) for share in shares]
        rows.append([name, str(streams), str(found["clean_rows"]), str(found["reference"]), *cells])
    heads = ["", "streams", "rows", "reference", *(f"stated: at most {share}" for share in shares)]
    return _table(heads, rows)


def delays(found: dict[str, Any]) -> str:
    """Median and 95 % quantile of the rows until the broken modality is named."""
    rows = [
        [
            *(name, fault, str(own["streams"])),
            *(_rows(delay[quantile], found["broken_rows"]) for quantile in ("median", "95 %")),
            *(f"{100 * delay[share]:.1f} %" for share in ("found", "wrong")),
        ]
        for name, own in found["sets"].items()
        for fault, delay in own.items()
        if fault not in ("clean", "streams")
    ]
    heads = ["", "fault", "streams", "median delay", "95 % of delays", "within the stream", "another first"]
    return _table(heads, rows, words=2)


def page() -> str:
    """The whole page with the tables as they should be."""
    return filled(PAGE, tables())


def _with_error(share: float, streams: int) -> str:
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / streams):.3f}"


def _rows(delay: float | None, most: int) -> str:
    """A delay in rows; it is unknown where the stream ended before."""
    return f"over {most}" if delay is None else f"{delay:.0f}"


def _table(heads: list[str], rows: list[list[str]], words: int = 1) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * words + "---:|" * (len(heads) - words)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]).replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
