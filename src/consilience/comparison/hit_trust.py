"""Trust in a modality where it is sound, and where it was corrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.core.samples import Samples


def trust_when_hit(
    trust: np.ndarray, samples: Samples, names: Sequence[str], hits: Sequence[Mapping[str, np.ndarray]]
) -> list[dict[str, Any]]:
    """Return the mean trust in each modality over the samples in which it is sound, and over those in which it was hit.

    Args:
        trust: `[repeat · n, modality]`.
        samples: The samples `[n]` before they were corrupted.
        names: Of the modalities, in the order of trust.
        hits: For every repeat, modality → which samples were hit `[n]`; a modality that is not named is left out.
    """
    there = samples.present_among(tuple(names))
    draws = np.split(trust, len(hits))
    measured = []
    for place, name in enumerate(names):
        if not all(name in hit for hit in hits):
            continue
        sound, hit = (
            np.concatenate([drawn[there[:, place] & (each[name] == struck), place] for drawn, each in zip(draws, hits)])
            for struck in (False, True)
        )
        if len(sound) and len(hit):
            measured.append({"modality": name, "sound": float(sound.mean()), "hit": float(hit.mean())})
    return measured
