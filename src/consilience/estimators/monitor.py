"""`Monitor`: watches the rows that a model predicts, and says when, and in which modality, something has changed."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from consilience.bayes.priors import estimate_target_prior
from consilience.core.errors import ConsilienceError, InputError, SavedModelError, unknown_name
from consilience.core.files import write_atomically
from consilience.core.settings import NonNegativeInt, PositiveInt, Share, checked
from consilience.estimators.monitored_values import CODES, SIDES, Measured, Quantity, Repetitions, measure
from consilience.evaluation.change_detection import ChangeDetector
from consilience.evaluation.stream_alarms import CLASSES, Alarm, MonitorState, QuantityState
from consilience.version import __version__

FORMAT = 1
LEAST_REFERENCE = 20
_ALL_ROWS = -1  # the category of what is not compared by pattern


class Monitor:
    """Watches rows for changes against a reference, with a stated rate of false alarms.

    In every row it looks at the reliability ρ and the trust of each modality, as far as the method estimates them; the
    absence of each modality; the conflict between experts; the confidence; the size of the 90 % prediction set, if the
    model is calibrated; and the decided class. Each is compared with rows that have the same modalities present, so
    that an absent modality raises an alarm of absence and no other.

    If rows are exchangeable with those of the reference, at most the share `false_alarms` of all streams ever raises
    any alarm, however long they are. Rows that resemble their neighbours more than other rows, as those of a sensor
    that is read every second, are not exchangeable: use every k-th row, or a reference of the same kind of days.

    Args:
        model: A fitted `FusionClassifier`, `FusionRegressor` or `BayesFusion`.
        reference: Samples, as for `predict`, on which the model was not trained: held-out ones of the time when it
            worked. Their labels are not used.
        present: Booleans `[n, modality]` of the reference; False: missing.
        false_alarms: Share of unchanged streams that may raise an alarm.
        window: Of how many last rows means and class shares are given.
        random_state: Decides between equal values.

    Example:
        >>> import consilience as cs
        >>> data = cs.load_data("digits")
        >>> model = cs.FusionClassifier("bayes-robust", epochs=5).fit(data.train)
        >>> monitor = Monitor(model, data.validation)
        >>> monitor.update(data.test).alarms
        ()
        >>> state = monitor.update(cs.corrupt(data.test, "gaussian", 10, modalities="top_left", probability=1))
        >>> "top_left" in {alarm.modality for alarm in state.alarms}
        True
    """

    _shares: np.ndarray | None  # of the classes in the reference

    @checked
    def __init__(
        self,
        model: Any,
        reference: Any,
        *,
        present: Any = None,
        false_alarms: Share = 0.01,
        window: PositiveInt = 200,
        random_state: NonNegativeInt = 0,
    ):
        measured = measure(model, reference, present)
        if len(measured.values) < LEAST_REFERENCE:
            raise InputError(
                f"Monitor: the reference has {len(measured.values)} rows; at least {LEAST_REFERENCE} are needed, and a "
                "few hundred find changes sooner"
            )
        self._begin(model, measured.quantities, false_alarms, window, random_state)
        if measured.posterior is not None:
            shares = np.maximum(measured.posterior.mean(axis=0), 1e-6)
            self._shares = shares / shares.sum()
        known = np.isfinite(measured.values)
        for own, detector in self._detectors:
            for n, category in enumerate(self._categories(own, measured).tolist()):
                self._count_repetitions(measured, n, known[n, own], own, detector)
                detector.add_reference(measured.cells[n, own], known[n, own], category)
        self._reference = np.array([_mean(column) for column in measured.values.T])

    def _begin(self, model: Any, quantities: tuple[Quantity, ...], false_alarms: float, window: int, seed: int) -> None:
        self.model, self.quantities = model, quantities
        self.false_alarms, self.window = false_alarms, window
        self.alarms: list[Alarm] = []
        self.rows = 0
        self._raised = np.zeros(len(quantities), dtype=bool)
        self._last: deque[np.ndarray] = deque(maxlen=window)
        self._posteriors: deque[np.ndarray] = deque(maxlen=window)
        self._shares = None
        self._times: dict[int, str] = {}
        self._repetitions = Repetitions(quantities)
        by_pattern = np.array([quantity.by_pattern for quantity in quantities])
        self._detectors = [
            (own, ChangeDetector([SIDES[quantities[q].kind] for q in own], seed))
            for own in (np.flatnonzero(by_pattern), np.flatnonzero(~by_pattern))
            if len(own)
        ]

    @property
    def threshold(self) -> float:
        """The decimal logarithm of the evidence at which a quantity raises its alarm."""
        return math.log10(len(self.quantities) / self.false_alarms)

    @checked
    def update(self, rows: Any, *, times: Sequence[Any] | None = None, present: Any = None) -> MonitorState:
        """Take in rows in the order in which they came, and return what is known after them.

        Args:
            rows: As for `predict`.
            times: What to call the rows in alarms, one each; any values, written as text.
            present: Booleans `[n, modality]`; False: missing.
        """
        measured = measure(self.model, rows, present)
        if measured.quantities != self.quantities:
            raise InputError(
                f"Monitor: these rows have {_listed(measured.quantities)}, the reference had "
                f"{_listed(self.quantities)}: the model was changed since, so make a new Monitor"
            )
        labels = None if times is None else [str(time) for time in times]
        if labels is not None and len(labels) != len(measured.values):
            raise InputError(f"Monitor: there are {len(labels)} times and {len(measured.values)} rows")
        known = np.isfinite(measured.values)
        before, least = len(self.alarms), self.threshold * math.log(10)
        self._posteriors.extend([] if measured.posterior is None else measured.posterior)
        for own, detector in self._detectors:
            categories = self._categories(own, measured)
            for n, category in enumerate(categories.tolist()):
                active = known[n, own] & ~self._raised[own]
                self._count_repetitions(measured, n, active, own, detector)
                evidence = detector.update(measured.cells[n, own], active, category, self.rows + n)
                for q in np.flatnonzero(active & (evidence >= least)).tolist():
                    self._raise(int(own[q]), detector, q, n, measured, labels)
        self._last.extend(measured.values)
        if labels is not None:
            self._times |= {self.rows + n: label for n, label in enumerate(labels)}
        self._times = {row: label for row, label in self._times.items() if row in self._kept_starts()}
        self.rows += len(measured.values)
        self.alarms[before:] = sorted(self.alarms[before:], key=lambda alarm: alarm.row)
        return self._state(tuple(self.alarms[before:]))

    @checked
    def reset(self, quantity: str | None = None) -> None:
        """Watch a quantity anew after its alarm, or all of them; for each, the rate of false alarms starts anew too.

        Args:
            quantity: Its name, as in an alarm; None: all that have raised one.
        """
        names = [each.name for each in self.quantities]
        if quantity is not None and quantity not in names:
            raise unknown_name("quantity", quantity, names)
        for place in [q for q in np.flatnonzero(self._raised) if quantity in (None, names[q])]:
            self._raised[place] = False
            for own, detector in self._detectors:
                for q in np.flatnonzero(own == place):
                    detector.restart(int(q))

    @property
    def state(self) -> MonitorState:
        """What is known after the rows so far."""
        return self._state(())

    def class_shares(self) -> dict[Any, tuple[float, float]]:
        """Return label → (share in the reference, share in the last rows), the latter by expectation maximisation.

        Empty for a regressor.
        """
        if self._shares is None:
            return {}
        now = self._shares
        if self._posteriors:
            now = estimate_target_prior(np.log(np.maximum(np.array(self._posteriors), 1e-300)), self._shares)
        return {
            label: (float(before), float(after))
            for label, before, after in zip(self.model.classes_.tolist(), self._shares, now)
        }

    @checked
    def save(self, path: str | Path) -> Path:
        """Write everything that later rows depend on as JSON, without the model, for `Monitor.load`."""
        described = {
            "library": "consilience",
            "version": __version__,
            "monitor": FORMAT,
            "modalities": list(self.model.modalities_),
            "quantities": [[each.kind, each.modality] for each in self.quantities],
            "false_alarms": self.false_alarms,
            "window": self.window,
            "rows": self.rows,
            "alarms": [_plain(asdict(alarm)) for alarm in self.alarms],
            "raised": self._raised.tolist(),
            "reference": _plain(self._reference.tolist()),
            "shares": None if self._shares is None else self._shares.tolist(),
            "last": [_plain(values.tolist()) for values in self._last],
            "posteriors": [posterior.tolist() for posterior in self._posteriors],
            "times": {str(row): label for row, label in self._times.items()},
            "opinions": [[place, list(seen.items())] for place, seen in self._repetitions.seen.items()],
            "detectors": [detector.state() for _, detector in self._detectors],
        }
        return write_atomically(path, json.dumps(described, allow_nan=False))

    @classmethod
    @checked
    def load(cls, path: str | Path, model: Any) -> Monitor:
        """Return the monitor that `save` wrote, which goes on where it stopped.

        Args:
            path: The file.
            model: The model that it watched.

        Raises:
            SavedModelError: If the file is damaged, or is the state of another model's monitor.
        """
        try:
            described = json.loads(Path(path).read_text(encoding="utf-8"))
            if described["library"] != "consilience" or described["monitor"] > FORMAT:
                raise ValueError("it is not a state that this version of consilience wrote")
            if tuple(described["modalities"]) != tuple(model.modalities_):
                raise ValueError(f"it belongs to a model of {described['modalities']}, not {list(model.modalities_)}")
            monitor = cls.__new__(cls)
            monitor._restore(model, described)
        except (ConsilienceError, OSError):
            raise
        except Exception as error:  # a file may hold anything
            raise SavedModelError(f"loading {path}: this is no state of a Monitor: {error}") from error
        return monitor

    def _restore(self, model: Any, described: Mapping[str, Any]) -> None:
        quantities = tuple(Quantity(str(kind), str(modality)) for kind, modality in described["quantities"])
        window, rows, count = int(described["window"]), int(described["rows"]), len(quantities)
        if not (0 < float(described["false_alarms"]) < 1 and window >= 1 and rows >= 0):
            raise ValueError("false_alarms, window or rows are out of range")
        self._begin(model, quantities, float(described["false_alarms"]), window, 0)
        self.rows = rows
        self._reference = _floats(described["reference"], (count,))
        self.alarms = [Alarm(**_restored(alarm)) for alarm in described["alarms"]]
        self._raised = _floats(described["raised"], (count,)).astype(bool)
        if described["shares"] is not None:
            self._shares = _floats(described["shares"], (len(model.classes_),))
        self._last.extend(_floats(values, (count,)) for values in described["last"])
        self._posteriors.extend(_floats(values, (len(model.classes_),)) for values in described["posteriors"])
        self._times = {int(row): str(label) for row, label in described["times"].items()}
        opinions = [(int(place), [[int(k) for k in pair] for pair in pairs]) for place, pairs in described["opinions"]]
        if [place for place, _ in opinions] != self._repetitions.places:
            raise ValueError("opinions are of other modalities")
        for place, pairs in opinions:
            if any(not (0 <= code < CODES and count > 0) for code, count in pairs):
                raise ValueError("opinions are out of range")
            self._repetitions.seen[place] = {int(code): int(count) for code, count in pairs}
        for (_, detector), state in zip(self._detectors, described["detectors"], strict=True):
            detector.restore(state)

    def _raise(
        self, place: int, detector: ChangeDetector, q: int, n: int, measured: Measured, labels: list[str] | None
    ) -> None:
        """Raise the alarm of a quantity, which is number q of its detector, in row n of an update."""
        row, since, quantity = self.rows + n, detector.since(q), self.quantities[place]
        begun = labels[since - self.rows] if labels is not None and since >= self.rows else self._times.get(since)
        values = np.array([each[place] for each in [*self._last, *measured.values[: n + 1]]])
        without_order = quantity.kind == CLASSES
        self.alarms.append(
            Alarm(
                quantity.name,
                quantity.modality,
                row,
                since,
                None if labels is None else labels[n],
                begun,
                math.nan if without_order else float(self._reference[place]),
                math.nan if without_order else _mean(values[-min(self.window, row - since + 1) :]),
                float(detector.log_evidence[q] / math.log(10)),
            )
        )
        self._raised[place] = True

    def _count_repetitions(
        self, measured: Measured, n: int, active: np.ndarray, own: np.ndarray, detector: ChangeDetector
    ) -> None:
        if not self.quantities[own[0]].by_pattern:
            self._repetitions.count(measured, n, active, own, detector.counts_of(_ALL_ROWS))

    def _categories(self, own: np.ndarray, measured: Measured) -> np.ndarray:
        return measured.patterns if self.quantities[own[0]].by_pattern else np.full_like(measured.patterns, _ALL_ROWS)

    def _kept_starts(self) -> set[int]:
        return {int(row) for _, detector in self._detectors for row in detector.starts.ravel()}

    def _state(self, alarms: tuple[Alarm, ...]) -> MonitorState:
        recent = np.array(self._last).reshape(len(self._last), len(self.quantities))
        evidence = np.zeros(len(self.quantities))
        for own, detector in self._detectors:
            evidence[own] = detector.log_evidence / math.log(10)
        quantities = tuple(
            QuantityState(
                quantity.name,
                quantity.modality,
                float(self._reference[q]),
                _mean(recent[:, q]),
                float(evidence[q]),
                bool(self._raised[q]),
            )
            for q, quantity in enumerate(self.quantities)
            if quantity.kind != CLASSES
        )
        return MonitorState(self.rows, alarms, quantities)


def _mean(values: np.ndarray) -> float:
    """The mean of the known values; nan without any."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _plain(value: Any) -> Any:
    """Numbers that are not finite as None, which JSON has."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _restored(alarm: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if alarm[name] is None else alarm[name] for name in ("reference", "recent")} | {
        name: value for name, value in alarm.items() if name not in ("reference", "recent")
    }


def _floats(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(values, dtype=np.float64)  # None becomes nan
    if array.shape != shape:
        raise ValueError(f"there must be {shape[0]} numbers, not {array.shape}")
    return array


def _listed(quantities: Sequence[Quantity]) -> str:
    return ", ".join(quantity.name for quantity in quantities)
