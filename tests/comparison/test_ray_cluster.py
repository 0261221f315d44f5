"""Jobs on a Ray cluster: what comes back of machines that share no folder, and of some that are lost."""

import os
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from consilience import compare, load
from consilience.comparison import ray_cluster
from consilience.comparison.plan import Job, Plan, Source
from consilience.comparison.ray_cluster import RayPool, Returned
from consilience.comparison.store import Result, Store
from consilience.core.errors import InputError
from consilience.report.document import Document
from consilience.reproduction.study import load_script, run_study

JOBS = [Job("set", "method", seed, "data", f"key{seed}") for seed in range(8)]
QUICK = {
    "target": "y",
    "modalities": {"a": "a*", "b": "b*"},
    "methods": ["late", "early"],
    "seeds": 2,
    "levels": [0],
    "training": {"epochs": 2, "device": "cpu"},
    "verbose": 0,
}


class Lost(Exception):
    """Stands for RayError."""


class Raised(Lost):
    """Stands for RayTaskError, whose text is the traceback of the machine."""

    def __init__(self, cause):
        super().__init__(f"ray::_run() (pid=7)\n  File ...\n{type(cause).__name__}: {cause}")
        self.cause = cause


class Fake:
    """A cluster in this process, on which the jobs of some seeds are lost as often as is said."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Raised)

    def __init__(self, losses=None, raises=None):
        self.losses, self.raises = dict(losses or {}), raises or {}
        self.started, self.cancelled = [], []

    def put(self, value):
        return value

    def cluster_resources(self):
        return {"CPU": 2.0}

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_retries": 0}
        return lambda function: SimpleNamespace(remote=partial(self._start, function))

    def _start(self, function, packed, digest, job):
        self.started.append(job.seed)
        return (function, packed, digest, job, len(self.started))

    def wait(self, references, timeout):
        return references[-1:], references[:-1]

    def get(self, reference):
        function, packed, digest, job, _ = reference
        if self.losses.get(job.seed, 0):
            self.losses[job.seed] -= 1
            raise Lost(f"the machine of {job.seed} is gone.\nmore")
        if job.seed in self.raises:
            raise Raised(self.raises[job.seed])
        return function(packed, digest, job)

    def cancel(self, reference, force):
        self.cancelled.append(reference[3].seed)


def square(job, plan, store):
    model = store.model(job)
    (model / "weights").mkdir(parents=True)
    (model / "weights" / "a.bin").write_bytes(bytes([job.seed]))
    return Result({"square": job.seed**2, "folder": str(store.folder), "plan": plan}, {"values": np.arange(job.seed)})


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "run")
    made.jobs.mkdir(parents=True)
    return made


def pool(fake, store, monkeypatch, measuring=square):
    monkeypatch.setattr(ray_cluster, "_connected", lambda: fake)
    return RayPool(measuring, {"of": "all"}, store)


def test_results_and_models_are_written_here_and_nothing_stays_on_the_machine(store, monkeypatch):
    fake = Fake()
    outcomes = dict(pool(fake, store, monkeypatch).run(JOBS))
    assert outcomes == dict.fromkeys(JOBS, "done")
    for job in JOBS:
        result = store.read(job)
        assert (result.about["square"], result.about["plan"]) == (job.seed**2, {"of": "all"})
        np.testing.assert_array_equal(result.arrays["values"], np.arange(job.seed))
        assert (store.model(job) / "weights" / "a.bin").read_bytes() == bytes([job.seed])
        assert not os.path.exists(result.about["folder"])
        assert str(store.folder) not in result.about["folder"]
    assert not list(store.jobs.glob("*.lock"))


def test_a_gpu_that_no_machine_has_is_said_and_waited_for(store, monkeypatch, caplog):
    asked = {}
    fake = Fake()
    fake.remote = lambda **options: asked.update(options) or (lambda function: function)
    monkeypatch.setattr(ray_cluster, "_connected", lambda: fake)
    RayPool(None, Plan((Source("digits"),), training={"device": "cuda"}), store)._start()
    assert asked["num_gpus"] == 1
    assert "no machine of the Ray cluster has a GPU: jobs wait for one" in caplog.text


def test_lost_jobs_are_run_again_and_fail_when_they_are_always_lost(store, monkeypatch, caplog):
    fake = Fake(losses={1: 2, 3: 99})
    outcomes = dict(pool(fake, store, monkeypatch).run(JOBS))
    assert outcomes == {job: "failed" if job.seed == 3 else "done" for job in JOBS}
    assert [fake.started.count(seed) for seed in range(8)] == [1, 3, 1, 3, 1, 1, 1, 1]
    assert store.read(JOBS[3]).about["error"] == (
        "TrainingError: in each of 3 attempts the process or machine of the job was lost: the machine of 3 is gone"
    )
    assert sum("was lost (the machine of" in record.message for record in caplog.records) == 4


def test_a_job_of_another_process_is_left_to_it_and_a_finished_one_is_not_sent(store, monkeypatch):
    store.write(JOBS[2], Result({"square": 4}))
    fake = Fake()
    with store.claim(JOBS[5]):
        outcomes = dict(pool(fake, store, monkeypatch).run(JOBS))
    assert (outcomes[JOBS[5]], outcomes[JOBS[2]]) == ("elsewhere", "done")
    assert sorted(fake.started) == [0, 1, 3, 4, 6, 7]


def test_an_error_that_is_no_result_ends_the_run_and_frees_the_rest(store, monkeypatch):
    fake = Fake(raises={2: InputError("the disk of a machine is full")})
    with pytest.raises(InputError, match=r"^the disk of a machine is full$"):
        list(pool(fake, store, monkeypatch).run(JOBS))
    assert fake.cancelled
    assert not list(store.jobs.glob("*.lock"))


def test_a_model_that_would_be_written_elsewhere_is_refused(store, monkeypatch):
    fake = Fake()
    for name in ("../../outside", str(store.folder / "outside")):
        returned = Returned("done", Result({}), {name: b"x"})
        monkeypatch.setattr(fake, "get", lambda reference, returned=returned: returned)
        with pytest.raises(InputError, match=r"the model of .* came back with the file"):
            list(pool(fake, store, monkeypatch).run(JOBS[:1]))
    assert not (store.folder / "outside").exists()
    assert not store.done(JOBS[0])


def test_a_method_that_fails_is_a_result(store, monkeypatch):
    def fails(job, plan, store):
        raise ValueError("no such thing")

    outcomes = dict(pool(Fake(), store, monkeypatch, fails).run(JOBS[:1]))
    assert outcomes == {JOBS[0]: "failed"}
    assert store.read(JOBS[0]).about["error"] == "ValueError: no such thing"


def write_table(path, rows=120):
    drawn = np.random.default_rng(0)
    y = drawn.integers(0, 2, rows)
    names = ["a0", "a1", "b0", "b1", "y"]
    values = np.column_stack([drawn.normal(size=(rows, 4)) + y[:, None], y])
    lines = [",".join(names), *(",".join(f"{value:.6g}" for value in row) for row in values)]
    path.write_text("\n".join(lines))
    return path


def where(cell, shared):
    """A cell that takes a while, and says on which machine it ran."""
    import ray

    time.sleep(1.5)
    return Result({"cell": cell["number"], "node": ray.get_runtime_context().get_node_id()})


def kept_in(found):
    """What describes the results of a study, and keeps them in a list."""

    def describe(results):
        found[:] = results
        return Document("Places", (), ())

    return describe


@pytest.fixture
def cluster():
    """Two machines of one processor each; the first is that of this process."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'consilience[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
    second = made.add_node(num_cpus=1, object_store_memory=10**8)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    made.wait_for_nodes()
    try:
        yield made, second
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
def test_a_comparison_on_two_machines_finds_what_one_process_finds_without_the_file(cluster, tmp_path, monkeypatch):
    table = write_table(tmp_path / "table.csv")
    alone = compare(table, out=tmp_path / "alone", **QUICK)
    loaded = ray_cluster._loaded

    elsewhere = tmp_path / "elsewhere.csv"

    def load_and_remove(source):
        if elsewhere.exists():
            elsewhere.rename(table)
        found = loaded(source)
        table.rename(elsewhere)  # the machines do not have it
        return found

    monkeypatch.setattr(ray_cluster, "_loaded", load_and_remove)
    found = compare(table, out=tmp_path / "run", cluster="ray", **QUICK)
    columns = found.findings.values.columns
    assert found.findings.values.sort(columns).equals(alone.findings.values.sort(columns))
    assert load(found.best).predict({"a": np.zeros((1, 2)), "b": np.zeros((1, 2))}).shape == (1,)


