"""Counters, gauges and histograms in the text format of Prometheus.

The format is a few lines of text, so that no package is needed for it; and unlike those of `prometheus_client` these
are no globals of the process, so that two servers in one process, as in tests, count apart.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Labels = tuple[str, ...]


class Metric:
    """A counter or a gauge: one number for each combination of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), kind: str = "counter"):
        self.name, self.help, self.labels, self.kind = name, help, tuple(labels), kind
        self._values: dict[_Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, *labels: object, amount: float = 1) -> None:
        """Add to a counter."""
        key = tuple(map(str, labels))
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount

    def set(self, value: float, *labels: object) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[tuple(map(str, labels))] = value

    def forget(self) -> None:
        """Drop all values, as of models that are no longer served."""
        with self._lock:
            self._values.clear()

    def lines(self) -> Iterable[str]:
        """The lines of the format."""
        yield from _head(self.name, self.help, self.kind)
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield f"{self.name}{_labelled(dict(zip(self.labels, labels)))} {_number(value)}"


class Histogram:
    """How many observations are at most each bound; their number and sum."""

    def __init__(self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()):
        self.name, self.help, self.bounds, self.labels = name, help, tuple(bounds), tuple(labels)
        self._counts: dict[_Labels, list[int]] = {}
        self._sums: dict[_Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: object) -> None:
        """Count one observation."""
        key = tuple(map(str, labels))
        with self._lock:
            counts = self._counts.setdefault(key, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += 1
            self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        """The lines of the format, with cumulative counts."""
        yield from _head(self.name, self.help, "histogram")
        with self._lock:
            found = [(key, list(counts), self._sums[key]) for key, counts in sorted(self._counts.items())]
        for key, counts, total in found:
            labels, cumulated = dict(zip(self.labels, key)), 0
            for bound, count in zip((*self.bounds, math.inf), counts):
                cumulated += count
                yield f"{self.name}_bucket{_labelled(labels | {'le': _number(bound)})} {cumulated}"
            yield f"{self.name}_sum{_labelled(labels)} {_number(total)}"
            yield f"{self.name}_count{_labelled(labels)} {cumulated}"


def exposition(metrics: Iterable[Metric | Histogram]) -> str:
    r"""Return all metrics as text.

    >>> rows = Metric("rows_total", "Rows.", ["model"])
    >>> rows.add('a"b', amount=3)
    >>> print(exposition([rows]), end="")
    # HELP rows_total Rows.
    # TYPE rows_total counter
    rows_total{model="a\"b"} 3
    """
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _head(name: str, help: str, kind: str) -> Iterable[str]:
    escaped = help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} {kind}"


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    printable = value.encode("utf-8", "backslashreplace").decode()
    return printable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
