"""Small multiples, one panel per method: trust against the level, and reliability diagrams."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.report.curves import Line, draw_line, fit_levels
from consilience.report.palette import INK, SERIES, Look
from consilience.report.svg import drawing_style
from consilience.report.wording import fill_lines, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 4, 2  # panels in a row
CLEAN_LOOK, WORST_LOOK = Look(INK, "o"), Look(SERIES[1], "s")
_TITLE_WIDTH = 22


@dataclass(frozen=True)
class Bins:
    """A reliability curve: confidence, accuracy and share of samples per filled bin, and its calibration error."""

    confidence: list[float]
    accuracy: list[float]
    share: list[float]
    ece: float | None = None


def plot_trust(panels: Sequence[tuple[str, Sequence[Line]]], x_label: str, columns: int) -> Figure:
    """One panel per method, one line per modality."""
    keys = {line.label: line.look for _, lines in panels for line in lines}
    means = [mean for _, lines in panels for line in lines for mean in line.means if math.isfinite(mean)]
    top = min(1.0, 1.15 * max(means, default=1.0)) or 1.0

    def draw(axes: Axes, lines: Any) -> None:
        for line in lines:
            draw_line(axes, line)
        fit_levels(axes, lines, apart=0.14)
        axes.set_ylim(0, top)

    return _grid(panels, draw, list(keys.items()), x_label, "mean trust", columns)


def plot_reliability(panels: Sequence[tuple[str, Sequence[Bins | None]]], names: Sequence[str], columns: int) -> Figure:
    """One panel per method: accuracy against confidence, clean and at the highest level.

    panels: method → (clean, highest level), None where there is nothing · names: of the two conditions.
    """
    looks = (CLEAN_LOOK, WORST_LOOK)

    def draw(axes: Axes, pair: Any) -> None:
        axes.plot((0, 1), (0, 1), color=INK, alpha=0.35, linewidth=0.8, linestyle=(0, (3, 2)))
        for place, (bins, look) in enumerate(zip(pair, looks)):
            if bins is None:
                continue
            axes.plot(bins.confidence, bins.accuracy, color=look.colour, linewidth=1.1, alpha=0.75)
            sizes = [4 + 70 * share for share in bins.share]
            axes.scatter(bins.confidence, bins.accuracy, sizes, color=look.colour, alpha=0.6, linewidths=0, zorder=3)
            if bins.ece is not None:
                axes.text(0.98, 0.15 - 0.12 * place, f"ECE {bins.ece:.3f}", ha="right", fontsize=7, color=look.colour)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xticks((0, 0.5, 1), ("0", "0.5", "1"))
        axes.set_yticks((0, 0.5, 1), ("0", "0.5", "1"))

    keys = [(name, look) for name, look in zip(names, looks)]
    return _grid(panels, draw, keys, "confidence", "accuracy", columns)


def _grid(
    panels: Sequence[tuple[str, Any]],
    draw: Callable[[Axes, Any], None],
    keys: Sequence[tuple[str, Look]],
    x_label: str,
    y_label: str,
    columns: int,
) -> Figure:
    from matplotlib.figure import Figure

    rows = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / rows)  # five panels as three and two, not as four and one
    cell_width, cell_height, left, bottom = 2.25, 1.7, 0.5, 0.3
    width = left + cell_width * columns
    lines = _wrap_keys([shorten(name, 24) for name, _ in keys], width - left)
    top = 0.08 + 0.2 * len(lines)
    height = bottom + cell_height * rows + top
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        for place, (name, content) in enumerate(panels):
            row, column = divmod(place, columns)
            x, y = left + cell_width * column, height - top - cell_height * (row + 1) + 0.2
            axes = figure.add_axes((x / width, y / height, (cell_width - 0.3) / width, (cell_height - 0.42) / height))
            axes.patch.set_visible(False)
            draw(axes, content)
            axes.grid(axis="y")
            figure.text(x / width, (y + cell_height - 0.42 + 0.1) / height, shorten(name, _TITLE_WIDTH), va="center")
            last = place + columns >= len(panels)
            axes.tick_params(labelbottom=last, labelleft=column == 0)
            if last:
                axes.set_xlabel(x_label)
            if column == 0:
                axes.set_ylabel(y_label)
        _draw_keys(figure, lines, [look for _, look in keys], left, width, height)
    return figure


def _wrap_keys(names: Sequence[str], width: float) -> list[list[str]]:
    """The legend's entries in lines that fit the width in inches."""
    return [[names[place] for place in line] for line in fill_lines([_key_width(name) for name in names], width)]


def _key_width(name: str) -> float:
    return 0.42 + 0.064 * len(name)


def _draw_keys(
    figure: Figure, lines: list[list[str]], looks: Sequence[Look], left: float, width: float, height: float
) -> None:
    from matplotlib.lines import Line2D

    order = iter(looks)
    for row, names in enumerate(lines):
        x, y = left, height - 0.12 - 0.2 * row
        for name in names:
            look = next(order)
            ends = ([x / width, (x + 0.2) / width], [y / height] * 2)
            figure.add_artist(Line2D(*ends, color=look.colour, alpha=look.opacity, linewidth=1.6))
            middle = ([(x + 0.1) / width], [y / height])
            figure.add_artist(Line2D(*middle, color=look.colour, alpha=look.opacity, marker=look.marker, linestyle=""))
            figure.text((x + 0.26) / width, y / height, name, va="center", fontsize=7.5)
            x += _key_width(name)
