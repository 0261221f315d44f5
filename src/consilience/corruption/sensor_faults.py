"""Values that look sound but are not this sample's: a sensor on its rail, or another sample's reading."""

from __future__ import annotations

import numpy as np

from consilience.core.samples import KINDS
from consilience.corruption.corruptions import NUMBERS, Portion, register_corruption
from consilience.corruption.regions import block, share_of, stretch, subset


@register_corruption("stuck", kinds=NUMBERS, level="tenths of the features, time or area held at the maximum")
def stuck(portion: Portion, level: float) -> Portion:
    """A share level/10 is held at the reference's maximum, as a sensor on its rail.

    Which share: features of a vector, a stretch of time of a sequence, a block of an image.
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


@register_corruption("swapped", kinds=KINDS, level="tenths of the samples hit that show another sample's values")
def swapped(portion: Portion, level: float) -> Portion:
    """With probability level/10 the values are those of another sample of the reference, whatever its class.

    The donor has the modality, and another index. Lengths follow the donor; one that is longer than the samples'
    longest time is cut there.
    """
    donors = portion.reference.donors(portion.modality.name)
    hit = portion.uniform(part="hit") < share_of(level)
    rows = donors.other_than(portion.index[hit], portion.uniform(part="donor")[hit])
    lent = np.asarray(donors.samples.values[portion.modality.name][rows])
    if portion.lengths is None:
        portion.values[hit] = lent
        return portion
    steps = min(portion.modality.shape[0], lent.shape[1])
    portion.values[hit] = 0
    portion.values[hit, :steps] = lent[:, :steps]
    lengths = portion.lengths.copy()
    lengths[hit] = np.minimum(donors.samples.lengths[portion.modality.name][rows], steps)
    return portion.having(portion.values, lengths)
