"""The progress of a comparison: what it will do, and a bar on a terminal or a line per job, with the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from consilience.comparison.plan import Job
from consilience.comparison.time_left import TimeLeft, refits, say_left
from consilience.core.progress_lines import say_progress


class Progress:
    """A bar on a terminal, a line per job elsewhere.

    Args:
        jobs: All of them.
        verbose: 0 for no progress.
        workers: Jobs that run at the same time.
        estimate: Times of jobs that are known from before.
    """

    def __init__(self, jobs: Sequence[Job], verbose: int, workers: int = 1, estimate: TimeLeft | None = None):
        self.jobs, self.total, self._bar, self._task = list(jobs), len(jobs), None, None
        self._open = {job.key: job for job in jobs}
        self._terminal = verbose > 0 and sys.stderr.isatty()
        self._lines = verbose > 0 and not self._terminal
        self.left = TimeLeft() if estimate is None else estimate
        self.left.workers = workers
        self._began = self._last = time.monotonic()
        self._promised: float | None = None  # when the jobs will have ended, smoothed
        self._ran = 0

    def __enter__(self) -> Progress:
        if self._terminal and self.total:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns: Iterable[Any] = (
                TextColumn("{task.completed}/{task.total}"),
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.description}"),
            )
            bar: Any = Bar(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            self._bar, self._task = bar, bar.add_task("", total=self.total, left="")
        return self

    def update(self, open_jobs: Sequence[Job]) -> None:
        """Show which jobs are left, after others did some of them."""
        self._open = {job.key: job for job in open_jobs}
        self._last = time.monotonic()
        self._show(f"training {open_jobs[0].describe()}" if open_jobs and self.left.workers == 1 else "")

    def advance(self, job: Job, outcome: str, seconds: float | None = None) -> None:
        """Show that a job is done, which took so many seconds; None: since the last one, times the workers."""
        now = time.monotonic()
        self.left.add(job, (now - self._last) * self.left.workers if seconds is None else seconds)
        self._last = now
        self._open.pop(job.key, None)
        self._ran += 1
        words = job.describe() + (" failed" if outcome == "failed" else "")
        if self._lines:
            left = self._time_left()
            ends = f", {left} left" if left and self._open else ""
            done = self.total - len(self._open)
            say_progress(f"{done}/{self.total} jobs, {now - self._began:.0f} s{ends}: {words}")
        following = next(iter(self._open.values()), None)
        self._show(f"training {following.describe()}" if following and self.left.workers == 1 else words)

    def _time_left(self) -> str:
        """The time left in words; half of a change is believed at once, so that it does not jump."""
        seconds = self.left.seconds(self._open.values())
        if seconds is None:
            return ""
        end = time.monotonic() + seconds
        if self._promised is not None and self._ran > 1:
            end = (end + self._promised) / 2
        self._promised = end
        return say_left(max(0.0, end - time.monotonic()))

    def _show(self, words: str) -> None:
        if self._bar is not None:
            left = self._time_left() if self._ran else ""
            shown = f"{left} left" if left and self._open else ""
            self._bar.update(self._task, completed=self.total - len(self._open), description=words, left=shown)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def announce(written: Mapping[str, Any], open_jobs: Sequence[Job], *, quick: bool, workers: int) -> None:
    """Say what a comparison will do, before it does anything; nothing where all is done.

    Args:
        written: The plan.
        open_jobs: What is left to do.
        quick: Whether the methods are those of the default.
        workers: Processes.
    """
    if not open_jobs or refits(open_jobs):
        return
    methods = list(dict.fromkeys(job["method"] for job in written["jobs"]))
    seeds, levels = written["asked"]["seeds"], [level for level in written["asked"]["levels"] if level]
    corruptions = list(dict.fromkeys(name for names in written["corruptions"].values() for name in names))
    tested = f" and under {', '.join(corruptions)} at {_levels(levels)}" if levels and corruptions else ""
    say_progress(
        f"compare: {_count(len(methods), 'method')} ({', '.join(methods)}) on {', '.join(written['sets'])}, "
        f"{_count(seeds, 'seed')}, tested clean{tested}: {_count(len(open_jobs), 'training')}"
        + (f" in {workers} processes" if workers > 1 else "")
        + "; the time left is said after the first."
    )
    if quick:
        say_progress("compare: these are the quick default; thorough (--thorough) takes all methods and 10 seeds.")


def _levels(levels: Sequence[float]) -> str:
    return f"level{'' if len(levels) == 1 else 's'} " + " and ".join(f"{level:g}" for level in levels)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
