"""Rows of pictures, one row for each way to make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from consilience.report.svg import drawing_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 0.42  # inches of a picture
_LABELS = 1.3  # inches beside the rows


def draw_rows(rows: Mapping[str, np.ndarray]) -> Figure:
    """Pictures `[column, height, width]` by the name of their row, ink dark on white.

    All have the range of the last row, the true ones: of a model that goes beyond it, more than black is black.
    """
    from matplotlib.figure import Figure

    columns, height, width = next(iter(rows.values())).shape
    mosaic = np.full((len(rows), columns, height + 1, width + 1), np.nan)
    mosaic[:, :, :height, :width] = np.stack(list(rows.values()))
    sheet = mosaic.swapaxes(1, 2).reshape(len(rows) * (height + 1), columns * (width + 1))[:-1, :-1]
    across, down = _SIDE * columns, _SIDE * len(rows)
    with drawing_style():
        figure = Figure(figsize=(_LABELS + across + 0.1, down + 0.1), facecolor="none")
        axes = figure.add_axes((_LABELS / (_LABELS + across + 0.1), 0, across / (_LABELS + across + 0.1), 1))
        true = list(rows.values())[-1]
        axes.imshow(sheet, "gray_r", aspect="auto", interpolation="nearest", vmin=true.min(), vmax=true.max())
        axes.set_yticks([(height + 1) * (row + 0.5) - 1 for row in range(len(rows))], list(rows))
        axes.set_xticks([])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    return figure
