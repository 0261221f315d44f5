"""Numbers and names in words, the same in every table, figure and sentence."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.plain_text import one_line as one_line
from consilience.evaluation import METRICS
from consilience.evaluation.trust_verdict import say_list as say_list

if TYPE_CHECKING:
    from consilience.comparison.results import Block

NOTHING = "–"


@dataclass(frozen=True)
class Scale:
    """How the values of a metric are written: times `factor`, with so many `decimals`, followed by `unit`."""

    factor: float = 1.0
    decimals: int = 3
    unit: str = ""

    @classmethod
    def of(cls, metric: str, spreads: Iterable[float | None] = ()) -> Scale:
        """Two significant digits of the usual spread over seeds: more would be noise, fewer would hide it.

        >>> Scale.of("accuracy", [0.004, 0.012, 0.006])
        Scale(factor=100.0, decimals=2, unit=' %')
        """
        factor, unit = (100.0, " %") if is_percentage(metric) else (1.0, "")
        known = [factor * spread for spread in spreads if spread and math.isfinite(spread)]
        if not known:
            return cls(factor, 1 if unit else 3, unit)
        decimals = 1 - math.floor(math.log10(statistics.median(known)))
        return cls(factor, min(max(decimals, 1 if unit else 0), 3 if unit else 6), unit)

    @classmethod
    def of_block(cls, block: Block) -> Scale:
        """Return the scale for all cells of a set's table."""
        return cls.of(block.metric, [cell.std for row in block.rows for cell in row.cells if cell])

    def number(self, value: float | None) -> str:
        """A value without its unit.

        >>> Scale(100.0, 1, " %").number(0.98324), Scale(100.0, 1, " %").number(-0.0001)
        ('98.3', '0.0')
        """
        if value is None or not math.isfinite(value):
            return NOTHING
        text = f"{self.factor * value:.{self.decimals}f}".replace("-", "−")
        return text if any(digit in "123456789" for digit in text) else text.removeprefix("−")

    def signed(self, value: float | None) -> str:
        """A difference with its sign.

        >>> Scale(100.0, 1, " %").signed(-0.0123)
        '−1.2'
        """
        text = self.number(value)
        return text if value is None or not value > 0 or text == NOTHING else f"+{text}"

    def pair(self, mean: float | None, std: float | None) -> str:
        """Mean ± standard deviation; the mean alone where there is one seed."""
        return self.number(mean) if std is None else f"{self.number(mean)} ± {self.number(std)}"

    def over_seeds(self, values: Any) -> str:
        """Mean ± standard deviation of values `[seed]`; the mean alone where there is one seed.

        >>> Scale(1.0, 1).over_seeds([1.0, 2.0])
        '1.5 ± 0.7'
        """
        values = np.asarray(values, dtype=np.float64)
        return self.pair(values.mean(), values.std(ddof=1) if len(values) > 1 else None)


def is_percentage(metric: str) -> bool:
    """Return whether tables show a metric in per cent."""
    return metric in METRICS and METRICS[metric].percent


def say_metric(metric: str) -> str:
    """A metric's name in words; a user's own metric keeps its name.

    >>> say_metric("nll")
    'negative log-likelihood'
    """
    return METRICS[metric].title if metric in METRICS else metric


def axis_label(words: str, metric: str) -> str:
    """What an axis shows, with the metric's unit.

    >>> axis_label("accuracy of a probe", "accuracy")
    'accuracy of a probe, %'
    """
    return f"{words}, %" if is_percentage(metric) else words


def say_level(level: float) -> str:
    """A level without needless decimals.

    >>> say_level(10.0), say_level(0.5)
    ('10', '0.5')
    """
    return f"{level:g}"


def say_p(p: float | None) -> str:
    """A probability as a p-value is written.

    >>> say_p(0.0412), say_p(0.0002), say_p(1.0)
    ('p = 0.041', 'p < 0.001', 'p = 1')
    """
    if p is None or not math.isfinite(p):
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p > 0.1 else f"p = {p:.3f}"


def say_seconds(seconds: float | None) -> str:
    """A duration a person can read.

    >>> say_seconds(0.0123), say_seconds(7.21), say_seconds(754)
    ('12 ms', '7.2 s', '12 min 34 s')
    """
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 1:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.0995 else f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def say_moment(moment: str) -> str:
    """A moment in ISO 8601 to the minute; anything else as it stands.

    >>> say_moment("2026-11-15T10:36:09+00:00"), say_moment("yesterday")
    ('2026-11-15 10:36 UTC', 'yesterday')
    """
    try:
        read = datetime.fromisoformat(moment)
    except ValueError:
        return one_line(moment)
    return f"{read:%Y-%m-%d %H:%M} {read.tzname() or ''}".strip()


def say_count(count: float | None) -> str:
    """A number of parameters.

    >>> say_count(812), say_count(45_210), say_count(1_160_000)
    ('812', '45.2 k', '1.16 M')
    """
    if count is None or not math.isfinite(count):
        return NOTHING
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def say_versions(versions: Mapping[str, str]) -> str:
    """What a result was made with.

    >>> say_versions({"python": "3.11", "torch": "2.13"})
    'Versions: python 3.11 and torch 2.13.'
    """
    return f"Versions: {say_list(f'{name} {version}' for name, version in versions.items())}."


def say_number(count: int, noun: str) -> str:
    """A count and its noun.

    >>> say_number(1, "seed"), say_number(10, "seed")
    ('1 seed', '10 seeds')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def say_filled(filled: Mapping[str, int], named: int = 3) -> str:
    """How many single empty cells were filled, and in which columns, those with most first.

    >>> say_filled({"a": 4, "b": 9})
    '13 cells filled: 9 of b and 4 of a'
    >>> say_filled({"a": 1, "b": 9, "c": 2, "d": 1}, named=2)
    '13 cells filled: 9 of b, 2 of c and 2 of 2 other columns'
    """
    order = sorted(filled, key=lambda column: -filled[column])
    listed = [f"{filled[column]} of {one_line(column)}" for column in order[:named]]
    if rest := order[named:]:
        listed.append(f"{sum(filled[column] for column in rest)} of {say_number(len(rest), 'other column')}")
    return f"{say_number(sum(filled.values()), 'cell')} filled: {say_list(listed)}"


def capital(words: str) -> str:
    """Words as the beginning of a sentence.

    >>> capital("on clean data")
    'On clean data'
    """
    return words[:1].upper() + words[1:]


def shorten(name: str, width: int) -> str:
    """A name cut to a width, keeping both ends, which is where names differ.

    >>> shorten("progressive-concat-wide", 14)
    'progres…t-wide'
    """
    name = one_line(name)
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"


def fill_lines(needs: Sequence[float], room: float) -> list[list[int]]:
    """Things in lines that fit the room, every line with at least one: their places. needs: the room that each takes.

    >>> fill_lines([4, 4, 9, 2], room=9)
    [[0, 1], [2], [3]]
    """
    lines: list[list[int]] = [[]]
    left = room
    for place, need in enumerate(needs):
        if lines[-1] and need > left:
            lines.append([])
            left = room
        lines[-1].append(place)
        left -= need
    return lines
