"""Run the jobs of a comparison in this process, in several, or on a cluster, with progress."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from consilience.comparison.job import Measure, work
from consilience.comparison.plan import Job, Plan, Source
from consilience.comparison.store import Store
from consilience.comparison.worker_processes import WorkerPool
from consilience.core.errors import InputError
from consilience.data.named_sets import DATA_SETS

logger = logging.getLogger("consilience")

# How often to look whether a job that another process holds is done.
_POLL_SECONDS = 0.5


def run_jobs(
    jobs: Sequence[Job],
    plan: Any,
    store: Store,
    *,
    workers: int = 1,
    cluster: str | None = None,
    verbose: int = 1,
    measuring: Measure | None = None,
) -> None:
    """Run every job that is not done; other processes may work on the same folder at the same time.

    Args:
        jobs: What to run.
        plan: What `measuring` needs; of a comparison its `Plan`.
        store: The run folder.
        workers: Processes.
        cluster: "ray" for a Ray cluster.
        verbose: 0 for no progress.
        measuring: Runs one job; by default a job of a comparison.
    """
    if workers < 1:
        raise InputError(f"compare: jobs must be ≥ 1, got {workers}")
    do = work if measuring is None else partial(work, measuring=measuring)
    tried: set[str] = set()  # a job that failed here is not tried again in this call
    with _Progress(len(jobs), verbose) as progress, _working(do, jobs, plan, store, workers, cluster) as work_on:
        while open_jobs := [job for job in jobs if job.key not in tried and not store.done(job)]:
            progress.update(len(jobs) - len(open_jobs))
            worked = False
            for job, outcome in work_on(open_jobs):
                if outcome != "elsewhere":
                    worked = True
                    tried.add(job.key)
                    progress.advance(job, outcome)
            if not worked:  # other processes have the rest; if they die, their locks are released
                time.sleep(_POLL_SECONDS)
        progress.update(len(jobs))


@contextmanager
def _working(
    do: Callable[..., str], jobs: Sequence[Job], plan: Any, store: Store, workers: int, cluster: str | None
) -> Iterator[Callable[[list[Job]], Iterable[tuple[Job, str]]]]:
    """Yield a function that runs some of the jobs and yields each with its outcome."""
    if cluster is not None:
        yield partial(_work_on_cluster, do, plan=_with_whole_paths(plan), store=store, cluster=cluster)
    elif workers == 1:
        try:
            yield lambda chosen: ((job, do(job, plan, store)) for job in chosen)
        finally:
            # Not imported here: a finished comparison answers without torch.
            if (experts := sys.modules.get("consilience.training.shared_training")) is not None:
                experts.forget_shared()
    else:
        with WorkerPool(do, jobs, plan, store, min(workers, len(jobs))) as pool:
            yield pool.run


def _work_on_cluster(
    do: Callable[..., str], jobs: list[Job], plan: Any, store: Store, cluster: str
) -> Iterable[tuple[Job, str]]:
    import joblib

    store = Store(store.folder.absolute())
    with joblib.parallel_config(backend=_backend(cluster)):
        pool = joblib.Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1)
        yield from pool(joblib.delayed(_work_on)(do, job, plan, store) for job in jobs)


def _work_on(do: Callable[..., str], job: Job, plan: Any, store: Store) -> tuple[Job, str]:
    return job, do(job, plan, store)


def _with_whole_paths(plan: Any) -> Any:
    """The plan for processes that run in another folder: files are named by their whole path."""
    if not isinstance(plan, Plan):
        return plan
    return replace(plan, sources=tuple(_whole_path(source) for source in plan.sources))


def _whole_path(source: Source) -> Source:
    named = source.data is not None or source.name in DATA_SETS
    return source if named else replace(source, name=str(Path(source.name).absolute()))


def _backend(cluster: str) -> str:
    if cluster != "ray":
        raise InputError(f"compare: unknown cluster {cluster!r}; 'ray' is served")
    try:
        import ray
        from joblib import register_parallel_backend
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError as error:
        raise InputError("compare: --cluster ray needs Ray: pip install 'consilience[ray]'") from error
    if not ray.is_initialized():
        # The address comes from RAY_ADDRESS; without one Ray starts on this machine.
        ray.init(log_to_driver=False, logging_level=logging.ERROR)

    class Streaming(RayBackend):
        """Returns every result when it is ready. Ray's pool can do so; joblib switches it off for all such pools."""

        supports_return_generator = True

    register_parallel_backend("consilience-ray", Streaming)
    return "consilience-ray"


class _Progress:
    """A bar on a terminal, a log line per job elsewhere."""

    def __init__(self, total: int, verbose: int):
        self.total, self._bar, self._task, self._done = total, None, None, 0
        self._terminal = verbose > 0 and sys.stderr.isatty()
        self._logs = verbose > 0 and not self._terminal
        self._began = time.monotonic()

    def __enter__(self) -> _Progress:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns: Iterable[Any] = (
                TextColumn("{task.completed}/{task.total} jobs"),
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
            )
            bar: Any = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            self._bar, self._task = bar, bar.add_task("", total=self.total)
        return self

    def update(self, done: int) -> None:
        """Show how many jobs are done, by any process."""
        self._done = done
        self._show("")

    def advance(self, job: Job, outcome: str) -> None:
        """Show that this process has done a job."""
        self._done += 1
        words = job.describe() + (" failed" if outcome == "failed" else "")
        if self._logs:
            logger.info("%d/%d jobs, %.0f s: %s", self._done, self.total, time.monotonic() - self._began, words)
        self._show(words)

    def _show(self, words: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, description=words)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
