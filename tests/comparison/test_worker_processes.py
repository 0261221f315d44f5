"""Processes that run jobs: what one of them does to itself costs only its job, and none is left alone."""

import errno
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from consilience.comparison import worker_processes
from consilience.comparison.engine import run_jobs
from consilience.comparison.plan import Job
from consilience.comparison.store import Result, Store, StoreError, store_error
from consilience.comparison.time_left import TimeLeft
from consilience.comparison.worker_processes import WorkerPool
from consilience.core.errors import TrainingError

JOBS = [Job(source="digits", method="late", seed=seed, data="", key=f"key{seed}") for seed in range(4)]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "run")
    store.write_plan({"asked": {}, "jobs": []})
    return store


def attempts(store):
    """How often each job was begun, by its seed."""
    lines = (store.folder / "begun").read_text().split()
    return {seed: lines.count(str(seed)) for seed in range(len(JOBS))}


def begin(job, store):
    with (store.folder / "begun").open("a") as file:
        file.write(f"{job.seed}\n")


@pytest.mark.slow
def test_a_job_whose_process_is_killed_is_run_again(store, caplog):
    def measure(job, plan, store):
        begin(job, store)
        if job.seed == 1 and attempts(store)[1] == 1:
            os.kill(os.getpid(), signal.SIGSEGV)  # the next test has SIGKILL
        return Result({"process": os.getpid()})

    run_jobs(JOBS, {}, store, workers=2, verbose=0, measuring=measure)
    assert attempts(store) == {0: 1, 1: 2, 2: 1, 3: 1}
    assert all(store.done(job) for job in JOBS)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["the process of late on digits, seed 1 was killed by SIGSEGV; the job is run again"]


@pytest.mark.slow
def test_a_job_whose_processes_are_always_killed_has_failed_and_the_others_go_on(store, caplog):
    def measure(job, plan, store):
        begin(job, store)
        if job.seed == 1:
            (store.jobs / ".key1.npz.12.0123abcd.part").write_text("half of a result")
            os.kill(os.getpid(), signal.SIGKILL)
        return Result({"fine": True})

    with caplog.at_level(logging.INFO, logger="consilience"):
        run_jobs(JOBS, {}, store, workers=2, measuring=measure)
    assert attempts(store) == {0: 1, 1: 2, 2: 1, 3: 1}
    assert [store.done(job) for job in JOBS] == [True, False, True, True]
    assert store.read(JOBS[1]).about["error"] == (
        "TrainingError: in each of 2 attempts the process of the job was killed by SIGKILL, as the system does when "
        "memory is exhausted"
    )
    assert caplog.records[-1].getMessage().endswith("late on digits, seed 1 failed")
    assert sorted(path.name for path in store.jobs.iterdir()) == [f"key{seed}.npz" for seed in range(4)]


@pytest.mark.slow
def test_a_process_that_exits_by_itself_is_reported_with_its_code(store):
    def measure(job, plan, store):
        os._exit(7)

    run_jobs(JOBS[:1], {}, store, workers=2, verbose=0, measuring=measure)
    assert "in each of 2 attempts the process of the job ended with exit code 7" in store.read(JOBS[0]).about["error"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_run(store, workers):
    def measure(job, plan, store):
        begin(job, store)
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("a library's own words") from error

    with pytest.raises(StoreError, match=r"cannot write to .*: No space left on device. Results already there"):
        run_jobs(JOBS, {}, store, workers=workers, verbose=0, measuring=measure)
    assert sum(attempts(store).values()) <= workers
    assert not any(store.has(job) for job in JOBS)


def test_an_error_of_the_store_is_the_same_on_the_other_side(tmp_path):
    error = pickle.loads(pickle.dumps(store_error(tmp_path, errno.ENOSPC)))
    assert str(error) == f"cannot write to {tmp_path}: No space left on device. Results already there are kept"


class EndsItsReader:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (3,)


class CannotBeRead:
    """Fails where it is unpickled."""

    def __reduce__(self):
        return int, ("no number",)


def test_processes_that_die_while_they_are_told_of_many_arrays_end_the_run(store, monkeypatch):
    monkeypatch.setattr(worker_processes, "_START", "import os; os._exit(3)")
    many = [np.zeros(1) for _ in range(30_000)]  # more places than a pipe takes before somebody reads them
    with (
        pytest.raises(TrainingError, match=r"3 processes in a row ended before .* exit code 3"),
        WorkerPool(print, JOBS, many, store, 1) as pool,
    ):
        list(pool.run(JOBS))


@pytest.mark.slow
def test_processes_that_cannot_start_end_the_run(store):
    with pytest.raises(TrainingError, match=r"3 processes in a row ended before .* exit code 3"):
        run_jobs(JOBS[:1], EndsItsReader(), store, workers=2, verbose=0)
    with pytest.raises(ValueError, match="no number"):
        run_jobs(JOBS[:1], CannotBeRead(), store, workers=2, verbose=0)


@pytest.mark.slow
def test_the_time_of_a_job_is_its_own_and_not_that_between_the_ends_of_two(store, monkeypatch):
    def measure(job, plan, store):
        time.sleep(3.0 if job.seed == 0 else 0.2)
        return Result({"fine": True})

    timed = {}
    monkeypatch.setattr(TimeLeft, "add", lambda self, job, seconds: timed.update({job.seed: seconds}))
    run_jobs(JOBS, {}, store, workers=2, verbose=0, measuring=measure)
    assert 3.0 <= timed[0] < 5.0
    assert all(0.2 <= timed[seed] < 2.0 for seed in (1, 2, 3))


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_at_once(store):
    def measure(job, plan, store):
        begin(job, store)
        time.sleep(600)

    sent = []

    def press_ctrl_c():
        while not (store.folder / "begun").exists():
            time.sleep(0.05)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    before = children()
    threading.Thread(target=press_ctrl_c, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(JOBS, {}, store, workers=2, verbose=0, measuring=measure)
    assert time.monotonic() - sent[0] < 2
    assert children() == before


def children():
    path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return path.read_text().split()


PARENT = """
import os, sys, time
from consilience.comparison.engine import run_jobs
from consilience.comparison.plan import Job
from consilience.comparison.store import Store
def measure(job, plan, store):
    print(os.getpid(), flush=True)
    time.sleep(600)
store = Store(sys.argv[1])
store.write_plan({"asked": {}, "jobs": []})
run_jobs([Job("digits", "late", seed, "", f"key{seed}") for seed in range(4)], {}, store, workers=2, measuring=measure)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_its_parent(tmp_path, number):
    """The parent is a script without a guard, and its function is defined in it."""
    words = [sys.executable, "-c", PARENT, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(number)
    assert parent.returncode == -number
    deadline = time.monotonic() + 3
    while any(map(lives, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(lives, workers))


def lives(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
