"""Where methods stand over several sets: mean ranks in a critical-difference diagram (Demšar 2006)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consilience.report.drawing import Drawing
from consilience.report.palette import INK, Look, looks_of
from consilience.report.svg import drawing_style
from consilience.report.wording import one_line, say_list, say_number, say_p, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALPHA = 0.05
CLEAN, EVERYTHING = "clean", "all corruptions"
# Inches.
WIDE, NARROW = 9.0, 4.9
_CHARACTER, _NUMBER = 0.066, 0.33  # of the labels' font; what a mean rank takes beside a name
_ROW, _BAR, _AXIS = 0.19, 0.09, 0.62  # from label to label and from bar to bar, and how far down the axis stands


@dataclass(frozen=True)
class Standing:
    """Methods ranked on every set under one condition, from the best mean rank to the worst; 1 is best.

    label: `CLEAN`, `EVERYTHING` or a corruption · critical: how far apart two mean ranks must lie for their methods to
    differ, by Nemenyi's test · p: of Friedman's test that all methods are alike · left_out: methods without a rank,
    since one of the sets cannot be served by them.
    """

    label: str
    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    sets: int
    critical: float
    p: float
    left_out: tuple[str, ...] = ()

    @property
    def differ(self) -> bool:
        """Whether any two methods may be told apart: only if Friedman's test says that not all are alike."""
        return self.p <= ALPHA

    @property
    def hopeless(self) -> bool:
        """Whether the sets are too few for the best on all of them to be told from the worst on all of them."""
        return self.critical >= len(self.methods) - 1

    @property
    def bars(self) -> list[tuple[int, int]]:
        """First and last place of every longest run of methods that are not told apart.

        >>> Standing("clean", ("a", "b", "c", "d"), (1.2, 2.0, 2.9, 3.9), 20, 1.05, 0.001).bars
        [(0, 1), (1, 2), (2, 3)]
        """
        last = len(self.methods) - 1
        if not self.differ:
            return [(0, last)]
        found: list[tuple[int, int]] = []
        for first, rank in enumerate(self.ranks):
            end = max(place for place in range(first, last + 1) if self.ranks[place] - rank <= self.critical)
            if end > first and (not found or end > found[-1][1]):
                found.append((first, end))
        return found

    def rank_of(self, method: str) -> float:
        """Its mean rank."""
        return self.ranks[self.methods.index(method)]

    def worse_than(self, method: str) -> list[str]:
        """The methods that this one is significantly better than."""
        if not self.differ:
            return []
        return [one for one, rank in zip(self.methods, self.ranks) if rank - self.rank_of(method) > self.critical]

    @property
    def where(self) -> str:
        """The condition in words."""
        return {CLEAN: "on clean data", EVERYTHING: "over all corruptions"}.get(
            self.label, f"under {one_line(self.label)}"
        )


def draw_ranks(
    standing: Standing, name: str, looks: Mapping[str, Look] | None = None, *, small: bool = False
) -> Drawing:
    """The critical-difference diagram of a standing. small: of a phone's width everywhere, one of many."""
    looks = looks_of(standing.methods) if looks is None else looks
    narrow = plot_ranks(standing, looks, NARROW)
    figures = (narrow,) if small else (plot_ranks(standing, looks, WIDE), narrow)
    return Drawing(name, _caption(standing, small), _tell(standing), *figures)


def plot_ranks(standing: Standing, looks: Mapping[str, Look], width: float) -> Figure:
    """An axis of ranks; each method hangs on it by a line that leads to its name, the better half on the left.

    Bars below the axis join methods that are not told apart, the ruler above it is as long as the critical difference.
    """
    from matplotlib.figure import Figure

    count = len(standing.methods)
    left = math.ceil(count / 2)
    room = int((0.62 * width / 2 - _NUMBER - 0.1) / _CHARACTER)  # characters that leave the axis enough
    names = [shorten(one, max(room, 8)) for one in standing.methods]
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
    ranked = f"Mean rank of {say_number(len(standing.methods), 'method')} {over}, {standing.where}; 1 is best."
    told = f"{standing.where[0].upper()}{standing.where[1:]}, {over}." if small else ranked
    if not standing.differ:
        return f"{told} One bar joins all: Friedman's test does not tell the methods apart ({say_p(standing.p)})."
    within = f"within the critical difference of {standing.critical:.2f}"
    if small:
        return f"{told} Bars join mean ranks {within}; Friedman's test: {say_p(standing.p)}."
    return (
        f"{told} A bar joins methods that are not told apart: their mean ranks lie {within} (Nemenyi's test at 5 %, "
        f"after Friedman's: {say_p(standing.p)})."
    )


def _tell(standing: Standing) -> str:
    """The diagram for a reader who cannot see it."""
    ranks = "; ".join(f"{one_line(method)} {rank:.1f}" for method, rank in zip(standing.methods, standing.ranks))
    bars = [
        f"{one_line(standing.methods[first])} to {one_line(standing.methods[last])}" for first, last in standing.bars
    ]
    joined = f"Bars join {say_list(bars)}." if bars else "No bar joins any of them."
    return (
        f"Critical-difference diagram over {say_number(standing.sets, 'set')}, {standing.where}, critical difference "
        f"{standing.critical:.1f}. Mean ranks, best first: {ranks}. {joined}"
    )
