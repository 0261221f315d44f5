"""Processes that run jobs, each one at a time: none outlives its parent, and the death of one costs only its job."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from consilience.comparison.plan import Job
from consilience.comparison.store import Result, Store
from consilience.core.errors import TrainingError, WriteError
from consilience.core.files import remove_leftovers
from consilience.core.shared_objects import SharedObjects

logger = logging.getLogger("consilience")

# What a process runs. Linux ends it with its parent; elsewhere it looks for the parent, as soon as it can.
_START = """
import ctypes, json, os, signal, sys
connection, content, parent, path = json.loads(sys.argv[1])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    os._exit(1)
sys.path[:] = path
from consilience.comparison.worker_processes import serve
serve(connection, content, parent)
"""
# The variables by which libraries know how many threads to use.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
_POLL_SECONDS = 0.5  # how often to look for processes that ended without closing their connection
_END_SECONDS = 5.0  # how long a process that has nothing left to do may take to end
_ATTEMPTS = 2  # of a job whose process dies
_STARTS = 3  # processes in a row that die before they are ready


class WorkerPool:
    """Up to `size` processes that run jobs; they start with the first jobs and end with the block.

    Args:
        do: Called with a job, the plan, the store and the number of threads; returns "done", "failed" or "elsewhere".
        jobs: All jobs that `run` may be given.
        plan: For `do`.
        store: For `do`.
        size: Number of processes.
        took: Where to keep how many seconds each job took that has ended, by its key.
    """

    def __init__(
        self,
        do: Callable[..., str],
        jobs: Sequence[Job],
        plan: Any,
        store: Store,
        size: int,
        took: dict[str, float] | None = None,
    ):
        self.store, self.size = store, size
        self.took = {} if took is None else took
        self._places = {job.key: place for place, job in enumerate(jobs)}
        self._threads = max(1, (os.cpu_count() or 1) // size)  # the processes share the cores
        self._content = (do, list(jobs), plan, store, self._threads)
        self._shared: SharedObjects | None = None
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._unready = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with _ctrl_c_later():
            for worker in self._workers:
                worker.end(at_once=kind is not None)
            deadline = time.monotonic() + _END_SECONDS
            for worker in self._workers:
                worker.wait(deadline - time.monotonic())
            if self._shared is not None:
                self._shared.close()
        if kind is not None:
            self._tidy(worker.job for worker in self._workers if worker.job is not None)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Yield each job with its outcome, in the order in which they end.

        A job whose process dies, for example because memory is exhausted, is run once more after all others; if its
        process dies again, the job has failed.

        Raises:
            TrainingError: If processes die before they can run a job.
            Exception: What `do` raised.
        """
        waiting = deque(jobs)
        while waiting or any(worker.job for worker in self._workers):
            self._hand_out(waiting)
            wait([worker.connection for worker in self._workers], _POLL_SECONDS)
            for worker in list(self._workers):
                alive = worker.process.poll() is None  # before reading: the last message may come with the end
                job = worker.job
                try:
                    outcome = worker.connection.recv() if worker.connection.poll() else None
                except (EOFError, OSError):
                    alive, outcome = False, None
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome is not None:
                    worker.ready, worker.job, self._unready = True, None, 0
                    if job is not None:
                        self.took[job.key] = time.monotonic() - worker.began
                        yield job, outcome
                elif not alive and (died := self._bury(worker)) is not None:
                    if self._deaths[died.key] < _ATTEMPTS:
                        waiting.append(died)
                    else:
                        yield died, self._fail(died, worker.ending)

    def _hand_out(self, waiting: deque[Job]) -> None:
        """Start processes as needed, and give those that are ready a job."""
        for worker in self._workers:
            if worker.ready and worker.job is None and waiting:
                job = self._choose(worker, waiting)
                try:
                    worker.connection.send(self._places[job.key])
                except OSError:  # it has died, as will be noticed
                    continue
                waiting.remove(job)
                worker.job, worker.last, worker.began = job, _in_common(job), time.monotonic()
        starting = sum(not worker.ready for worker in self._workers)
        for _ in range(min(self.size - len(self._workers), len(waiting) - starting)):
            if self._shared is None:
                self._shared = SharedObjects(self._content)
            with _ctrl_c_later():
                self._workers.append(_Worker(self._shared, self._threads))

    def _choose(self, worker: _Worker, waiting: Sequence[Job]) -> Job:
        """The next job of a process: the first that may have experts in common with those that it has trained.

        If there is none, the first that has none in common with those of other processes, or the first of all.
        """
        others = {other.last for other in self._workers if other is not worker}
        found = next((job for job in waiting if _in_common(job) == worker.last), None)
        return found or next((job for job in waiting if _in_common(job) not in others), waiting[0])

    def _bury(self, worker: _Worker) -> Job | None:
        """Remove a dead process; returns the job that it was running."""
        self._workers.remove(worker)
        worker.end(at_once=True)
        worker.wait(0)
        self._tidy([] if worker.job is None else [worker.job])
        if not worker.ready:
            self._unready += 1
            if self._unready >= _STARTS:
                raise TrainingError(
                    f"{_STARTS} processes in a row ended before they could run a job; the last one {worker.ending}. "
                    "Use fewer jobs"
                )
        if worker.job is not None:
            self._deaths[worker.job.key] += 1
            again = "; the job is run again" if self._deaths[worker.job.key] < _ATTEMPTS else ""
            logger.warning("the process of %s %s%s", worker.job.describe(), worker.ending, again)
        return worker.job

    def _fail(self, job: Job, ending: str) -> str:
        """Store that a job has failed; returns its outcome."""
        with self.store.claim(job) as mine:
            if not mine or self.store.done(job):
                return "elsewhere"
            error = f"in each of {_ATTEMPTS} attempts the process of the job {ending}"
            self.store.write(job, Result({"error": f"TrainingError: {error}", "traceback": ""}))
        return "failed"

    def _tidy(self, jobs: Iterable[Job]) -> None:
        """Remove what processes that died were writing, and their locks on these jobs."""
        for folder in (self.store.jobs, self.store.models):
            remove_leftovers(folder)
        for job in jobs:
            with suppress(WriteError), self.store.claim(job):
                pass  # which removes the lock


