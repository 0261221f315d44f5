"""All results by condition and seed: scores of every way, and which differences are sure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.comparison.experiments.bayes.cells import Condition, Protocol
from consilience.comparison.statistics import Row, compare_to_reference
from consilience.comparison.store import Result


@dataclass(frozen=True)
class Findings:
    """results: (condition, seed) → what was measured."""

    protocol: Protocol
    results: Mapping[tuple[str, int], Result]

    @classmethod
    def gather(cls, protocol: Protocol, results: Mapping[str, Result]) -> Findings:
        """From results by their cells' keys."""
        return cls(protocol, {(cell.method, cell.seed): results[cell.key] for cell in protocol.cells()})

    def of(self, condition: Condition) -> list[Result]:
        """A condition's results, one a seed."""
        return [self.results[condition.name, seed] for seed in range(self.protocol.seeds)]

    def ways(self, condition: Condition) -> list[str]:
        """Every way to decide under a condition, in the order of the table."""
        return list(self.of(condition)[0].about["scores"])

    def scores(self, condition: Condition, way: str, metric: str) -> np.ndarray:
        """A way's "accuracy", "nll" or "ece": `[seed]`."""
        return np.array([one.about["scores"][way][metric] for one in self.of(condition)])

    def off(self, condition: Condition, whose: str) -> np.ndarray:
        """How far estimated shares are off, "fused" or "alone": `[seed]`."""
        return np.array([one.about["off"][whose] for one in self.of(condition)])

    def differences(self, condition: Condition) -> dict[str, Row]:
        """Way → its log-loss against that of the reference, positive where it is lower.

        By paired bootstrap over seeds and test samples, p-values corrected by Holm over the ways.
        """
        return self._differences[condition.name]

    @cached_property
    def _differences(self) -> dict[str, dict[str, Row]]:
        return {one.name: self._compare(one) for one in self.protocol.conditions}

    def _compare(self, condition: Condition) -> dict[str, Row]:
        ways, results = self.ways(condition), self.of(condition)
        scores = {
            way: {seed: -one.arrays["loss"][place] for seed, one in enumerate(results)}
            for place, way in enumerate(ways)
        }
        samples = {seed: one.arrays["index"] for seed, one in enumerate(results)}
        return {row["method"]: row for row in compare_to_reference(scores, condition.reference, samples=samples)}
