"""The scores of calibration samples, and the thresholds that they give for new samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from consilience.core.errors import InputError, SavedModelError
from consilience.evaluation.availability_patterns import Availability, Group
from consilience.evaluation.conformal_scores import (
    IntervalScore,
    check_coverage,
    conformal_quantile,
    least_samples,
    own_samples,
    weighed_quantiles,
)
from consilience.evaluation.selective_risk import least_accepted, risk_threshold

# Called with rows `[k]` and what is present in them `[k, modality]`; returns name → values `[k, …]`.
Evaluate = Callable[[np.ndarray, np.ndarray], Mapping[str, np.ndarray]]
_OF_NUMBERS = get_args(IntervalScore)  # scores `[slot, n, target]`


@dataclass(frozen=True, eq=False)
class CalibrationScores:
    """Scores of the true targets of calibration samples, under every pattern of present modalities.

    Attributes:
        availability: Which modalities the samples have, and the patterns.
        values: Name of a score → values `[slot, n, …]`, nan where a sample cannot be given a slot's pattern.
        source: Where the samples come from: "given", "validation" or "cross-fitting".
    """

    availability: Availability
    values: Mapping[str, np.ndarray]
    source: str

    def __len__(self) -> int:
        return len(self.availability.present)

    @classmethod
    def collect(cls, present: np.ndarray, evaluate: Evaluate, source: str) -> CalibrationScores:
        """Score samples under every pattern.

        Args:
            present: Booleans `[n, modality]`; every sample has at least one modality.
            evaluate: Scores some rows with some of their modalities.
            source: Where the samples come from.
        """
        availability = Availability.of(present)
        values: dict[str, np.ndarray] = {}
        for slot, rows, mask in availability.masks():
            if not len(rows):
                continue
            for name, scores in evaluate(rows, mask).items():
                if name not in values:
                    values[name] = np.full((availability.slots, len(present), *scores.shape[1:]), np.nan)
                values[name][slot, rows] = scores
        for slot, rows, others in availability.copied():
            for table in values.values():
                table[slot, rows] = table[others, rows]
        return cls(availability, values, source)

    def quantiles(
        self, score: str, present: np.ndarray, coverage: float, reliability: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the threshold of a score for each new sample, by its pattern of present modalities.

        Args:
            score: Name of the score.
            present: Booleans `[m, modality]`.
            coverage: Above 0 and below 1.
            reliability: ρ of the new samples `[m]`, by which thresholds are weighed, see `weighed_quantiles`.

        Returns:
            `[m, …]`; infinity for a sample without any modality.

        Raises:
            InputError: If there are too few calibration samples for the coverage.
        """
        coverage = check_coverage(coverage)

        def quantile(rows: np.ndarray, scores: np.ndarray, *rho: np.ndarray) -> np.ndarray:
            if reliability is None:
                return conformal_quantile(scores, coverage)
            return weighed_quantiles(scores, rho[0], coverage, reliability[rows])

        names = (score,) if reliability is None else (score, "reliability")
        try:
            return self._by_pattern(present, least_samples(coverage), own_samples(coverage), names, quantile)
        except InputError as error:
            raise InputError(f"coverage={coverage:g}: {error}") from None

    def accept_thresholds(self, present: np.ndarray, risk: float, confidence: float) -> np.ndarray:
        """Return the least confidence of each new sample at which it is decided, `[m]`; infinity: never.

        Args:
            present: Booleans `[m, modality]`.
            risk: The share of wrong decisions among those that are made, at most.
            confidence: The probability with which that holds.
        """
        least = least_accepted(risk, confidence)

        def threshold(rows: np.ndarray, tops: np.ndarray, right: np.ndarray) -> np.ndarray:
            return np.asarray(risk_threshold(tops, right == 1, risk, confidence))

        try:
            return self._by_pattern(present, least, 2 * least, ("confidence", "right"), threshold)
        except InputError as error:
            raise InputError(f"risk={risk:g} with confidence {confidence:g}: {error}") from None

    def groups(self, present: np.ndarray, coverage: float) -> list[Group]:
        """Return the calibration samples that decide for each new sample: `present` is `[m, modality]`, not empty."""
        least, enough = least_samples(coverage), own_samples(coverage)
        return [self.availability.group(pattern, least, enough) for pattern in present]

    def _by_pattern(
        self, present: np.ndarray, least: int, enough: int, names: tuple[str, ...], compute: Callable[..., np.ndarray]
    ) -> np.ndarray:
        """`compute(rows, *values)` for the new samples of each pattern, from the values of their calibration samples.

        Returns `[m, …]`, infinity for samples without a modality.
        """
        patterns, which = np.unique(present, axis=0, return_inverse=True)
        tables = [self.values[name] for name in names]
        found = np.full((len(present), *tables[0].shape[2:]), np.inf)
        for place, pattern in enumerate(patterns):
            if pattern.any():
                group = self.availability.group(pattern, least, enough)
                rows = np.flatnonzero(which.reshape(-1) == place)
                found[rows] = compute(rows, *(table[group.slots, group.rows] for table in tables))
        if np.isnan(found).any():
            raise InputError("the scores of the calibration samples are not numbers: calibrate the model again")
        return found

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and JSON values, for `from_state`."""
        known = self.availability
        arrays = {"present": known.present, "patterns": known.patterns, "drawn": known.drawn}
        return arrays | {f"values.{name}": table for name, table in self.values.items()}, {"source": self.source}

    @classmethod
    def from_state(cls, arrays: Mapping[str, np.ndarray], described: Mapping[str, Any]) -> CalibrationScores:
        """Return the scores that `state` described."""
        availability = Availability(*(arrays[name].astype(bool) for name in ("present", "patterns", "drawn")))
        values = {key.partition(".")[2]: table for key, table in arrays.items() if key.startswith("values.")}
        n, modalities = availability.present.shape
        fit = availability.patterns.shape[1:] == (modalities,) and availability.drawn.shape == (
            modalities,
            n,
            modalities,
        )
        for name, table in values.items():
            fit &= table.shape[:2] == (availability.slots, n) and table.ndim == (3 if name in _OF_NUMBERS else 2)
        if not fit:
            raise SavedModelError("the scores of the calibration samples do not have the shapes of these samples")
        return cls(availability, values, str(described["source"]))
