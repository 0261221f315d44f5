"""A comparison trains the experts that its methods have in common once, and finds what it finds without that."""

from types import SimpleNamespace

import numpy as np
import pytest

from consilience import compare
from consilience.comparison.plan import Job
from consilience.comparison.publishing import read_finished
from consilience.comparison.worker_processes import WorkerPool, _in_common
from consilience.core.samples import Samples
from consilience.data import DataSet
from consilience.data.splits import draw_split
from consilience.training import shared_training
from consilience.training.shared_training import Kept

METHODS = ["bayes-robust", "auto"]
PROTOCOL = {
    "levels": (0, 5),
    "settings": {"bayes-robust": {"faults": []}, "auto": {"faults": []}},
    "seeds": 2,
    "encoders": {"a": {"name": "mlp", "hidden": [4]}, "b": {"name": "mlp", "hidden": [4]}},
    "training": {"steps": 20, "least_steps": 10, "device": "cpu"},
    "refit": False,
    "verbose": 0,
}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    y = np.arange(90) % 2
    values = {name: random.normal(y[:, None], 1, size=(90, 3)).astype(np.float32) for name in "ab"}
    return DataSet("small", Samples.of(values, y), "classification", *draw_split(y, "classification"))


def results(comparison):
    written = comparison.store.read_plan()
    return {(job.method, job.seed): result for job, result in read_finished(comparison.store, written)}


def check_equal(first, second):
    assert first.keys() == second.keys()
    for key, result in first.items():
        assert not result.failed
        other = second[key]
        assert result.arrays.keys() == other.arrays.keys()
        for name, array in result.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], err_msg=f"{key} {name}")
        assert repr(result.about["conditions"]) == repr(other.about["conditions"])


@pytest.mark.slow
def test_the_results_are_the_same_shared_alone_and_resumed(data, tmp_path, monkeypatch):
    counts = []
    before = Kept.once

    def counting(self, key, compute, whole):
        found = self.found
        result = before(self, key, compute, whole)
        counts.append(self.found - found)
        return result

    monkeypatch.setattr(Kept, "once", counting)
    shared = compare(data, METHODS, **PROTOCOL, out=tmp_path / "run")
    assert sum(counts) == 4  # two experts of each seed, which auto has in common with bayes-robust
    assert shared_training._active.kept is None  # nothing stays in memory
    found = results(shared)
    monkeypatch.setattr(shared_training, "once", lambda described, compute, whole=None: compute())
    monkeypatch.setattr("consilience.training.lockstep.once", lambda described, compute, whole=None: compute())
    check_equal(found, results(compare(data, METHODS, **PROTOCOL, out=tmp_path / "alone")))
    monkeypatch.undo()
    for job in (Job(**each) for each in shared.store.read_plan()["jobs"]):
        if job.method == "auto":  # as if it had been killed there: what it has in common is gone
            shared.store.discard(job)
    check_equal(found, results(compare(data, METHODS, **PROTOCOL, out=tmp_path / "run")))


@pytest.mark.slow
def test_the_time_of_a_training_is_that_of_all_its_experts(data, tmp_path, monkeypatch):
    before = Kept.once

    def slowly(self, key, compute, whole):
        result = before(self, key, compute, whole)
        self.saved_seconds += 100
        return result

    monkeypatch.setattr(Kept, "once", slowly)
    found = results(compare(data, ["bayes"], **{**PROTOCOL, "seeds": 1, "settings": {}}, out=tmp_path / "run"))
    assert found["bayes", 0].about["training_seconds"] > 200


def test_a_process_is_given_the_jobs_of_one_seed():
    jobs = [Job("set", method, seed, "data", f"{method}{seed}") for seed in range(3) for method in ("a", "b")]
    pool = WorkerPool(None, jobs, None, None, 2)
    first, second = (SimpleNamespace(last=None) for _ in range(2))
    pool._workers = [first, second]
    waiting, given = list(jobs), {0: [], 1: []}
    while waiting:
        for number, worker in enumerate(pool._workers):
            if waiting:
                job = pool._choose(worker, waiting)
                waiting.remove(job)
                worker.last = _in_common(job)
                given[number].append(job.key)
    assert given == {0: ["a0", "b0", "a2"], 1: ["a1", "b1", "b2"]}  # at the end no process waits
