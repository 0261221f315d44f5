"""Benchmark runs in parallel processes for a limited time: each result as it ends; the rest is given up."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor


class TimeIsUp(BaseException):
    """The minutes are over; no error of a task, which may catch all of its own."""


def results_within(
    function: Callable[..., Any], tasks: Sequence[tuple], jobs: int, minutes: float | None
) -> Iterator[Any]:
    """Yield what a function returns for each task, in the order in which they end.

    Args:
        function: Called with the parts of a task, in a process with one thread and without a GPU.
        tasks: In the order in which they start.
        jobs: Processes; each imports once, and runs one task after another.
        minutes: After which the tasks under way are killed, and nothing further is yielded; None: never.
    """
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # looking for a GPU takes seconds in every process
    end = None if minutes is None else time.monotonic() + 60 * minutes
    parallel = Parallel(jobs, batch_size=1, pre_dispatch="n_jobs", return_as="generator_unordered")
    results = parallel(delayed(function)(*task) for task in tasks)
    done = 0
    try:
        while done < len(tasks):
            with _until(end):
                result = next(results)
            done += 1
            yield result
    except TimeIsUp:
        pass
    finally:  # also after Ctrl-C
        if done < len(tasks):
            get_reusable_executor().shutdown(wait=False, kill_workers=True)


@contextmanager
def _until(end: float | None) -> Iterator[None]:
    """Raise `TimeIsUp` in the block at a time of the monotonic clock."""

    def stop(*_: Any) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    if end is not None:
        signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