def _in_common(job: Job) -> tuple[str, int]:
    """What jobs have in common that train the same experts, which a process keeps for the next job."""
    return job.data, job.seed


class _Worker:
    """A process and the connection to it; `job` is what it is running since `began`, `ready` whether it ever was.

    `last` is what its latest job may have in common with others.
    """

    def __init__(self, shared: SharedObjects, threads: int):
        self.job: Job | None = None
        self.last: tuple[str, int] | None = None
        self.ready, self.began = False, 0.0
        self.connection, theirs = Pipe()
        told = json.dumps([theirs.fileno(), shared.file.fileno(), os.getpid(), list(map(str, sys.path))])
        self.process = subprocess.Popen(
            [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", _START, told],  # type: ignore[attr-defined]
            stdin=subprocess.DEVNULL,
            env={**dict.fromkeys(_THREADS, str(threads)), **os.environ},
            pass_fds=(theirs.fileno(), shared.file.fileno()),
        )
        theirs.close()
        with suppress(OSError):  # it has died, as will be noticed
            self.connection.send(shared.parts)

    def end(self, at_once: bool) -> None:
        """Let the process end, or end it."""
        if at_once:
            self.process.kill()
        self.connection.close()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended; it is killed if that takes too long."""
        try:
            self.process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def ending(self) -> str:
        """How the process ended, in words."""
        code = self.process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        memory = ", as the system does when memory is exhausted" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{memory}"


def serve(connection: int, content: int, parent: int) -> None:
    """Run jobs in this process, until its parent has no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes; the parent handles it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    channel: Connection = Connection(connection)
    try:
        do, jobs, plan, store, threads = SharedObjects.read(content, channel.recv())
        answer: Any = "ready"
        while True:
            channel.send(answer)
            answer = do(jobs[channel.recv()], plan, store, threads)
    except (EOFError, ConnectionError):  # the parent has ended
        return
    except BaseException as error:
        error.add_note(traceback.format_exc())  # where it was raised is not sent with it
        try:
            told = pickle.loads(pickle.dumps(error))
        except Exception:
            told = TrainingError(f"{type(error).__name__}: {error}")
        channel.send(told)


def _end_with(parent: int) -> None:
    """End this process within a second after its parent."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block; a process that is started in it does not receive it at all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
