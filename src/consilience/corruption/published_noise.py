"""The noise of published tables, with levels that mean the same as there."""

from __future__ import annotations

import numpy as np

from consilience.core.samples import KINDS
from consilience.corruption.additive_noise import gaussian, salt_and_pepper
from consilience.corruption.corruptions import Level, Portion, register_corruption
from consilience.corruption.missing_values import blank
from consilience.corruption.seeded_noise import Noise

# From the code of the paper: ε is ten grey values of 255, and a tenth of the pixels of an image changes.
_GREY_VALUES, _WHITE, _DENSITY = 10.0, 255.0, 0.1


@register_corruption(
    "qmf-gaussian", kinds=KINDS, level="ε of Zhang et al.: 10·ε of 255 grey values, ε/10 of the words", by_sample=True
)
def qmf_gaussian(portion: Portion, level: Level) -> Portion:
    """Zhang et al., "Provable Dynamic Fusion for Low-Quality Multimodal Data", table 1, as in its image–text code.

    Images: Gaussian noise with a standard deviation of 10·ε grey values, the same in all channels of a pixel, clipped
    to black and white, the minimum and maximum of the reference. Text and tokens: each word is blanked with
    probability ε/10. The paper has no vectors or sequences; they get `gaussian`, ε standard deviations.
    """
    if portion.modality.kind in ("text", "tokens"):
        return blank(portion, level)
    if portion.modality.kind != "image":
        return gaussian(portion, level)
    black, white = portion.statistic("low"), portion.statistic("high")
    size = (portion.across(level) * _GREY_VALUES / _WHITE * (white - black)).astype(portion.values.dtype)
    noisy = portion.values + size * portion.noise.normal(portion.index, (1, *portion.modality.shape[1:]))
    return portion.having(np.clip(noisy, black, white).astype(portion.values.dtype))


@register_corruption(
    "qmf-salt-and-pepper",
    kinds=KINDS,
    level="ε of Zhang et al.: ε/10 of the images, a tenth of whose pixels jump; ε/10 of the words",
    by_sample=True,
)
def qmf_salt_and_pepper(portion: Portion, level: Level) -> Portion:
    """Table 6 of the same paper: in one image of 10/ε a tenth of the pixels turns black or white; words are blanked.

    In vectors and sequences, entries change like the pixels of images.
    """
    if portion.modality.kind in ("text", "tokens"):
        return blank(portion, level)
    return salt_and_pepper(portion, level, density=_DENSITY)


@register_corruption(
    "multibench-series",
    kinds=("sequence",),
    level="p of Liang et al.: noise of deviation p, a share p of the entries lost, a share p of the time steps lost",
    by_sample=True,
)
def multibench_series(portion: Portion, level: Level) -> Portion:
    """Liang et al., "MultiBench: Multiscale Benchmarks for Multimodal Representation Learning": its noise on series.

    As in its code, three faults at once: one draw from N(0, p²), in the units of the values, is added to all modalities
    at a time step; then each entry becomes 0 with probability p, and each time step becomes 0 in all modalities with
    probability p.
    """
    steps, level = portion.modality.shape[0], portion.across(level)
    # The stream does not depend on the name of the modality, so that all modalities get the same numbers.
    shared = Noise(portion.noise.seed, "multibench-series")
    noisy = portion.values + level * shared.within("noise").normal(portion.index, (steps, 1))
    lost = portion.uniform(portion.modality.shape) < level
    lost |= shared.within("lost").uniform(portion.index, (steps, 1)) < level
    return portion.having(np.where(lost, 0, noisy).astype(portion.values.dtype))
