"""Plots: lines against the level of corruption, values of one level as dots, and small panels, one per method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consilience.report.drawing import INK, SERIES, Look, drawing_style
from consilience.report.wording import fill_lines, say_level, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL_WIDTH, NARROW_LABEL = 20, 14  # characters of a name beside a line
WIDE, NARROW = 4, 2  # panels in a row
WIDTHS = (4.9, 3.3)  # inches of a plot beside another one, and of one on a phone, where its text is as large
CLEAN_LOOK, WORST_LOOK = Look(INK, "o"), Look(SERIES[1], "s")
_TITLE_WIDTH = 22
_CHARACTER = 0.064  # inches, of the labels' font


@dataclass(frozen=True)
class Line:
    """One method or modality against the level: means, and the half-width of the band, if any."""

    label: str
    look: Look
    levels: list[float]
    means: list[float]
    spreads: list[float] | None = None


@dataclass(frozen=True)
class Dots:
    """One method's values, one per seed, with a remark beside them."""

    label: str
    look: Look
    values: list[float]
    remark: str = ""
    mean: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", sum(self.values) / len(self.values))


def plot_lines(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    zero: str = "",
    limits: tuple[float | None, float | None] = (None, None),
    width: float = WIDTHS[0],
) -> Figure:
    """Draw lines with bands, their names at the right; `zero` names the line y = 0, `limits` are of the y-axis."""
    from matplotlib.figure import Figure

    with drawing_style():
        front = [line for line in lines if line.look.shown]
        back = [line for line in lines if not line.look.shown]
        letters = LABEL_WIDTH if width >= WIDTHS[0] else NARROW_LABEL
        labels = [shorten(line.label, letters) for line in lines]
        right = 0.28 + _CHARACTER * max([8, *map(len, labels)])
        height = 3.0
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((0.6 / width, 0.46 / height, 1 - (0.6 + right) / width, 1 - 0.74 / height))
        axes.patch.set_visible(False)
        for line in [*back, *reversed(front)]:
            draw_line(axes, line)
        if zero:
            axes.axhline(0, color=INK, linewidth=0.8, alpha=0.7, zorder=1.5)
            axes.text(0.01, 0, zero, transform=axes.get_yaxis_transform(), va="bottom", fontsize=7, alpha=0.75)
        fit_levels(axes, lines)
        fit_values(axes, lines, limits, [0.0] if zero else [])
        axes.grid(axis="y")
        axes.set_xlabel(x_label)
        figure.text(0.08 / width, 1 - 0.1 / height, y_label, va="center")
        label_ends(axes, front, back, (height - 0.74) * 72, letters)
    return figure


def say_bands(lines: Iterable[Line]) -> str:
    """Return the caption's sentence on the bands; "" where no line has one."""
    return " Bands: ± one standard deviation over seeds." if any(line.spreads for line in lines) else ""


def draw_line(axes: Axes, line: Line) -> None:
    """A line with its markers and its band."""
    look = line.look
    order = 3 if look.shown else 2
    axes.plot(
        line.levels,
        line.means,
        color=look.colour,
        alpha=look.opacity,
        marker=look.marker,
        linewidth=1.6 if look.shown else 0.9,
        zorder=order,
        clip_on=False,
    )
    if line.spreads is not None and look.shown and len(line.levels) > 1:
        low = [mean - spread for mean, spread in zip(line.means, line.spreads)]
        high = [mean + spread for mean, spread in zip(line.means, line.spreads)]
        axes.fill_between(line.levels, low, high, color=look.colour, alpha=0.13, linewidth=0, zorder=1)


def fit_levels(axes: Axes, lines: Sequence[Line], apart: float = 0.07) -> None:
    """Ticks at the levels that were measured, as far `apart` as their names need; level 0 is called clean."""
    levels = sorted({level for line in lines for level in line.levels})
    if not levels:
        return
    span = levels[-1] - levels[0] or 1.0
    ticks = [levels[-1]]
    for level in reversed(levels[1:-1]):
        if ticks[-1] - level >= apart * span and level - levels[0] >= 1.4 * apart * span:
            ticks.append(level)
    ticks = sorted({levels[0], *ticks})
    axes.set_xticks(ticks, ["clean" if level == 0 else say_level(level) for level in ticks])
    axes.set_xlim(levels[0] - 0.03 * span, levels[-1] + 0.03 * span)


def fit_values(
    axes: Axes, lines: Sequence[Line], limits: tuple[float | None, float | None], also: Sequence[float] = ()
) -> None:
    """A y-axis around all means, bands and what is `also` to be seen, with a little air, never beyond the limits."""
    edges = [
        *also,
        *(
            mean + sign * (line.spreads[place] if line.spreads and line.look.shown else 0.0)
            for line in lines
            for place, mean in enumerate(line.means)
            for sign in (-1, 1)
            if math.isfinite(mean)
        ),
    ]
    edges = [edge for edge in edges if math.isfinite(edge)]
    if not edges:
        return
    low, high = min(edges), max(edges)
    air = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    least, most = limits
    low = low - air if least is None else max(low - air, least)
    high = high + air if most is None else min(high + air, most)
    axes.set_ylim(low, high if high > low else low + 2 * air)


