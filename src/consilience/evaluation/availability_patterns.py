"""Calibration samples grouped by which modalities are present, so that each pattern has a quantile of its own.

A model is less certain, and wrong in other ways, where modalities are missing: one quantile for all samples would be
right on average and wrong for every pattern. The quantile of a pattern comes from calibration samples that have the
same pattern, or are given it by hiding the modalities it lacks (Mondrian conformal prediction, Vovk et al. 2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from consilience.core.errors import InputError
from consilience.core.modality_sets import MOST_NUMBERED, set_numbers
from consilience.evaluation.contributions import all_masks

# With more modalities than this, not every pattern is computed: 2^9 − 1 predictions of each sample are too many.
ALL_PATTERNS_UP_TO = 8
# Of the patterns that occur, the most frequent ones. Nearly every sample may have one of its own, and each pattern
# costs a prediction of all samples, and memory for their scores.
MOST_OCCURRING = 255

Rule = Literal["own", "hidden", "number", "all"]


class Group(NamedTuple):
    """The calibration samples for one pattern: which rule found them, their slots and their rows, `[sample]` each."""

    rule: Rule
    slots: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Availability:
    """Which modalities calibration samples have, and the patterns that they are predicted with.

    A *slot* is one way to hide modalities of all samples: first one for each of `patterns`, then, for k = 1 … modality,
    one that leaves every sample k of its modalities, drawn at random.

    Attributes:
        present: Booleans `[n, modality]`.
        patterns: Booleans `[pattern, modality]`.
        drawn: Which k modalities are left, booleans `[modality, n, modality]`; none for a sample that has fewer than k.
    """

    present: np.ndarray
    patterns: np.ndarray
    drawn: np.ndarray

    @classmethod
    def of(cls, present: np.ndarray) -> Availability:
        """Choose the patterns: all of them with up to eight modalities.

        With more: the 255 most frequent of those that occur, all modalities, all but one, and each alone.

        Args:
            present: Booleans `[n, modality]`.

        Example:
            >>> Availability.of(np.array([[True, True], [True, False]])).patterns.tolist()
            [[True, False], [False, True], [True, True]]
        """
        n, modalities = present.shape
        if modalities <= ALL_PATTERNS_UP_TO:
            patterns = all_masks(modalities)[1:]
        else:
            one = np.eye(modalities, dtype=bool)
            occurring, counts = np.unique(present, axis=0, return_counts=True)
            frequent = occurring[np.argsort(-counts, kind="stable")[:MOST_OCCURRING]]
            usual = np.concatenate([frequent, one, ~one, np.ones((1, modalities), dtype=bool)])
            patterns = np.unique(usual[usual.any(axis=1)], axis=0)
        # The rank of each present modality in a random order; absent ones come last.
        order = np.where(present, np.random.default_rng(0).random((n, modalities)), 2.0).argsort(axis=1).argsort(axis=1)
        counts = np.arange(1, modalities + 1)[:, None]
        enough = present.sum(axis=1) >= counts
        return cls(present, patterns, (order < counts[:, :, None]) & enough[:, :, None])

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self.patterns) + len(self.drawn)

    def masks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each slot, the rows of the samples that can be given its pattern, and what they have then.

        Drawn patterns that are among `patterns` are left out; `copied` says where their predictions are.
        """
        for slot, pattern in enumerate(self.patterns):
            rows = np.flatnonzero((self.present >= pattern).all(axis=1))
            yield slot, rows, np.tile(pattern, (len(rows), 1))
        for number, mask in enumerate(self.drawn):
            rows = np.flatnonzero(mask.any(axis=1) & (self._slot_of(mask) < 0))
            yield len(self.patterns) + number, rows, mask[rows]

    def copied(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield slots of drawn patterns, rows, and the slots `[row]` in which these rows have the same pattern."""
        for number, mask in enumerate(self.drawn):
            known = self._slot_of(mask)
            rows = np.flatnonzero(known >= 0)
            yield len(self.patterns) + number, rows, known[rows]

    def group(self, pattern: np.ndarray, least: int, enough: int) -> Group:
        """Return the calibration samples for a pattern `[modality]` of a new sample.

        1. "own": samples with exactly this pattern, if there are `enough`.
        2. "hidden": samples that have at least these modalities, the others hidden, if there are the `least` number.
           They are like new samples if modalities are missing at random, whatever the sample.
        3. "number": samples with as many modalities, chosen at random, if there are the least number.
        4. "all": every sample as it is.

        Few samples give a threshold that varies, but on average the coverage of 1 and 2 is right; that of 3 and 4 is
        not, if modalities differ in how much they tell.

        Raises:
            InputError: If all samples together are fewer than the least number.
        """
        slot = int(self._slot_of(pattern[None])[0])
        candidates: list[Group] = []
        if slot >= 0:
            hidden = np.flatnonzero((self.present >= pattern).all(axis=1))
            own = hidden[(self.present[hidden] == pattern).all(axis=1)]
            if len(own) >= enough:
                return Group("own", np.full(len(own), slot), own)
            candidates.append(Group("hidden", np.full(len(hidden), slot), hidden))
        count = int(pattern.sum())
        numbered = np.flatnonzero(self.present.sum(axis=1) >= count)
        candidates.append(Group("number", np.full(len(numbered), len(self.patterns) + count - 1), numbered))
        everyone = np.arange(len(self.present))
        # Where as many modalities are left as a sample has, it is as it is.
        as_they_are = len(self.patterns) + self.present.sum(axis=1) - 1
        candidates.append(Group("all", as_they_are, everyone))
        for found in candidates:
            if len(found.rows) >= least:
                return found
        raise InputError(
            f"the calibration set has {len(everyone)} samples with a modality, too few: at least {least} are needed"
        )

    def _slot_of(self, masks: np.ndarray) -> np.ndarray:
        """The slot of each pattern `[n, modality]`, −1 for those that have none."""
        if masks.shape[1] <= MOST_NUMBERED:
            known, codes = (set_numbers(torch.tensor(sets)).numpy() for sets in (self.patterns, masks))
            order = np.argsort(known)
            place = order[np.searchsorted(known, codes, sorter=order).clip(max=len(known) - 1)]
            return np.where(known[place] == codes, place, -1)
        slots = {pattern.tobytes(): slot for slot, pattern in enumerate(self.patterns)}
        return np.array([slots.get(mask.tobytes(), -1) for mask in np.ascontiguousarray(masks)], dtype=np.int64)
