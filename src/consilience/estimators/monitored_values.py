"""What a monitor watches in rows: reliability, trust and absence of each modality, conflict, decisions, set sizes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import UnsupportedError
from consilience.core.modality_sets import MOST_NUMBERED, set_numbers
from consilience.estimators.torch_data import is_torch_data, read_torch_data
from consilience.evaluation.change_detection import CELLS, Side, count_cells, share_cells
from consilience.evaluation.stream_alarms import (
    ABSENCE,
    CLASSES,
    CONFIDENCE,
    CONFLICT,
    RELIABILITY,
    REPETITION,
    SET_SIZE,
    TRUST,
)
from consilience.evaluation.trust import trust_from_weights
from consilience.methods import Prediction

COVERAGE = 0.9
CODES = 2**16
# What a change to the worse is; "both" where neither direction is better.
SIDES: dict[str, Side] = {
    RELIABILITY: "low",
    TRUST: "low",
    ABSENCE: "high",
    REPETITION: "high",
    CONFLICT: "high",
    CONFIDENCE: "low",
    SET_SIZE: "high",
    CLASSES: "both",
}


@dataclass(frozen=True)
class Quantity:
    """What is watched. modality: "" for what belongs to no single one."""

    kind: str
    modality: str = ""

    @property
    def name(self) -> str:
        """As in "reliability of vibration"."""
        return f"{self.kind} of {self.modality}" if self.modality else self.kind

    @property
    def by_pattern(self) -> bool:
        """Whether rows are compared with those that have the same modalities present."""
        return self.kind not in (ABSENCE, REPETITION, CLASSES)


@dataclass(frozen=True)
class Measured:
    """The watched values of rows.

    Attributes:
        quantities: What is watched, in the order of the columns.
        values: `[n, quantity]`; nan where there is none, as the reliability of an absent modality. Of the class shares,
            the index of the decided class.
        cells: The same for a `ChangeDetector`.
        patterns: A number `[n]` for the modalities present: bit m is set if modality m is there.
        codes: `[n, quantity]`, equal where a modality gave the same opinion; only for repetitions, whose values and
            cells depend on earlier rows and are set by `Repetitions`.
        posterior: Class probabilities `[n, class]` of rows with any modality; None for a regressor.
    """

    quantities: tuple[Quantity, ...]
    values: np.ndarray
    cells: np.ndarray
    patterns: np.ndarray
    codes: np.ndarray
    posterior: np.ndarray | None


def measure(model: Any, X: Any, present: Any = None) -> Measured:
    """Predict rows, and return what is watched in them."""
    if not hasattr(model, "full_prediction"):
        raise UnsupportedError(
            f"Monitor: a {type(model).__name__} cannot be watched; a FusionClassifier, FusionRegressor or BayesFusion "
            "can"
        )
    if getattr(model, "target_prior", None) is not None:
        # Shares estimated from all rows together would make the rows of a call depend on each other.
        model = copy.copy(model)
        model.target_prior = None
    if is_torch_data(X):  # what is watched does not depend on the order of rows, so that a loader may shuffle
        X = read_torch_data(X)
    found: Prediction = model.full_prediction(X, present)
    there = np.asarray(found.extra["present"], dtype=bool)
    columns: dict[Quantity, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def add(
        quantity: Quantity,
        values: np.ndarray,
        cells: np.ndarray,
        known: Any = True,
        codes: np.ndarray | None = None,
    ) -> None:
        columns[quantity] = np.where(known, values, np.nan), cells, np.zeros_like(cells) if codes is None else codes

    for kind, shares in ((RELIABILITY, found.extra.get(RELIABILITY)), (TRUST, _trust(found, there))):
        if shares is not None:
            for m, name in enumerate(model.modalities_):
                # With a single modality present trust is 1, whatever happens.
                known = there[:, m] & ((kind != TRUST) | (there.sum(axis=1) > 1))
                share = np.asarray(shares, dtype=np.float64)[:, m]
                add(Quantity(kind, name), share, share_cells(share), known)
    for m, name in enumerate(model.modalities_):
        absent = ~there[:, m]
        add(Quantity(ABSENCE, name), absent.astype(np.float64), absent.astype(np.int64))
        if found.opinions is not None:
            nothing = np.zeros(len(there))
            codes = _codes(found.opinions[:, m])
            add(Quantity(REPETITION, name), nothing, nothing.astype(np.int64), there[:, m], codes)
    some = there.any(axis=1)
    classification = hasattr(model, "classes_")
    if classification and found.opinions is not None and found.opinions.shape[-1] == len(model.classes_):
        conflict = conflict_of(found.opinions, torch.from_numpy(there))
        add(Quantity(CONFLICT), conflict, share_cells(conflict), there.sum(axis=1) > 1)
    posterior = None
    if classification:
        every = found.output.double().softmax(dim=1).numpy()
        most = every.max(axis=1)
        add(Quantity(CONFIDENCE), most, share_cells(most), some)
        if hasattr(model, "calibration_"):
            sizes = np.asarray(model.predict_set(X, COVERAGE, present=present)).sum(axis=1)
            add(Quantity(SET_SIZE), sizes.astype(np.float64), count_cells(sizes, every.shape[1]), some)
        decided = every.argmax(axis=1)
        add(Quantity(CLASSES), decided.astype(np.float64), count_cells(decided, every.shape[1] - 1), some)
        posterior = every[some]
    values, cells, codes = (np.stack(each, axis=1) for each in zip(*columns.values()))
    return Measured(tuple(columns), values, np.clip(cells, 0, CELLS - 1), _patterns(there), codes, posterior)


class Repetitions:
    """How often each opinion of a modality was given so far; a sensor that is stuck gives one again and again.

    The cell of a row is the number of rows with its opinion, up to now; with each new one the cells of the earlier ones
    rise too, so that a row's rank does not depend on the order of the rows. Opinions are told apart by one of
    `CODES` codes.

    Args:
        quantities: What is watched.
    """

    def __init__(self, quantities: Sequence[Quantity]):
        self.places = [place for place, quantity in enumerate(quantities) if quantity.kind == REPETITION]
        self.seen: dict[int, dict[int, int]] = {place: {} for place in self.places}

    def count(self, measured: Measured, n: int, active: np.ndarray, own: np.ndarray, counts: np.ndarray) -> None:
        """Set values and cells of row n, and move the cells of earlier rows with its opinions.

        Args:
            measured: Of the rows.
            n: Which of them.
            active: Whether row n counts for each quantity `[quantity of own]`.
            own: The quantities of the detector.
            counts: How many of its rows are in each cell, `[quantity of own, cell]`.
        """
        for place in self.places:
            if np.isnan(measured.values[n, place]):
                continue
            code, seen, q = int(measured.codes[n, place]), self.seen[place], int(np.searchsorted(own, place))
            before = seen.get(code, 0)
            measured.values[n, place] = float(before > 0)
            measured.cells[n, place] = min(before, CELLS - 1)
            if not active[q]:
                continue
            seen[code] = before + 1
            if 0 < before < CELLS:
                counts[q, before - 1] -= before
                counts[q, before] += before


def conflict_of(opinions: Tensor, present: Tensor) -> np.ndarray:
    """How far the present experts contradict each other, from 0 (all say the same) to 1: `[n]`.

    1 − Σ_c Π_m p_m(c)^(1/M), of two experts the squared Hellinger distance.

    >>> logits = torch.tensor([[[4.0, 0.0], [4.0, 0.0]], [[4.0, 0.0], [0.0, 4.0]]])
    >>> conflict_of(logits, torch.ones(2, 2, dtype=torch.bool)).round(3)
    array([0.   , 0.734])
    """
    log_p = opinions.double().log_softmax(dim=2).masked_fill(~present[:, :, None], 0.0)
    log_p = log_p.clamp(min=-745.0)
    mean = log_p.sum(dim=1) / present.sum(dim=1, keepdim=True).clamp(min=1)
    affinity = mean.exp().sum(dim=1).numpy()
    return np.where(present.any(dim=1).numpy(), np.clip(1 - affinity, 0.0, 1.0), 0.0)


def _codes(opinions: Tensor) -> np.ndarray:
    """A code `[n]` of each opinion `[n, output]`, the same for opinions that differ by rounding only."""
    values = opinions.double()
    if values.shape[1] > 1:
        values = values.log_softmax(dim=1)
    rounded = np.ascontiguousarray(values.clamp(-745.0, 1e300).numpy().round(4) + 0.0)
    return np.array([crc32(row.tobytes()) % CODES for row in rounded], dtype=np.int64)


def _trust(found: Prediction, there: np.ndarray) -> np.ndarray | None:
    if found.weights is None:
        return None
    return trust_from_weights(found.weights.double().numpy(), there)


def _patterns(there: np.ndarray) -> np.ndarray:
    """One number for each pattern; with more modalities than can be numbered, the first of them count."""
    return set_numbers(torch.tensor(there[:, :MOST_NUMBERED])).numpy()
