"""How long the jobs of a comparison will take, from those that are done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from consilience.comparison.plan import Job, Refit, registered_name

# How long a training takes beside one of `late`, before one of the method was timed: measured on small tables, and
# replaced by the method's own time once it is known.
_RELATIVE = {"auto": 8.0, "bayes-robust": 5.0, "bayes": 4.0, "best-unimodal": 2.5, "boosted": 0.5, "linear": 0.3}
_RELATIVE |= {"majority": 0.02, "gradient-blend": 4.0, "mfas": 6.0, "mult": 4.0, "tmc": 1.5, "etmc": 1.5}
# The time of a shorter training is mostly that of reading and testing, which tells nothing of the others.
_TELLING = 0.25


@dataclass
class TimeLeft:
    """The seconds that open jobs will take.

    Attributes:
        workers: Jobs that run at the same time.
        timed: (Set, method) → seconds of the jobs that this process has seen.

    Example:
        >>> left = TimeLeft()
        >>> left.add(Job("toy", "late", 0, "", ""), 2.0)
        >>> left.seconds([Job("toy", "late", 1, "", ""), Job("toy", "auto", 0, "", "")])
        18.0
    """

    workers: int = 1
    timed: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, job: Job, seconds: float) -> None:
        """Take note of how long a job took."""
        self.timed.setdefault((job.source, job.method), []).append(seconds)

    def seconds(self, jobs: Iterable[Job]) -> float | None:
        """Return how long the jobs will take; None before any was timed."""
        known = {key: sum(each) / len(each) for key, each in self.timed.items() if _relative(key[1]) >= _TELLING}
        if not known:
            return None
        unit = sum(known.values()) / sum(_relative(method) for _, method in known)
        return sum(self._expected(job, unit) for job in jobs) / self.workers

    def _expected(self, job: Job, unit: float) -> float:
        own = self.timed.get((job.source, job.method))
        if own:
            # The first job of a process imports and warms up what later ones find ready.
            return sum(own[1:]) / len(own[1:]) if len(own) > 1 else own[0]
        return unit * _relative(job.method)


def _relative(method: str) -> float:
    return _RELATIVE.get(registered_name(method), 1.0)


def say_left(seconds: float | None) -> str:
    """Return a time in words that do not change with every second.

    >>> say_left(8.0), say_left(50.0), say_left(200.0), say_left(9000.0), say_left(None)
    ('a few seconds', 'about 50 s', 'about 3 min', 'about 2.5 h', '')
    """
    if seconds is None:
        return ""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {10 * round(seconds / 10):.0f} s"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


def refits(jobs: Iterable[Job]) -> bool:
    """Return whether all jobs train chosen methods once more."""
    return all(isinstance(job, Refit) for job in jobs)
