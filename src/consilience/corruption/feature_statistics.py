"""Spread and range of a modality, per feature or channel: what "one standard deviation of noise" is measured in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError
from consilience.core.samples import SCAN_BYTES, Modality, Samples


@dataclass(frozen=True)
class Statistics:
    """Spread and range of one modality: `[feature]` of vectors and sequences, `[channel]` of images, or one number."""

    std: Any = None
    low: Any = None
    high: Any = None

    def around(self, modality: Modality, what: Literal["std", "low", "high"]) -> np.ndarray:
        """One of the three in a shape that stretches over the modality's values `[n, *shape]`."""
        found = getattr(self, what)
        if found is None:
            raise InputError(
                f"the Statistics of modality {modality.name!r} hold no {what!r}: give it, or the samples as reference"
            )
        if hasattr(found, "detach"):  # a tensor, recognised without importing torch
            found = found.detach().cpu().numpy()
        array = np.asarray(found, dtype=np.float64)
        if not np.isfinite(array).all() or (what == "std" and (array < 0).any()):
            raise InputError(f"{what!r} of modality {modality.name!r} must be finite{' and ≥ 0' * (what == 'std')}")
        width = modality.shape[0] if modality.kind == "image" else modality.shape[-1]
        if array.shape not in ((), (width,)):
            raise InputError(
                f"{what!r} of {modality.describe()} must be one number or [{width}], got shape {list(array.shape)}"
            )
        return array[:, None, None] if modality.kind == "image" and array.ndim else array


def measure(samples: Samples, name: str) -> Statistics:
    """Standard deviation, minimum and maximum of a modality over those who have it, sequences without their padding.

    Memory-mapped values are read piece by piece.
    """
    total, first, second = 0, np.zeros(1), np.zeros(1)
    shift, low, high = np.zeros(1), np.full(1, np.inf), np.full(1, -np.inf)
    for flat in _pieces(samples, name):
        if not total:  # moments about a typical value lose no digits to a large mean
            shift = flat.mean(axis=0)
        total += len(flat)
        low, high = np.minimum(low, flat.min(axis=0)), np.maximum(high, flat.max(axis=0))
        flat -= shift
        first = first + flat.sum(axis=0)
        second = second + np.einsum("ij,ij->j", flat, flat)
    if not total:
        raise InputError(f"modality {name!r} is missing in every sample of the reference: it has no spread to go by")
    std = np.sqrt(np.maximum(second / total - (first / total) ** 2, 0.0))
    return Statistics(std, low, high)


def _pieces(samples: Samples, name: str) -> Iterator[np.ndarray]:
    """The values of those who have a modality, as `[number, feature]` in float64, some rows at a time."""
    modality = samples.modalities[name]
    rows = np.flatnonzero(samples.present_in(name))
    at_once = max(1, SCAN_BYTES // (8 * max(1, int(np.prod(modality.shape)))))
    for start in range(0, len(rows), at_once):
        piece = rows[start : start + at_once]
        values = np.array(samples.values[name][piece], dtype=np.float64)
        if modality.kind == "image":
            yield np.moveaxis(values, 1, -1).reshape(-1, modality.shape[0])
        elif modality.kind == "sequence":
            yield values[np.arange(values.shape[1]) < samples.lengths[name][piece, None]]
        else:
            yield values
