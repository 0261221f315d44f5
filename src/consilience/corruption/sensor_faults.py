"""Sensor faults: values stuck at the maximum, and values of another sample."""

from __future__ import annotations

import numpy as np

from consilience.core.samples import KINDS
from consilience.corruption.corruptions import NUMBERS, Level, Portion, register_corruption
from consilience.corruption.regions import block, share_of, stretch, subset


@register_corruption(
    "stuck", kinds=NUMBERS, level="tenths of the features, time or area held at the maximum", by_sample=True
)
def stuck(portion: Portion, level: Level) -> Portion:
    """A share level/10 is set to the maximum of the reference, as of a saturated sensor.

    The share is of the features of a vector, the time of a sequence (one stretch), or the area of an image (one block).
    """
    share, modality = share_of(level), portion.modality
    if modality.kind == "image":
        hit = block(portion, share)
    elif modality.kind == "sequence":
        assert portion.lengths is not None
        hit = stretch(portion, share, portion.lengths, modality.shape[0])[..., None]
    else:
        hit = subset(portion, share)
    return portion.having(np.where(hit, portion.statistic("high").astype(portion.values.dtype), portion.values))


@register_corruption(
    "swapped", kinds=KINDS, level="tenths of the samples hit that show another sample's values", by_sample=True
)
def swapped(portion: Portion, level: Level) -> Portion:
    """With probability level/10 the values are those of another sample of the reference, of any class.

    The other sample has the modality and another index. Its length is taken over, cut to the longest time that the
    samples can hold.
    """
    donors = portion.reference.donors(portion.modality.name)
    hit = portion.uniform(part="hit") < share_of(level)
    rows = donors.other_than(portion.index[hit], portion.uniform(part="donor")[hit])
    swapped_in = np.asarray(donors.samples.values[portion.modality.name][rows])
    if portion.lengths is None:
        portion.values[hit] = swapped_in
        return portion
    steps = min(portion.modality.shape[0], swapped_in.shape[1])
    portion.values[hit] = 0
    portion.values[hit, :steps] = swapped_in[:, :steps]
    lengths = portion.lengths.copy()
    lengths[hit] = np.minimum(donors.samples.lengths[portion.modality.name][rows], steps)
    return portion.having(portion.values, lengths)
