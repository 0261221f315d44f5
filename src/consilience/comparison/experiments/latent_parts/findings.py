"""All results of the experiment by cut, variant and seed, summed up, and which differences are sure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consilience.comparison.experiments.latent_parts.cells import Protocol
from consilience.comparison.experiments.latent_parts.pictures import Cut
from consilience.comparison.statistics import compare_to_reference
from consilience.comparison.store import Result

# What all others are compared with; the first variant where it was not measured.
REFERENCE = "m2vae"
# Measure → whether more is better. Of errors, squares are stored.
MEASURES = {"error": False, "conditional": True, "coherent": True}
_STORED = {"error": "squared_error"}


@dataclass(frozen=True)
class Findings:
    """results: (cut, variant, seed) → what was measured."""

    protocol: Protocol
    results: Mapping[tuple[str, str, int], Result]

    @classmethod
    def gather(cls, protocol: Protocol, results: Mapping[str, Result]) -> Findings:
        """From results by their cells' keys."""
        return cls(protocol, {(cell.source, cell.method, cell.seed): results[cell.key] for cell in protocol.cells()})

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return REFERENCE if REFERENCE in self.protocol.variants else self.protocol.variants[0]

    def of(self, cut: Cut, variant: str) -> list[Result]:
        """A variant's results, one a seed."""
        return [self.results[cut.name, variant, seed] for seed in range(self.protocol.seeds)]

    def about(self, cut: Cut, variant: str, what: str) -> np.ndarray:
        """What there is but once a seed: `[seed]`."""
        return np.array([one.about[what] for one in self.of(cut, variant)])

    def joint(self, cut: Cut, variant: str) -> np.ndarray:
        """The mean log-likelihood of whole pictures: `[seed]`."""
        return np.array([one.arrays["joint"].mean() for one in self.of(cut, variant)])

    def summary(self, cut: Cut, variant: str, measure: str) -> np.ndarray:
        """`[seed, size]`: the root of the mean squared error, the mean log-likelihood, or the share in per cent."""
        means = np.array([one.arrays[_STORED.get(measure, measure)].mean(axis=1) for one in self.of(cut, variant)])
        return np.sqrt(means) if measure == "error" else 100 * means if measure == "coherent" else means

    def sure(self, cut: Cut, measure: str) -> dict[tuple[str, int], int]:
        """(variant, place of the size) → 1 where it is significantly better than the reference, −1 where worse.

        By paired bootstrap over seeds and test samples, at 5 %, corrected by Holm over the variants.
        """
        sign = 1.0 if MEASURES[measure] else -1.0
        stored = _STORED.get(measure, measure)
        index = {
            seed: one.arrays["index"][: one.arrays[stored].shape[1]]
            for seed, one in enumerate(self.of(cut, self.reference))
        }
        found = {}
        for place in range(len(cut.sizes)):
            scores = {
                name: {seed: sign * one.arrays[stored][place] for seed, one in enumerate(self.of(cut, name))}
                for name in self.protocol.variants
            }
            for row in compare_to_reference(scores, self.reference, samples=index):
                if row["significant"]:
                    found[row["method"], place] = 1 if row["difference"] > 0 else -1
        return found


def spread(values: np.ndarray) -> float | None:
    """Standard deviation over seeds, None of a single one."""
    return float(values.std(ddof=1)) if len(values) > 1 else None
