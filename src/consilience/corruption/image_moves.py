"""Images moved or mirrored: what a camera does that is not held still, and usual when training on images."""

from __future__ import annotations

import numpy as np

from consilience.corruption.corruptions import Level, Portion, register_corruption
from consilience.corruption.regions import share_of


@register_corruption(
    "shifted", kinds=("image",), level="tenths of its sides that an image is moved by, at most", by_sample=True
)
def shifted(portion: Portion, level: Level) -> Portion:
    """Moved down and to the right by (level/10)·side·u pixels, u ~ U[−1, 1) for each; edges are repeated."""
    values, (_, height, width) = portion.values, portion.modality.shape
    share = share_of(level)
    down = np.rint(share * height * (2 * portion.uniform(part="down") - 1)).astype(np.int64)
    right = np.rint(share * width * (2 * portion.uniform(part="right") - 1)).astype(np.int64)
    rows = np.clip(np.arange(height) - down[:, None], 0, height - 1)
    columns = np.clip(np.arange(width) - right[:, None], 0, width - 1)
    moved = np.take_along_axis(values, rows[:, None, :, None], axis=2)
    return portion.having(np.take_along_axis(moved, columns[:, None, None, :], axis=3))


@register_corruption(
    "mirrored", kinds=("image",), level="tenths of the images hit that are mirrored, left to right", by_sample=True
)
def mirrored(portion: Portion, level: Level) -> Portion:
    """With probability level/10, left and right are exchanged."""
    hit = portion.uniform() < share_of(level)
    return portion.having(np.where(hit[:, None, None, None], portion.values[..., ::-1], portion.values))
