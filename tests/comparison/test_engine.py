"""Working through jobs: in one process, in several, on a cluster, beside others, with progress."""

import logging
import signal
import sys
import threading
from functools import partial

import numpy as np
import pytest

from consilience import compare
from consilience.comparison import engine
from consilience.comparison.plan import Job, Plan, Source
from consilience.comparison.store import Result, Store
from consilience.core.errors import InputError

QUICK = {"methods": ["late", "concat"], "seeds": 2, "levels": (5,), "training": {"epochs": 2}, "verbose": 0}
PLAN = Plan((Source.of("digits"),))
JOBS = [Job(source="digits", method="late", seed=seed, data="", key=f"key{seed}") for seed in range(4)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=120)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, a=y[:, None] + rng.normal(size=(120, 2)), b=y[:, None] + rng.normal(size=(120, 3)), y=y)
    return path


@pytest.fixture(scope="module")
def alone(small, tmp_path_factory):
    """What one process finds."""
    return compare(small, out=tmp_path_factory.mktemp("runs") / "alone", **QUICK)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "run")
    store.write_plan({"asked": {}, "jobs": []})
    return store


@pytest.fixture
def worked(monkeypatch):
    """The jobs done, in order, by a stand-in that only writes a result; it fails where the seed is 2."""
    done = []

    def work(job, plan, store, threads=None):
        with store.claim(job) as mine:
            if not mine:
                return "elsewhere"
            if (known := store.read(job)) is not None and not known.failed:  # done between looking and claiming
                return "done"
            done.append(job.seed)
            failed = job.seed == 2
            store.write(job, Result({"error": "it broke"} if failed else {"fine": True}))
            return "failed" if failed else "done"

    monkeypatch.setattr(engine, "work", work)
    return done


def test_every_job_is_done_once_and_a_failed_one_again_only_when_asked_again(store, worked, caplog):
    with caplog.at_level(logging.INFO, logger="consilience"):
        engine.run_jobs(JOBS, PLAN, store)
    assert worked == [0, 1, 2, 3]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(",")[0] for line in lines] == ["1/4 jobs", "2/4 jobs", "3/4 jobs", "4/4 jobs"]
    assert lines[2].endswith("late on digits, seed 2 failed")
    engine.run_jobs(JOBS, PLAN, store, verbose=0)
    assert worked == [0, 1, 2, 3, 2]


def test_processes_leave_ctrl_c_to_the_one_that_started_them(store):
    def listen(job, plan, store):
        return Result({"deaf": signal.getsignal(signal.SIGINT) is signal.SIG_IGN})

    before = signal.getsignal(signal.SIGINT)
    engine.run_jobs(JOBS, PLAN, store, workers=2, verbose=0, measuring=listen)
    assert [store.read(job).about["deaf"] for job in JOBS] == [True] * 4
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_is_said_when_nothing_is_to_be_said(store, worked, caplog):
    with caplog.at_level(logging.INFO, logger="consilience"):
        engine.run_jobs(JOBS, PLAN, store, verbose=0)
    assert not caplog.records


def test_a_job_in_other_hands_is_waited_for(store, worked, monkeypatch):
    monkeypatch.setattr(engine, "_POLL_SECONDS", 0.01)
    claimed, finish = threading.Event(), threading.Event()

    def elsewhere():
        with store.claim(JOBS[1]) as mine:
            assert mine
            claimed.set()
            finish.wait(10)
            store.write(JOBS[1], Result({"fine": "done elsewhere"}))

    other = threading.Thread(target=elsewhere)
    other.start()
    claimed.wait(10)
    monkeypatch.setattr(engine.time, "sleep", lambda _: finish.set())  # only who waits lets the other finish
    engine.run_jobs(JOBS, PLAN, store, verbose=0)
    other.join()
    assert 1 not in worked
    assert store.read(JOBS[1]).about == {"fine": "done elsewhere"}


def test_a_job_whose_holder_died_is_taken_over(store, worked, monkeypatch):
    monkeypatch.setattr(engine, "_POLL_SECONDS", 0.01)
    claim = store.claim(JOBS[1])
    claim.__enter__()
    monkeypatch.setattr(engine.time, "sleep", lambda _: claim.__exit__(None, None, None))  # it leaves no result
    engine.run_jobs(JOBS, PLAN, store, verbose=0)
    assert worked == [0, 2, 3, 1]


def test_two_processes_find_what_one_finds(small, alone, tmp_path):
    both = compare(small, out=tmp_path / "both", jobs=2, **QUICK)
    assert both.findings.values.sort(both.findings.values.columns).equals(
        alone.findings.values.sort(alone.findings.values.columns)
    )


@pytest.mark.slow
def test_a_real_ray_finds_what_one_process_finds(small, alone, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'consilience[ray]'")
    monkeypatch.setattr(ray, "init", partial(ray.init, num_cpus=1))  # each of its processes imports torch
    # Ray's processes work in a folder of their own: relative names must reach them all the same.
    monkeypatch.chdir(small.parent)
    try:
        found = compare(small.name, out="on-ray", cluster="ray", **QUICK)
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert found.findings.values.sort(found.findings.values.columns).equals(
        alone.findings.values.sort(alone.findings.values.columns)
    )
    assert found.best.is_dir()


def test_ray_that_is_not_there_is_asked_for(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--cluster ray needs Ray: pip install 'consilience\[ray\]'"):
        compare(small, out=tmp_path / "run", cluster="ray", **QUICK)


def test_other_clusters_and_no_processes_are_refused(small, tmp_path):
    with pytest.raises(InputError, match="unknown cluster 'slurm'; 'ray' is served"):
        compare(small, out=tmp_path / "run", cluster="slurm", **QUICK)
    with pytest.raises(InputError, match="jobs must be a whole number ≥ 1, got 0"):
        compare(small, out=tmp_path / "run", jobs=0, **QUICK)