@pytest.mark.slow
def test_a_machine_that_is_lost_costs_no_result_and_the_rest_is_not_repeated(cluster, tmp_path):
    made, second = cluster
    cells = [{"number": number} for number in range(8)]
    folder = tmp_path / "run"

    def kill_after_some():
        deadline = time.monotonic() + 100
        while len(list((folder / "jobs").glob("*.npz"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        made.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill_after_some)
    killer.start()
    found = []
    study = partial(run_study, "places", where, cells, {}, kept_in(found), out=folder, cluster="ray", verbose=0)
    study()
    killer.join()
    assert [result.about["cell"] for result in found] == list(range(8))
    assert len({result.about["node"] for result in found}) == 2, "both machines have worked"
    files = {path: path.stat().st_mtime_ns for path in (folder / "jobs").glob("*.npz")}
    study()
    assert {path: path.stat().st_mtime_ns for path in (folder / "jobs").glob("*.npz")} == files


@pytest.mark.slow
def test_a_script_that_the_machines_do_not_have_is_sent(cluster, tmp_path):
    script = tmp_path / "own_script.py"
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "factor.yaml").write_text("factor: 7")
    script.write_text(
        "from functools import cache\n"
        "from pathlib import Path\n"
        "import yaml\n"
        "from consilience.comparison.store import Result\n"
        "FACTOR = yaml.safe_load((Path(__file__).parent / 'settings' / 'factor.yaml').read_text())['factor']\n"
        "@cache\n"
        "def product(number):\n"
        "    return FACTOR * number\n"
        "def measure(cell, shared):\n"
        "    return Result({'product': product(cell['number']), 'file': __file__})\n"
    )
    module = load_script(script)
    found = []
    cells = [{"number": 6}]
    run_study("products", module.measure, cells, {}, kept_in(found), out=tmp_path / "run", cluster="ray", verbose=0)
    assert found[0].about["product"] == 42
    assert not found[0].about["file"].startswith(str(tmp_path))
