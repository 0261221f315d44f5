"""Where methods stand over several sets: mean ranks in a critical-difference diagram (Demšar 2006)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.comparison.results import Standing
from consilience.report.drawing import INK, Drawing, Look, drawing_style, looks_of
from consilience.report.wording import capital, one_line, say_list, say_number, say_p, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
WIDE, NARROW = 9.0, 4.9
_CHARACTER, _NUMBER = 0.066, 0.33  # of the labels' font; what a mean rank takes beside a name
_ROW, _BAR, _AXIS = 0.19, 0.09, 0.62  # from label to label and from bar to bar, and how far down the axis stands


def draw_ranks(
    standing: Standing, name: str, looks: Mapping[str, Look] | None = None, *, small: bool = False
) -> Drawing:
    """The critical-difference diagram of a standing. small: of a phone's width everywhere, one of many."""
    looks = looks_of(standing.methods) if looks is None else looks
    narrow = plot_ranks(standing, looks, NARROW)
    figures = (narrow,) if small else (plot_ranks(standing, looks, WIDE), narrow)
    return Drawing(name, _caption(standing, small), _describe(standing), *figures)


def plot_ranks(standing: Standing, looks: Mapping[str, Look], width: float) -> Figure:
    """An axis of ranks; each method hangs on it by a line that leads to its name, the better half on the left.

    Bars below the axis join methods that do not differ significantly; the ruler above it is as long as the critical
    difference.
    """
    from matplotlib.figure import Figure

    count = len(standing.methods)
    left = math.ceil(count / 2)
    room = int((0.62 * width / 2 - _NUMBER - 0.1) / _CHARACTER)  # characters that leave the axis enough
    names = [shorten(method, max(room, 8)) for method in standing.methods]
    longest = [max(5, *map(len, part)) for part in (names[:left], names[left:])]  # "mean rank" needs a margin too
    margins = [0.1 + _NUMBER + _CHARACTER * length for length in longest]
    first = _AXIS + 0.24 + _BAR * len(standing.bars)  # row of labels
    height = first + _ROW * (left - 1) + 0.14
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        axis = _RankAxis(margins[0] + 0.12, width - margins[1] - 0.12, count)
        _draw_axis(axes, axis, standing)
        for place, (method, rank, label) in enumerate(zip(standing.methods, standing.ranks, names)):
            on_left = place < left
            row = first + _ROW * (place if on_left else count - 1 - place)
            edge = margins[0] if on_left else width - margins[1]
            _draw_method(axes, axis.at(rank), row, edge, label, f"{rank:.1f}", looks[method], -1 if on_left else 1)
        for number, (best, worst) in enumerate(standing.bars):
            ends = (axis.at(standing.ranks[best]) - 0.05, axis.at(standing.ranks[worst]) + 0.05)
            level = _AXIS + 0.15 + _BAR * number
            axes.plot(ends, (level,) * 2, color=INK, alpha=0.8, linewidth=3, solid_capstyle="butt", zorder=4)
    return figure


@dataclass(frozen=True)
class _RankAxis:
    """Ranks from 1 to `most` between two places, in inches."""

    low: float
    high: float
    most: int

    def at(self, rank: float) -> float:
        return self.low + (rank - 1) / (self.most - 1) * (self.high - self.low)


def _draw_axis(axes: Axes, axis: _RankAxis, standing: Standing) -> None:
    """The axis with its numbers above, and the ruler above them."""
    axes.plot((axis.low, axis.high), (_AXIS, _AXIS), color=INK, linewidth=0.9, zorder=2)
    step = math.ceil(axis.most / (9 if axis.high - axis.low > 3 else 5))
    ticks = [rank for rank in range(1, axis.most + 1, step) if axis.most - rank > step / 2]
    for rank in (*ticks, axis.most):
        axes.plot((axis.at(rank),) * 2, (_AXIS - 0.05, _AXIS), color=INK, linewidth=0.7, zorder=2)
        axes.text(axis.at(rank), _AXIS - 0.13, str(rank), ha="center", va="center", fontsize=7.5)
    axes.text(axis.low - 0.14, _AXIS - 0.13, "mean rank", ha="right", va="center", fontsize=7.5, alpha=0.75)
    ends = (axis.low, min(axis.at(1 + standing.critical), axis.high))
    beyond = ", longer than the axis" if standing.critical > axis.most - 1 else ""
    axes.plot(ends, (0.24, 0.24), color=INK, linewidth=1.1)
    for end in ends[: 1 if beyond else 2]:
        axes.plot((end, end), (0.2, 0.28), color=INK, linewidth=1.1)
    axes.text(axis.low, 0.09, f"critical difference {standing.critical:.1f}{beyond}", va="center", fontsize=7.5)


def _draw_method(axes: Axes, x: float, row: float, edge: float, label: str, number: str, look: Look, side: int) -> None:
    """From the axis down to a row and out to the margin, where the mean rank and the name stand. side: −1 is left."""
    axes.plot(
        (x, x, edge),
        (_AXIS, row, row),
        color=look.colour,
        alpha=max(look.opacity, 0.4),
        linewidth=1.1 if look.shown else 0.8,
        zorder=3 if look.shown else 2.5,
        solid_joinstyle="round",
    )
    axes.plot([x], [_AXIS], look.marker or "o", color=look.colour, markersize=4, alpha=max(look.opacity, 0.5), zorder=5)
    align = "right" if side < 0 else "left"
    axes.text(edge + 0.04 * side, row, number, ha=align, va="center", fontsize=7.5, alpha=0.75)
    colour, alpha = (look.colour, 1.0) if look.shown else (INK, 0.8)
    axes.text(edge + _NUMBER * side, row, label, ha=align, va="center", fontsize=8, color=colour, alpha=alpha)


def _caption(standing: Standing, small: bool) -> str:
    over = f"over {say_number(standing.sets, 'set')}"
    ranked = (
        f"Mean rank of {say_number(len(standing.methods), 'method')} {over}, {one_line(standing.where)}; 1 is best."
    )
    first = f"{one_line(capital(standing.where))}, {over}." if small else ranked
    if not standing.differ:
        return (
            f"{first} One bar joins all: Friedman's test finds no difference between the methods ({say_p(standing.p)})."
        )
    within = f"within the critical difference of {standing.critical:.2f}"
    if small:
        return f"{first} Bars join mean ranks {within}; Friedman's test: {say_p(standing.p)}."
    return (
        f"{first} A bar joins methods that do not differ significantly: their mean ranks lie {within} (Nemenyi's test "
        f"at 5 %, after Friedman's: {say_p(standing.p)})."
    )


def _describe(standing: Standing) -> str:
    """The diagram in words, for screen readers."""
    ranks = "; ".join(f"{one_line(method)} {rank:.1f}" for method, rank in zip(standing.methods, standing.ranks))
    bars = [
        f"{one_line(standing.methods[first])} to {one_line(standing.methods[last])}" for first, last in standing.bars
    ]
    joined = f"Bars join {say_list(bars)}." if bars else "No bar joins any of them."
    return (
        f"Critical-difference diagram over {say_number(standing.sets, 'set')}, {one_line(standing.where)}, critical "
        f"difference {standing.critical:.1f}. Mean ranks, best first: {ranks}. {joined}"
    )
