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
from consilience.comparison.progress import Progress
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
    took = dict[str, float]()
    with (
        Progress(jobs, verbose, workers) as progress,
        _working(do, jobs, plan, store, workers, cluster, took) as work_on,
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
    do: Callable[..., str],
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
        with WorkerPool(do, jobs, plan, store, min(workers, len(jobs)), took) as pool:
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