def label_ends(
    axes: Axes, front: Sequence[Line], back: Sequence[Line], height: float, letters: int = LABEL_WIDTH
) -> None:
    """Every line's name at its right end, moved apart where they would touch; a background of many gets one name."""
    ends: list[tuple[float, str, Look]] = [
        (end, shorten(line.label, letters), line.look) for line in front if math.isfinite(end := line.means[-1])
    ]
    faint = [(end, line) for line in back if math.isfinite(end := line.means[-1])]
    faint.sort(key=lambda pair: pair[0])  # two lines may end at the same height
    if len(faint) > 3:
        middle = faint[len(faint) // 2]
        ends.append((middle[0], f"{len(faint)} others", middle[1].look))
    else:
        ends += [(end, shorten(line.label, letters), line.look) for end, line in faint]
    low, high = axes.get_ylim()
    ends.sort(key=lambda end: end[0])
    wanted = [(end - low) / (high - low) for end, _, _ in ends]
    for (_, label, look), end, place in zip(ends, wanted, spread_out(wanted, 10.2 / height)):
        colour = INK if not look.shown else look.colour
        axes.plot(
            (1.0, 1.045),
            (end, place),
            transform=axes.transAxes,
            color=look.colour,
            alpha=0.55 * look.opacity,
            linewidth=0.7,
            clip_on=False,
        )
        alpha = 1.0 if look.shown else 0.6
        axes.text(1.055, place, label, transform=axes.transAxes, color=colour, alpha=alpha, va="center", fontsize=8)


def spread_out(places: Sequence[float], gap: float) -> list[float]:
    """Sorted places moved as little as needed to stand `gap` apart; the gap shrinks if they do not fit otherwise.

    >>> spread_out([0.5, 0.5, 0.9], 0.2)
    [0.4, 0.6, 0.9]
    """
    if not places:
        return []
    gap = min(gap, 1 / max(len(places) - 1, 1))
    groups: list[list[float]] = []  # [centre, members]
    for place in places:
        groups.append([place, 1.0])
        while len(groups) > 1 and _reach(groups[-2], gap)[1] + gap > _reach(groups[-1], gap)[0]:
            centre, members = groups.pop()
            other = groups[-1]
            other[0] = (other[0] * other[1] + centre * members) / (other[1] + members)
            other[1] += members
    placed: list[float] = []
    for group in groups:
        first = _reach(group, gap)[0]
        placed += [round(first + gap * step, 6) for step in range(int(group[1]))]
    return placed


def _reach(group: Sequence[float], gap: float) -> tuple[float, float]:
    """Where the first and the last member of a group stand, kept between 0 and 1."""
    half = gap * (group[1] - 1) / 2
    centre = min(max(group[0], half), 1 - half)
    return centre - half, centre + half


def plot_dots(rows: Sequence[Dots], x_label: str, *, logarithmic: bool = False, width: float = WIDTHS[0]) -> Figure:
    """One row per method: every seed a faint dot, the mean a mark, remarks at the right."""
    from matplotlib.figure import Figure

    with drawing_style():
        narrow = width < WIDTHS[0]
        letters = NARROW_LABEL if narrow else LABEL_WIDTH
        left = 0.25 + _CHARACTER * max(min(len(row.label), letters) for row in rows)
        right = 0.2 + (0 if narrow else _CHARACTER * max(len(row.remark) for row in rows))
        height = 0.62 + 0.22 * len(rows)
        figure = Figure(figsize=(width, height), facecolor="none")
        axes = figure.add_axes((left / width, 0.46 / height, 1 - (left + right) / width, 0.22 * len(rows) / height))
        axes.patch.set_visible(False)
        for place, row in enumerate(rows):
            look = row.look
            axes.plot(row.values, [place] * len(row.values), "o", color=look.colour, alpha=0.3, markersize=3, mew=0)
            axes.plot([row.mean], [place], "|", color=look.colour, markersize=10, mew=2.2, alpha=max(look.opacity, 0.6))
            if not narrow:
                beside = axes.get_yaxis_transform()
                axes.text(1.02, place, row.remark, transform=beside, va="center", fontsize=7.5, alpha=0.75)
        axes.set_yticks(range(len(rows)), [shorten(row.label, letters) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        _fit_dots(axes, rows, logarithmic)
        axes.grid(axis="x")
        axes.set_xlabel(x_label)
    return figure


def _fit_dots(axes: Axes, rows: Sequence[Dots], logarithmic: bool) -> None:
    values = [value for row in rows for value in row.values if math.isfinite(value)]
    positive = [value for value in values if value > 0]
    if logarithmic and positive and len(positive) == len(values) and max(values) > 20 * min(values):
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif logarithmic:
        axes.set_xlim(left=0)


def _plain(value: float, _: Any = None) -> str:
    return f"{value:g}"


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

    narrow = columns == NARROW  # where text is to be as large as beside it
    rows = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / rows)  # five panels as three and two, not as four and one
    cell_width, cell_height, left, bottom = (1.42 if narrow else 2.25), 1.7, 0.5, 0.3
    width = left + cell_width * columns
    letters = _TITLE_WIDTH - 4 if narrow else _TITLE_WIDTH
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
            figure.text(x / width, (y + cell_height - 0.42 + 0.1) / height, shorten(name, letters), va="center")
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
