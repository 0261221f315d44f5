"""Writes the measured tables and the picture of docs/robust.md from docs/robust.json: python docs/robust_tables.py.

The file is filled by a run, and no number in those tables is typed by hand; a test fails where page and file disagree.

    python benchmarks/bench_reliability.py --sets all --seeds 5 --jobs 2 --keep docs/robust.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from marked_places import filled

PAGE = Path(__file__).with_name("robust.md")
FILE = PAGE.with_suffix(".json")
PICTURE = PAGE.parent / "images" / "which-method.png"
# Column of the file → its title on the page.
COLUMNS = {
    "clean": "clean",
    "σ=.5 on all": "σ = ½ on all",
    "σ=1 on all": "σ = 1 on all",
    "p=.5": "broken",
    "p=.8": "broken, p = .8",
    "swapped": "swapped",
    "missing": "missing",
    "NLL p=.5": "log-loss, broken",
}
# Rival of the file → its name on the page.
RIVALS = {
    "concat": "concat",
    "mmtm": "mmtm",
    "late": "late",
    "late, trained with noise": "late, trained with noise",
    "qmf": "qmf",
    "etmc": "etmc",
    "bayes": "bayes",
    "bayes-robust, fixed map": "bayes-robust, fixed map",
    "families left out": "bayes-robust, left out",
    "bayes-robust": "bayes-robust",
}
SITUATIONS = {
    "All is well": ("clean",),
    "Everything is a little noisy": ("σ=.5 on all", "σ=1 on all"),
    "Something is broken": ("p=.5", "p=.8"),
    "Something is missing": ("missing",),
}
DRAWN = [rival for rival in RIVALS if rival not in ("bayes-robust, fixed map", "families left out")]
HIGHLIGHTED, OTHERS = "#b5482a", "#7d8ea3"


def over_sets(content: dict[str, Any], encoder: str, rival: str, column: str) -> np.ndarray:
    """The figure of each seed, the mean over the sets that count."""
    place = content["columns"].index(column)
    sets = [name for name in content["figures"] if name != content["designed_on"]]
    return np.mean([content["figures"][name][encoder][rival][place] for name in sets], axis=0)


def tables() -> dict[str, str]:
    """The tables of the page by encoder."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    made = {}
    for encoder in next(iter(content["figures"].values())):
        lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "---:|" * len(COLUMNS)]
        for rival, name in RIVALS.items():
            cells = []
            for column in COLUMNS:
                seeds = over_sets(content, encoder, rival, column)
                places = 2 if column.startswith("NLL") else 1
                cells.append(f"{seeds.mean():.{places}f} ± {seeds.std(ddof=1):.{places}f}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        made[encoder] = "\n".join(lines)
    return made


def draw() -> None:
    """Draw every method in every situation: one panel each, the mean over both encoders, sets and seeds."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    content = json.loads(FILE.read_text(encoding="utf-8"))
    encoders = list(next(iter(content["figures"].values())))
    figure, axes = pyplot.subplots(1, len(SITUATIONS), figsize=(12, 3.6), sharey=True, layout="constrained")
    for axis, (title, columns) in zip(axes, SITUATIONS.items()):
        for row, rival in enumerate(DRAWN):
            seeds = np.mean(
                [over_sets(content, encoder, rival, column) for encoder in encoders for column in columns], axis=0
            )
            colour = HIGHLIGHTED if rival == "bayes-robust" else OTHERS
            axis.plot([seeds.min(), seeds.max()], [row, row], color=colour, linewidth=2, solid_capstyle="round")
            axis.plot(seeds.mean(), row, "o", color=colour, markersize=7)
            axis.annotate(
                f"{seeds.mean():.1f}", (seeds.mean(), row), (0, 7), textcoords="offset points", ha="center", fontsize=8
            )
        axis.set_title(title, fontsize=11, loc="left")
        axis.set_xlabel("accuracy, %")
        axis.margins(x=0.15, y=0.1)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(DRAWN)), [RIVALS[rival] for rival in DRAWN])
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)


def page() -> str:
    """The whole page with the tables as they should be."""
    return filled(PAGE, tables())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    draw()
