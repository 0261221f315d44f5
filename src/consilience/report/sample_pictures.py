"""Pictures of samples, true ones beside generated ones: images as they are, numbers as tiles or lines, and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from consilience.core.modalities import Modality

_PANEL = 1.1  # inches
_LONGEST_TEXT = 60


@dataclass(frozen=True)
class Column:
    """A column of a grid. values: `[row, *shape]` of one modality · missing: `[row]`, rows left empty, or None."""

    title: str
    modality: Modality
    values: np.ndarray
    missing: np.ndarray | None = None


def draw_samples(columns: Sequence[Column], labels: Sequence[str] = ()) -> Figure:
    """A grid with a row for each sample and a column for each thing shown. labels: of the rows.

    All columns of one modality share their range, so that true and generated can be compared by eye.
    """
    from matplotlib.figure import Figure

    if not columns or not len(columns[0].values):
        raise InputError("a picture needs at least one column and one row")
    rows = len(columns[0].values)
    figure = Figure(figsize=(_PANEL * len(columns) + 0.3, _PANEL * rows + 0.4), layout="constrained")
    axes: Any = figure.subplots(rows, len(columns), squeeze=False)
    ranges = _ranges(columns)
    for place, column in enumerate(columns):
        axes[0, place].set_title(column.title, fontsize=8)
        for row in range(rows):
            panel = axes[row, place]
            panel.set(xticks=[], yticks=[])
            for side in panel.spines.values():
                side.set_linewidth(0.4)
            if column.missing is None or not column.missing[row]:
                _draw(panel, column.modality, column.values[row], ranges[column.modality.name])
            else:
                panel.set_facecolor("0.93")
    for row, label in enumerate(labels):
        axes[row, 0].set_ylabel(label, fontsize=8)
    return figure


def draw_walk(modality: Modality, values: np.ndarray, labels: Sequence[str] = (), titles: Sequence[str] = ()) -> Figure:
    """Values `[row, step, *shape]` of one modality, a step a column."""
    columns = [Column(titles[step] if titles else "", modality, values[:, step]) for step in range(values.shape[1])]
    return draw_samples(columns, labels)


def _ranges(columns: Sequence[Column]) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for column in columns:
        if column.values.dtype.kind not in "biuf":
            ranges[column.modality.name] = (0.0, 0.0)
            continue
        shown = column.values if column.missing is None else column.values[~column.missing]
        low, high = (float(shown.min()), float(shown.max())) if shown.size else (math.inf, -math.inf)
        before = ranges.get(column.modality.name, (math.inf, -math.inf))
        ranges[column.modality.name] = (min(low, before[0]), max(high, before[1]))
    return ranges


def _draw(panel: Axes, modality: Modality, value: np.ndarray, between: tuple[float, float]) -> None:
    low, high = between
    if modality.kind == "text":
        panel.text(0.5, 0.5, str(value)[:_LONGEST_TEXT], fontsize=5, wrap=True, ha="center", va="center")
    elif modality.kind == "tokens":
        panel.text(0.5, 0.5, " ".join(map(str, value[:12])), fontsize=5, wrap=True, ha="center", va="center")
    elif modality.kind == "image":
        if len(value) in (3, 4):
            panel.imshow(((value - low) / max(high - low, 1e-12)).clip(0, 1).transpose(1, 2, 0))
        else:
            panel.imshow(value[0], cmap="gray_r", vmin=low, vmax=high)
    elif modality.kind == "vector" and (side := math.isqrt(len(value))) ** 2 == len(value) and side > 2:
        panel.imshow(value.reshape(side, side), cmap="gray_r", vmin=low, vmax=high)  # pixels, or at least a fair tile
    else:
        panel.plot(value, linewidth=0.8, marker="." if modality.kind == "vector" else None, markersize=3)
        pad = 0.05 * max(high - low, 1e-12)
        panel.set_ylim(low - pad, high + pad)
