"""Contours of a gain over two settings, in panels: one hue where it is a gain, another where it is a loss."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from consilience.report.drawing import INK, SERIES, drawing_style
from consilience.report.wording import say_level

GAIN, LOSS = SERIES[0], SERIES[1]
DEEPEST = 0.75  # opacity of the largest value's hue, which reads on white and on near-black
NOTHING = 1e-6  # values that differ by less are the same for a picture, whose levels are rounded to ten decimals


@dataclass(frozen=True)
class Surface:
    """Values in per cent on a grid: `values[row, column]` at y `rows[row]` and x `columns[column]`."""

    title: str
    columns: tuple
    rows: tuple
    values: np.ndarray


def plot_contours(surfaces, x_label, y_label, across):
    """Filled contours with labelled lines, all panels on one scale; dots where it was measured. across: in a row."""
    levels = contour_levels(np.concatenate([surface.values.ravel() for surface in surfaces]))
    most = max(abs(levels[0]), abs(levels[-1]))
    middles = [(low + high) / 2 for low, high in pairwise(levels)]
    colours = [to_rgba(GAIN if middle > 0 else LOSS, DEEPEST * abs(middle) / most) for middle in middles]
    down = math.ceil(len(surfaces) / across)
    side, left, bottom, top = 2.15, 0.55, 0.5, 0.3
    width, height = (left + side + 0.12) * min(across, len(surfaces)), (bottom + side + top) * down
    with drawing_style():
        figure = Figure(figsize=(width, height), facecolor="none")
        for place, surface in enumerate(surfaces):
            row, column = divmod(place, across)
            x = (left + side + 0.12) * column + left
            y = height - (bottom + side + top) * (row + 1) + bottom
            axes = figure.add_axes((x / width, y / height, side / width, side / height))
            axes.patch.set_visible(False)
            grid = (surface.columns, surface.rows, surface.values)
            axes.contourf(*grid, levels=levels, colors=colours)
            lines = axes.contour(*grid, levels=levels, colors=[INK], linewidths=0.6, alpha=0.55)
            axes.clabel(lines, fmt=_signed, fontsize=7, colors=[INK])
            xs, ys = np.meshgrid(surface.columns, surface.rows)
            axes.plot(xs.ravel(), ys.ravel(), ".", color=INK, alpha=0.4, markersize=2.5, clip_on=False)
            axes.set_xticks(surface.columns, [say_level(level) for level in surface.columns])
            axes.set_yticks(surface.rows, [say_level(level) for level in surface.rows])
            axes.set_xlabel(x_label)
            axes.set_ylabel(y_label)
            axes.set_title(surface.title, loc="left")
    return figure


def contour_levels(values):
    """Round levels around all values, 0 among them, some six to twelve in all.

    >>> contour_levels(np.array([-1.3, 4.0, 9.8]))
    [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    span = high - low if high - low > NOTHING else 1.0
    unit = 10.0 ** math.floor(math.log10(span / 6))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= span / 8)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [round(step * place, 10) for place in range(first, last + 1)]


def _signed(value):
    return f"{value:+g} %".replace("-", "−") if value else "0"
