"""Trust in a sound modality against trust in a corrupted one: a panel per method, a row per modality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from consilience.report.drawing import INK, SERIES, drawing_style
from consilience.report.wording import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LETTERS, _TITLE_LETTERS = 14, 22
_CHARACTER = 0.064  # inches, of the labels' font
_ROW = 0.2


def plot_sound_and_hit(panels: Sequence[tuple[str, Sequence[tuple[str, float, float]]]], columns: int) -> Figure:
    """Draw for each method a row per modality, from its trust where it is sound to that where it was corrupted.

    Args:
        panels: Method → (modality, trust where sound, trust where hit).
        columns: Panels in a row.
    """
    from matplotlib.figure import Figure

    with drawing_style():
        names = list(dict.fromkeys(name for _, pairs in panels for name, _, _ in pairs))
        rows = math.ceil(len(panels) / columns)
        wide, columns = columns > 2, math.ceil(len(panels) / rows)
        left = 0.2 + _CHARACTER * max(min(len(name), _LETTERS) for name in names)
        inner = 1.75 if wide else 0.95
        body = 0.1 + _ROW * len(names)
        cell_width, cell_height = inner + 0.3, body + 0.5
        width, height = left + cell_width * columns, cell_height * rows + 0.3
        figure = Figure(figsize=(width, height), facecolor="none")
        right = max(value for _, pairs in panels for _, *values in pairs for value in values)
        for number, (method, pairs) in enumerate(panels):
            row, column = divmod(number, columns)
            x, y = left + cell_width * column, height - cell_height * (row + 1) + 0.2
            axes = figure.add_axes((x / width, y / height, inner / width, body / height))
            axes.patch.set_visible(False)
            for name, sound, hit in pairs:
                place = names.index(name)
                axes.plot((sound, hit), (place, place), color=SERIES[0], linewidth=1.2, alpha=0.6, zorder=2)
                axes.plot([sound], [place], "o", color=SERIES[0], markersize=5, zorder=3)
                axes.plot(
                    [hit],
                    [place],
                    "o",
                    markerfacecolor="none",
                    markeredgecolor=SERIES[1],
                    markersize=6,
                    mew=1.4,
                    zorder=4,
                )
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_xlim(0, 1.08 * right or 1.0)
            axes.set_yticks(range(len(names)), [shorten(name, _LETTERS) for name in names])
            axes.tick_params(axis="y", length=0, labelleft=column == 0)
            axes.spines["left"].set_visible(False)
            axes.grid(axis="x")
            title = shorten(method, _TITLE_LETTERS)
            figure.text(x / width, (y + body + 0.12) / height, title, va="center", color=INK, fontsize=8.5)
            if number + columns >= len(panels):
                axes.set_xlabel("mean trust")
            else:
                axes.tick_params(labelbottom=False)
    return figure
