"""Run the jobs of a comparison in this process, in several, or on a cluster, with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from consilience.comparison.job import Measure, work
from consilience.comparison.plan import Job
from consilience.comparison.progress import Progress
from consilience.comparison.store import Store
from consilience.comparison.worker_processes import WorkerPool
from consilience.core.errors import InputError

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
    tried: set[str] = set()  # a job that failed here is not tried again in this call
    took = dict[str, float]()
    with (
        Progress(jobs, verbose, workers) as progress,
        _working(measuring, jobs, plan, store, workers, cluster, took) as work_on,
    ):
        while open_jobs := [job for job in jobs if job.key not in tried and not store.done(job)]:
            progress.update(open_jobs)
            worked = False
            for job, outcome in work_on(open_jobs):
                if outcome != "elsewhere":
                    worked = True
                    tried.add(job.key)
                    progress.advance(job, outcome, took.get(job.key))
            if not worked:  # other processes have the rest; if they die, their locks are released
                time.sleep(_POLL_SECONDS)
        progress.update([])


@contextmanager
def _working(
    measuring: Measure | None,
    jobs: Sequence[Job],
    plan: Any,
    store: Store,
    workers: int,
    cluster: str | None,
    took: dict[str, float],
) -> Iterator[Callable[[list[Job]], Iterable[tuple[Job, str]]]]:
    """Yield a function that runs some of the jobs and yields each with its outcome.

    Several processes write into `took` how many seconds each job took, by its key.
    """
    do: Callable[..., str] = work if measuring is None else partial(work, measuring=measuring)
    if cluster is not None:
        if cluster != "ray":
            raise InputError(f"compare: unknown cluster {cluster!r}; 'ray' is served")
        from consilience.comparison.ray_cluster import RayPool

        yield RayPool(measuring, plan, store).run
    elif workers == 1:
        try:
            yield lambda chosen: ((job, do(job, plan, store)) for job in chosen)
        finally:
            # Not imported here: a finished comparison answers without torch.
            if (experts := sys.modules.get("consilience.training.shared_training")) is not None:
                experts.forget_shared()
    else:
        with WorkerPool(do, jobs, plan, store, min(workers, len(jobs)), took) as pool:
            yield pool.run
