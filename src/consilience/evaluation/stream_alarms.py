"""What a monitor reports: alarms, the state of what is watched, and both in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RELIABILITY, TRUST, ABSENCE, REPETITION = "reliability", "trust", "absence", "repetition"
CONFLICT, CONFIDENCE, SET_SIZE, CLASSES = "conflict", "confidence", "set size", "class shares"
# Means that differ by less are called different, not lower or higher.
_SAME = 0.01


@dataclass(frozen=True)
class Alarm:
    """A quantity has changed.

    Attributes:
        quantity: Its name, as "reliability of vibration".
        modality: The modality, "" if it is of none.
        row: The row of the stream, from 0, that raised the alarm.
        since: The row from which on the evidence has been rising, an estimate of when the change began.
        time, since_time: The times of these rows, where times were given; else None.
        reference, recent: The mean over the reference, and over the last rows before the alarm. Of the class shares
            these are nan.
        evidence: The decimal logarithm of the evidence; the alarm is raised at that of quantities / false_alarms.
    """

    quantity: str
    modality: str
    row: int
    since: int
    time: str | None
    since_time: str | None
    reference: float
    recent: float
    evidence: float

    @property
    def kind(self) -> str:
        """What of the modality, or of the whole decision, has changed: "reliability", "trust", "conflict" …"""
        return self.quantity.removesuffix(f" of {self.modality}") if self.modality else self.quantity

    @property
    def fell(self) -> bool:
        """Whether the mean is lower than in the reference."""
        return self.recent < self.reference - _SAME

    @property
    def begun(self) -> str:
        """When the change began, in words."""
        return f"row {self.since}" if self.since_time is None else f"{self.since_time} (row {self.since})"

    def describe(self) -> str:
        """One sentence.

        >>> values = {"reference": 0.95, "recent": 0.2, "evidence": 4.1}
        >>> Alarm("trust of a", "a", 17, 12, "14:09", "14:05", **values).describe()
        'since 14:05 (row 12) the trust of a is lower than in the reference: mean 0.2, before 0.95; noticed at 14:09'
        """
        noticed = f"row {self.row}" if self.time is None else self.time
        return f"since {self.begun} {self._change()}; noticed {'in' if self.time is None else 'at'} {noticed}"

    def _change(self) -> str:
        if not math.isfinite(self.reference):
            return f"the {self.quantity} differ from those of the reference"
        change = "is distributed differently from the reference"
        if self.fell:
            change = "is lower than in the reference"
        elif self.recent > self.reference + _SAME:
            change = "is higher than in the reference"
        return f"the {self.quantity} {change}: mean {self.recent:.3g}, before {self.reference:.3g}"


@dataclass(frozen=True)
class QuantityState:
    """One watched quantity. reference, recent: means · evidence: as in `Alarm` · alarm: raised and not reset."""

    quantity: str
    modality: str
    reference: float
    recent: float
    evidence: float
    alarm: bool


@dataclass(frozen=True)
class MonitorState:
    """What a monitor knows after the rows so far.

    Attributes:
        rows: How many rows it has seen.
        alarms: Those that the last `update` raised.
        quantities: Every watched quantity, but for the class shares, which have no mean.
    """

    rows: int
    alarms: tuple[Alarm, ...]
    quantities: tuple[QuantityState, ...]


def say_alarms(alarms: Sequence[Alarm]) -> list[str]:
    """Return one sentence for each modality that has changed, or one for the whole, the earliest change first.

    >>> values = {"time": None, "since_time": None, "evidence": 4.1}
    >>> trust = Alarm("trust of a", "a", 17, 12, reference=0.5, recent=0.2, **values)
    >>> say_alarms([trust, Alarm("conflict", "", 19, 11, reference=0.1, recent=0.4, **values)])
    ['Since row 12 a is not to be trusted: trust 0.2, before 0.5.', 'Conflict differs since row 11.']
    """
    if not alarms:
        return ["No alarm: nothing that is watched differs from the reference."]
    sentences = []
    by_modality: dict[str, list[Alarm]] = {}
    for alarm in sorted(alarms, key=lambda alarm: (alarm.modality == "", alarm.row)):  # the whole comes last
        by_modality.setdefault(alarm.modality, []).append(alarm)
    for modality, own in by_modality.items():
        if not modality:
            kinds = ", ".join(alarm.kind for alarm in own)
            first = min(own, key=lambda alarm: alarm.since)
            sentences.append(
                f"{kinds[0].upper()}{kinds[1:]} {'differs' if len(own) == 1 else 'differ'} since {first.begun}."
            )
            continue
        fallen = [alarm for alarm in own if alarm.kind in (RELIABILITY, TRUST) and alarm.fell]
        absent = [alarm for alarm in own if alarm.kind == ABSENCE]
        if fallen:
            means = ", ".join(f"{alarm.kind} {alarm.recent:.2g}, before {alarm.reference:.2g}" for alarm in fallen)
            sentences.append(f"Since {fallen[0].begun} {modality} is not to be trusted: {means}.")
        repeated = [alarm for alarm in own if alarm.kind == REPETITION]
        if repeated:
            sentences.append(
                f"Since {repeated[0].begun} {modality} repeats itself, as a sensor that is stuck: the share of rows "
                f"whose opinion occurred before is {100 * repeated[0].recent:.0f} %."
            )
        if absent:
            sentences.append(
                f"Since {absent[0].begun} {modality} is missing in another share of the rows: "
                f"{100 * absent[0].recent:.0f} %, before {100 * absent[0].reference:.0f} %."
            )
        # Trust sums to 1: where one modality loses it, others gain.
        own = [alarm for alarm in own if alarm.fell or alarm.kind != TRUST or not sentences]
        if own and not (fallen or absent or repeated):
            kinds = " and ".join(alarm.kind for alarm in own)
            sentences.append(
                f"Since {own[0].begun} the {kinds} of {modality} differs from the reference, but is not lower."
            )
    return sentences
