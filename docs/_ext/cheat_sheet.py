"""Draws docs/cheat-sheet.md as one landscape page, a PDF."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

INK, PAPER, BOX, HEAD, COMMENT = "#22313f", "#ffffff", "#f4f1ea", "#a3421f", "#6b7a86"
WIDTH, HEIGHT = 11.69, 8.27  # A4
COLUMNS, MARGIN, GUTTER, TOP = 3, 0.35, 0.22, 0.62
TITLE, LINE, GAP, SIZE = 0.3, 0.195, 0.24, 6.7


class Box(NamedTuple):
    """A section of the sheet: its title, and lines of code or of a table's cells."""

    title: str
    lines: list[str]
    table: bool

    @property
    def height(self) -> float:
        """In inches."""
        return TITLE + LINE * (len(self.lines) + 0.6) + GAP


def sections(text: str) -> list[Box]:
    """The sections of the sheet: each has one block of code or one table."""
    boxes = []
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        code = re.search(r"^```\w+\n(.*?)\n```", body, re.M | re.S)
        if code:
            boxes.append(Box(title, code[1].splitlines(), False))
        else:
            rows = [line for line in body.splitlines() if line.startswith("|")]
            cells = [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows[2:]]
            boxes.append(Box(title, [f"{left}\t{right}" for left, right in cells], True))
    return boxes


def in_columns(boxes: list[Box]) -> list[list[Box]]:
    """The boxes in their order, in columns whose longest is as short as possible."""
    best: list[list[Box]] = []
    lowest = float("inf")
    for first in range(1, len(boxes) - 1):
        for second in range(first + 1, len(boxes)):
            columns = [boxes[:first], boxes[first:second], boxes[second:]]
            longest = max(sum(box.height for box in column) for column in columns)
            if longest < lowest:
                best, lowest = columns, longest
    if lowest > HEIGHT - TOP - MARGIN:
        raise SystemExit(f"the cheat sheet does not fit on one page: a column has {lowest:.1f} inches; shorten it")
    return best


def draw(source: Path, out: Path) -> None:
    """Draw the sheet.

    Args:
        source: The Markdown document.
        out: The PDF file.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    axes.text(MARGIN, 0.4, "consilience", size=17, weight="bold", color=HEAD, va="center")
    axes.text(MARGIN + 1.85, 0.42, "multimodal fusion on one page", size=10, color=INK, va="center")
    width = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GUTTER) / COLUMNS
    for place, column in enumerate(in_columns(sections(source.read_text(encoding="utf-8")))):
        x, y = MARGIN + place * (width + GUTTER), TOP
        for box in column:
            axes.text(x, y + 0.13, box.title, size=10, weight="bold", color=HEAD, va="center")
            high = LINE * (len(box.lines) + 0.6)
            axes.add_patch(Rectangle((x, y + TITLE), width, high, fc=BOX, ec="none"))
            for row, line in enumerate(box.lines):
                write_line(axes, x + 0.08, y + TITLE + LINE * (row + 0.8), line, width, box.table)
            y += box.height
    out.parent.mkdir(exist_ok=True)
    FigureCanvasPdf(figure).print_pdf(out, metadata={"CreationDate": None, "Title": "consilience: cheat sheet"})


def write_line(axes: object, x: float, y: float, line: str, width: float, table: bool) -> None:
    """Write one line of a box: code with its comment in grey, or the two cells of a row."""
    style = {"size": SIZE, "va": "center", "color": INK}
    if table:
        left, right = line.split("\t")
        axes.text(x, y, left, **style)
        axes.text(x + 0.42 * width, y, right, family="monospace", **style)
        return
    code, hash_sign, comment = line.partition("#")
    axes.text(x, y, code, family="monospace", **style)
    wide = 0.602 * SIZE / 72  # of a character
    if (len(line) + 1) * wide > width:
        raise SystemExit(f"the cheat sheet has a line that is too long for its column: {line!r}")
    if hash_sign:
        axes.text(x + len(code) * wide, y, hash_sign + comment, family="monospace", **style | {"color": COMMENT})
