"""Writes the measured table of docs/bayes.md from docs/bayes.json: python docs/bayes_tables.py.

The file is filled by a run, and no number in the table is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_bayes.py --seeds 10 --keep docs/bayes.json
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from marked_places import filled
from scipy.stats import t as student

PAGE = Path(__file__).with_name("bayes.md")
FILE = PAGE.with_suffix(".json")
WAYS = ("auto", "temperature", "robust", "stacking", "concat regression")


def interval(values: np.ndarray) -> float:
    """Half of the 95 % interval of a mean over seeds."""
    return float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def table() -> str:
    """Log-loss of every way, and its difference to the default with a 95 % interval over seeds."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    lines = ["| | seeds | " + " | ".join(WAYS) + " |", "|---|" + "---:|" * (len(WAYS) + 1)]
    for title, found in content.items():
        ours = np.array(found["ways"]["auto"]["log-loss"])
        cells = []
        for way in WAYS:
            if way not in found["ways"]:
                cells.append("–")
                continue
            loss = np.array(found["ways"][way]["log-loss"])
            away = loss - ours
            cells.append(
                f"{loss.mean():.3f}" + ("" if way == "auto" else f" ({away.mean():+.3f} ± {interval(away):.3f})")
            )
        lines.append(f"| {title} | {found['seeds']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page() -> str:
    """The whole page with the table as it should be."""
    return filled(PAGE, {"calibrations": table()})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
