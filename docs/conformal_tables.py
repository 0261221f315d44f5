"""Writes the measured tables of docs/conformal.md from docs/conformal.json: python docs/conformal_tables.py.

The file is filled by a run, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_conformal.py --sets all --seeds 3 --keep docs/conformal.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from marked_places import filled

PAGE = Path(__file__).with_name("conformal.md")
FILE = PAGE.with_suffix(".json")
# Name in the file → on the page.
CORRUPTIONS = {
    "clean": "clean",
    "σ = 0.5": "σ = ½",
    "σ = 1": "σ = 1",
    "σ = 2": "σ = 2",
    "σ = 5": "σ = 5",
    "stuck": "stuck",
    "swapped": "swapped",
}
# A difference of more standard errors than this is not chance.
_BEYOND_CHANCE = 2.0


def tables() -> dict[str, str]:
    """The tables of the page."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    runs = [(name, method, run) for name, of in found["figures"].items() for method, run in of.items()]
    halves = [row for row in runs if "clean" in row[2]]
    exact = [
        [name, method, str(run["test"]), _share(run["clean"]["aps"]), f"{run['clean']['aps'][1]:.2f}"]
        + [_share(run["clean"]["lac"]), f"{run['clean']['lac'][1]:.2f}"]
        + [_patterns(run[key], found) for key in ("patterns", "drawn")]
        for name, method, run in halves
    ]
    fitted = [
        [
            *(name, method, str(run["calibration"]), str(run["test"]), f"{100 * run['accuracy']:.1f}"),
            *(_share(run["fitted"]["aps"]), f"{run['fitted']['aps'][1]:.2f}", _share(run["fitted"]["lac"])),
            _share(run["folds"]["aps"]) if "folds" in run else "–",
        ]
        for name, method, run in runs
    ]
    corrupted = []
    for name, method, run in halves:
        for rho in ("", " ρ"):
            if f"clean{rho}" in run:
                label = f"{method}, weighed by ρ" if rho else method
                cells = [_both(run[corruption + rho]) for corruption in CORRUPTIONS]
                corrupted.append([name, label, *cells])
    score = ["APS", "size", "LAC", "size"]
    return {
        "exact": _table(["", "", "test samples", *score, "every pattern", "patterns that occur"], exact),
        "fitted": _table(["", "", "calibration", "test samples", "accuracy", "APS", "size", "LAC", "5 folds"], fitted),
        "corrupted": _table(["", "", *CORRUPTIONS.values()], corrupted),
        "misses": misses(found),
    }


def misses(found: dict[str, Any]) -> str:
    """How many coverages of APS miss the one asked for by more than the tolerance, and which do so beyond chance."""
    total, outside, sure = 0, 0, []
    for name, of in found["figures"].items():
        for method, run in of.items():
            cells = [run["clean"]["aps"][::2]] if "clean" in run else []
            for share, error in [*cells, *run["patterns"], *run["drawn"]]:
                over = abs(share - found["coverage"]) - found["tolerance"]
                total, outside = total + 1, outside + (over > 0)
                if over > _BEYOND_CHANCE * error:
                    sure.append(f"{name} with {method} ({share:.3f} ± {error:.3f})")
    least = f"by more than {found['tolerance']}"
    differ = "differs" if outside == 1 else "differ"
    first = f"Of these {total} coverages of APS, {outside} {differ} from {found['coverage']} {least}. "
    if not sure:
        return first + f"None is more than {_BEYOND_CHANCE:g} standard errors beyond that."
    return first + f"More than {_BEYOND_CHANCE:g} standard errors beyond that are: {', '.join(sure)}."


def page() -> str:
    """The whole page with the tables as they should be."""
    return filled(PAGE, tables())


def _share(cell: list[float]) -> str:
    share, _, error = cell
    return f"{share:.3f} ± {error:.3f}"


def _both(scores: dict[str, list[float]]) -> str:
    """Coverage of APS and LAC."""
    return f"{scores['aps'][0]:.2f} / {scores['lac'][0]:.2f}"


def _patterns(cells: list[list[float]], found: dict[str, Any]) -> str:
    """Lowest and highest coverage, and how many are outside the tolerance."""
    if not cells:
        return "–"
    shares = np.array(cells)[:, 0]
    outside = int((np.abs(shares - found["coverage"]) > found["tolerance"]).sum())
    return f"{shares.min():.3f} … {shares.max():.3f}, {outside} of {len(shares)}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]).replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
