"""The reference, usually the training set: its statistics scale a corruption, and its samples are swapped in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.moments import modality_moments
from consilience.core.samples import Modality, Samples


@dataclass(frozen=True)
class Statistics:
    """Standard deviation, minimum and maximum of one modality in the reference.

    Each is `[feature]` for vectors and sequences, `[channel]` for images, or one number.
    """

    std: Any = None
    low: Any = None
    high: Any = None

    def around(self, modality: Modality, what: Literal["std", "low", "high"]) -> np.ndarray:
        """One of the three in a shape that broadcasts over the values of the modality `[n, *shape]`."""
        value = getattr(self, what)
        if value is None:
            raise InputError(
                f"the Statistics of modality {modality.name!r} hold no {what!r}: give it, or the samples as reference"
            )
        if hasattr(value, "detach"):  # a tensor, recognised without importing torch
            value = value.detach().cpu().numpy()
        array = np.asarray(value, dtype=np.float64)
        if not np.isfinite(array).all() or (what == "std" and (array < 0).any()):
            raise InputError(f"{what!r} of modality {modality.name!r} must be finite{' and ≥ 0' * (what == 'std')}")
        width = modality.shape[0] if modality.kind == "image" else modality.shape[-1]
        if array.shape not in ((), (width,)):
            raise InputError(
                f"{what!r} of {modality.describe()} must be one number or [{width}], got shape {list(array.shape)}"
            )
        return array[:, None, None] if modality.kind == "image" and array.ndim else array


def measure(samples: Samples, name: str) -> Statistics:
    """The statistics of a modality over the samples that have it, sequences without their padding."""
    moments = modality_moments(samples, name)
    if moments.shift is None:
        raise InputError(f"modality {name!r} is missing in every sample of the reference: it has no statistics")
    return Statistics(moments.mean_and_std()[1], moments.low, moments.high)


@dataclass(frozen=True)
class Donors:
    """The samples of a reference that have a modality, in the order of their index."""

    samples: Samples
    name: str
    rows: np.ndarray  # [donor] their positions in samples
    index: np.ndarray  # [donor] their indices, rising

    def other_than(self, index: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """Rows of donors `[n]`, drawn by `chance` `[n]` in [0, 1); none of them has the index given `[n]`."""
        first = np.searchsorted(self.index, index, side="left")
        same = np.searchsorted(self.index, index, side="right") - first
        others = len(self.rows) - same
        if not others.all():
            raise InputError(
                f"modality {self.name!r} cannot be swapped: the reference has no other sample with this modality. "
                "Give a larger set as reference"
            )
        drawn = np.floor(chance * others).astype(np.int64)
        return self.rows[np.where(drawn < first, drawn, drawn + same)]


class Reference:
    """Statistics and donors of each modality, computed when first needed.

    Args:
        given: `Samples`, a mapping name → values as for `Samples.of`, or a mapping name → `Statistics` where the data
            is no longer available.
        statistics: Of some modalities, if they are known; they are not measured then.
    """

    def __init__(self, given: Samples | Mapping[str, Any], statistics: Mapping[str, Statistics] | None = None):
        self._statistics: dict[str, Statistics] = dict(statistics or {})
        self._donors: dict[str, Donors] = {}
        self.samples: Samples | None = None
        values = {} if isinstance(given, Samples) else given
        if any(isinstance(value, Statistics) for value in values.values()):
            raw = [repr(name) for name, value in values.items() if not isinstance(value, Statistics)]
            if raw:
                raise InputError(
                    f"a reference holds Statistics for every modality or values for every modality: {', '.join(raw)} "
                    "came with values, others with Statistics"
                )
            self._statistics.update(values)
        else:
            self.samples = Samples.of(given)

    def check(self, modality: Modality) -> None:
        """Refuse a modality whose kind or shape differs from that in the reference."""
        known = None if self.samples is None else self.samples.modalities.get(modality.name)
        if known is None:
            return
        fits = known.shape[1:] == modality.shape[1:] if modality.timed else known.shape == modality.shape
        if known.kind != modality.kind or not fits:
            raise InputError(
                f"the reference knows {known.describe()}, the samples to corrupt have {modality.describe()}. "
                "Build both with Samples.of(..., kinds=...) so that they agree"
            )

    def statistics(self, name: str) -> Statistics:
        """Standard deviation and range of a modality of numbers."""
        if name not in self._statistics:
            self._statistics[name] = measure(self._samples_with(name), name)
        return self._statistics[name]

    def measured(self) -> dict[str, Statistics]:
        """The statistics of every modality of numbers, which are a reference without the data."""
        if self.samples is not None:
            for name, modality in self.samples.modalities.items():
                if modality.kind not in ("text", "tokens"):
                    self.statistics(name)
        return dict(self._statistics)

    def donors(self, name: str) -> Donors:
        """The samples whose values of a modality can replace those of others."""
        if name not in self._donors:
            if self.samples is None:
                raise InputError(
                    f"modality {name!r} is to be taken from other samples, but the reference holds statistics only: "
                    "give samples as reference"
                )
            samples = self._samples_with(name)
            rows = np.flatnonzero(samples.present_in(name))
            rows = rows[np.argsort(samples.index[rows], kind="stable")]
            self._donors[name] = Donors(samples, name, rows, samples.index[rows])
        return self._donors[name]

    def _samples_with(self, name: str) -> Samples:
        if self.samples is None or name not in self.samples:
            known = self._statistics if self.samples is None else self.samples.names
            raise unknown_name("modality", name, known, "The reference must have every modality that is corrupted")
        return self.samples
