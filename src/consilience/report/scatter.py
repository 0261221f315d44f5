"""Two measurements against each other: every method a cloud of its seeds around its mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.report.drawing import INK, Look, drawing_style
from consilience.report.plots import LABEL_WIDTH
from consilience.report.wording import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CHARACTER, _LINE = 0.064, 0.2  # inches, of the names' font and between them


@dataclass(frozen=True)
class Cloud:
    """One method's measurements, one pair a seed."""

    label: str
    look: Look
    x: list[float]
    y: list[float]

    @property
    def centre(self) -> tuple[float, float]:
        """The means over seeds."""
        return sum(self.x) / len(self.x), sum(self.y) / len(self.y)


def plot_clouds(clouds: Sequence[Cloud], x_label: str, y_label: str, *, zero: str = "") -> Figure:
    """Seeds as faint dots, means as marks, names at the right. zero: what the line x = 0 stands for, if it is drawn."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    labels = [shorten(cloud.label, LABEL_WIDTH) for cloud in clouds]
    right = 0.45 + _CHARACTER * max([8, *map(len, labels)])
    width, height = 4.9, 3.0
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((0.6 / width, 0.46 / height, 1 - (0.6 + right) / width, 1 - 0.74 / height))
        axes.patch.set_visible(False)
        for place, (cloud, label) in enumerate(zip(clouds, labels)):
            look = cloud.look
            axes.plot(cloud.x, cloud.y, look.marker, color=look.colour, alpha=0.3, markersize=3, mew=0, zorder=2)
            axes.plot(*cloud.centre, look.marker, color=look.colour, markersize=7.5, mew=0, zorder=3)
            x, y = 1 - (right - 0.2) / width, 1 - (0.4 + _LINE * place) / height
            figure.add_artist(
                Line2D([x], [y], color=look.colour, marker=look.marker, markersize=5, mew=0, linestyle="")
            )
            figure.text(x + 0.12 / width, y, label, color=look.colour, va="center", fontsize=8)
        axes.margins(0.06)
        if zero:
            axes.axvline(0, color=INK, linewidth=0.8, alpha=0.7, zorder=1.5)
            side = "right" if sum(axes.get_xlim()) < 0 else "left"  # the words go where there is room for them
            frame = axes.get_xaxis_transform()
            axes.text(0, 1.0, f" {zero} ", transform=frame, ha=side, va="top", fontsize=7, alpha=0.75)
        axes.grid()
        axes.set_xlabel(x_label)
        figure.text(0.08 / width, 1 - 0.1 / height, y_label, va="center")
    return figure
