"""The reference: the set, usually the training set, that says how large a corruption is and lends its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Modality, Samples
from consilience.corruption.feature_statistics import Statistics, measure


@dataclass(frozen=True)
class Donors:
    """The samples of a reference that have a modality, in the order of their index."""

    samples: Samples
    name: str
    rows: np.ndarray  # [donor] where they stand in samples
    index: np.ndarray  # [donor] who they are, rising

    def other_than(self, index: np.ndarray, chance: np.ndarray) -> np.ndarray:
        """Rows of donors `[n]`, drawn by `chance` `[n]` from [0, 1), none of whom has the index given `[n]`."""
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
    """Statistics and donors of each modality, worked out when first needed and kept.

    given: `Samples`, or a mapping name → values as for `Samples.of`, or a mapping name → `Statistics` where the data
    itself is no longer at hand.
    """

    def __init__(self, given: Samples | Mapping[str, Any]):
        self._statistics: dict[str, Statistics] = {}
        self._donors: dict[str, Donors] = {}
        self.samples: Samples | None = None
        values = {} if isinstance(given, Samples) else given
        if any(isinstance(one, Statistics) for one in values.values()):
            raw = [repr(name) for name, one in values.items() if not isinstance(one, Statistics)]
            if raw:
                raise InputError(
                    f"a reference holds Statistics for every modality or values for every modality: {', '.join(raw)} "
                    "came with values, others with Statistics"
                )
            self._statistics.update(values)
        else:
            self.samples = Samples.of(given)

    def check(self, modality: Modality) -> None:
        """Refuse a modality that the reference knows as something else."""
        known = None if self.samples is None else self.samples.modalities.get(modality.name)
        if known is None:
            return
        timed = modality.kind in ("sequence", "tokens")
        fits = known.shape[1:] == modality.shape[1:] if timed else known.shape == modality.shape
        if known.kind != modality.kind or not fits:
            raise InputError(
                f"the reference knows {known.describe()}, the samples to corrupt have {modality.describe()}. "
                "Build both with Samples.of(..., kinds=...) so that they agree"
            )

    def statistics(self, name: str) -> Statistics:
        """Spread and range of a modality of numbers."""
        if name not in self._statistics:
            self._statistics[name] = measure(self._samples_with(name), name)
        return self._statistics[name]

    def measured(self) -> dict[str, Statistics]:
        """The statistics of every modality of numbers: a reference that needs no data."""
        if self.samples is not None:
            for name, modality in self.samples.modalities.items():
                if modality.kind not in ("text", "tokens"):
                    self.statistics(name)
        return dict(self._statistics)

    def donors(self, name: str) -> Donors:
        """Those who can lend their values of a modality to others."""
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
            raise unknown_name("modality", name, known, "The reference must have every modality whose scale it sets")
        return self.samples
