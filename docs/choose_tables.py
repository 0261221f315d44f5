"""Writes the measured tables and the chart of docs/choose.md: python docs/choose_tables.py.

The figures are those of docs/robust.json and of two results in docs/results; a test fails where page and files
disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import robust_tables
from marked_places import filled

PAGE = Path(__file__).with_name("choose.md")
RANKS = PAGE.parent / "results" / "robustness.json"
TUNED = PAGE.parent / "results" / "fusion-or-confusion.json"
CHART = PAGE.parent / "images" / "choose.svg"
TWO_MODALITIES = ("mvsa", "utd-mhad")
SETTINGS = {"late, trained with noise": '`late` with `augment="gaussian:0..1"`'}
INK, PAPER, ASK, TAKE, ALWAYS = "#22313f", "#fbfaf7", "#e9e3d8", "#f3c9b5", "#cfe0d2"


def over_all(content: dict[str, Any], sets: list[str], rival: str, situation: str) -> float:
    """The mean accuracy of a rival in a situation, over sets, both encoders and all seeds."""
    places = [content["columns"].index(column) for column in robust_tables.SITUATIONS[situation]]
    figures = [content["figures"][name][encoder][rival] for name in sets for encoder in content["figures"][name]]
    return float(np.mean([figure[place] for figure in figures for place in places]))


def situations(sets: list[str] | None = None) -> str:
    """For each situation the three best rivals, with their accuracy, and the mean of all."""
    content = json.loads(robust_tables.FILE.read_text(encoding="utf-8"))
    counted = sets or [name for name in content["figures"] if name != content["designed_on"]]
    lines = ["| situation | best | second | third | mean of all |", "|---|---|---|---|---:|"]
    for situation in robust_tables.SITUATIONS:
        figures = {rival: over_all(content, counted, rival, situation) for rival in robust_tables.DRAWN}
        best = sorted(figures, key=lambda rival: -figures[rival])[:3]
        cells = [f"{SETTINGS.get(rival, f'`{rival}`')} {figures[rival]:.1f}" for rival in best]
        lines.append(f"| {situation} | {' | '.join(cells)} | {np.mean(list(figures.values())):.1f} |")
    return "\n".join(lines)


def ranks() -> str:
    """The mean rank of each method over sets, on clean data and under each corruption."""
    table = stored_table(RANKS, lambda table: table["header"][1] == "mean")
    return lines_of(["method", "mean rank", *table["header"][2:]], table["rows"])


def tuned_ranks() -> str:
    """The mean rank of tuned methods over sets, over all corruptions, clean and under each corruption."""
    table = stored_table(TUNED, lambda table: table["caption"].startswith("Mean ranks"))
    return lines_of(table["header"], table["rows"])


def stored_table(file: Path, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first such table of a stored result."""
    told = json.loads(file.read_text(encoding="utf-8"))
    return next(table for section in told["sections"] for table in section["tables"] if wanted(table))


def lines_of(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table of methods and numbers."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in rows)])


def tables() -> dict[str, str]:
    """The tables of the page by name."""
    return {
        "situations": situations(),
        "two modalities": situations(list(TWO_MODALITIES)),
        "tuned": tuned_ranks(),
        "ranks": ranks(),
    }


def page() -> str:
    """The whole page with the tables as they should be."""
    return filled(PAGE, tables())


# The chart: question → what to take if the answer is yes; the next question if not.
STEPS = (
    ("Do you have labels?", "no", "MultimodalVAE\nimpute, generate, encode"),
    ("Are your models trained already,\nand you have their outputs?", "yes", "fuse, BayesFusion"),
    ("Do you have a PyTorch model\nthat works, and want more of it?", "yes", "progressive(model)"),
    ("May a sensor break, or a file\nbe swapped, without notice?", "yes", "bayes-robust"),
    ("Is everything a little noisy\nwhen the model is used?", "yes", 'late, augment="gaussian:0..1"'),
    ("Is a decision only possible from\nseveral modalities together?", "yes", "concat, pro:concat, tensor"),
    ("You do not know", "", "auto, the default"),
)


def draw() -> None:
    """Draw the chart."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    mpl.rcParams["svg.hashsalt"] = "consilience"
    figure = Figure(figsize=(9, 0.95 * len(STEPS) + 0.9), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 9), ylim=(-0.95 * len(STEPS) - 0.4, 0.5))
    axes.axis("off")

    def box(x: float, y: float, width: float, height: float, text: str, colour: str, family: str) -> None:
        style = "round,pad=0.02,rounding_size=0.1"
        axes.add_patch(FancyBboxPatch((x, y - height / 2), width, height, boxstyle=style, fc=colour, ec=INK, lw=0.8))
        axes.text(x + width / 2, y, text, ha="center", va="center", color=INK, size=10, family=family)

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str) -> None:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1})
        dx, dy = (0.18, 0) if start[0] == end[0] else (0, 0.1)
        axes.text((start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2 + dy, text, color=INK, size=9, ha="center")

    for row, (question, answer, take) in enumerate(STEPS):
        y = -0.95 * row
        box(0.3, y, 3.9, 0.62, question, ASK, "sans-serif")
        arrow((4.23, y), (5.2, y), answer)
        box(5.24, y, 3.45, 0.56, take, TAKE, "monospace")
        if row + 1 < len(STEPS):
            arrow((2.25, y - 0.34), (2.25, y - 0.6), {"yes": "no", "no": "yes"}[answer])
    y = -0.95 * len(STEPS)
    box(0.3, y, 8.39, 0.5, "Then let your own data decide: consilience compare DATA --methods …", ALWAYS, "sans-serif")
    figure.savefig(CHART, facecolor=PAPER, metadata={"Date": None})


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    draw()
