"""Noise on numbers: Gaussian noise, salt and pepper, a wrong scale."""

from __future__ import annotations

from typing import Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.corruption.corruptions import NUMBERS, Level, Portion, register_corruption
from consilience.corruption.regions import share_of


@register_corruption(
    "gaussian", kinds=NUMBERS, level="standard deviations of the reference, per feature or channel", by_sample=True
)
def gaussian(portion: Portion, level: Level, *, scale: Literal["std", "raw"] = "std") -> Portion:
    """x + level·std·ε with ε ~ N(0, 1). A constant feature has std 0 and is not changed.

    scale="raw" takes the level in the units of the values, x + level·ε: Zhang et al., "Provable Dynamic Fusion for
    Low-Quality Multimodal Data", use 10·ε on grey values from 0 to 255.
    """
    if scale not in ("std", "raw"):
        raise InputError(f"gaussian: scale must be 'std' or 'raw', got {scale!r}")
    values = portion.values
    level = portion.across(level)
    size = level * portion.statistic("std") if scale == "std" else np.asarray(level)
    noise = portion.noise.normal(portion.index, portion.modality.shape)
    if values.dtype == np.float32:
        noise *= size.astype(np.float32)
        noise += values
        return portion.having(noise)
    return portion.having(values + size * noise)


@register_corruption(
    "salt-and-pepper", kinds=NUMBERS, level="per cent of the entries (whole pixels of an image)", by_sample=True
)
def salt_and_pepper(portion: Portion, level: Level, *, density: float | None = None) -> Portion:
    """Each entry becomes, with probability level/100, the minimum or maximum of its feature or channel.

    With density=0.1 a tenth of the entries changes in a share level/10 of the samples, as in Zhang et al., "Provable
    Dynamic Fusion for Low-Quality Multimodal Data". At level 10 the two agree.
    """
    if density is not None and not 0 <= density <= 1:
        raise InputError(f"salt-and-pepper: density must be between 0 and 1, got {density}")
    values, shape = portion.values, portion.modality.shape
    entries = (1, *shape[1:]) if portion.modality.kind == "image" else shape
    jumps = portion.uniform(entries) < (portion.across(np.minimum(level / 100.0, 1.0)) if density is None else density)
    if density is not None:
        hit = portion.uniform(part="hit") < share_of(level)
        jumps &= hit.reshape(-1, *[1] * len(shape))
    extreme = np.where(portion.uniform(entries, "salt") < 0.5, portion.statistic("low"), portion.statistic("high"))
    return portion.having(np.where(jumps, extreme.astype(values.dtype), values))


@register_corruption("scaled", kinds=NUMBERS, level="by how many times its size a value is too large", by_sample=True)
def scaled(portion: Portion, level: Level) -> Portion:
    """x·(1 + level): a gain that has drifted."""
    return portion.having(portion.values * np.asarray(portion.across(1.0 + level), dtype=portion.values.dtype))
