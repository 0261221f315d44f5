"""A run folder that was killed, copied in part or shared: the right result, or an error that says what is wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from consilience import compare, load
from consilience.comparison import reopen
from consilience.comparison.store import Store, StoreError
from consilience.core.errors import InputError
from consilience.training.model_folder import is_intact

PROTOCOL = {"methods": ["late", "concat"], "seeds": 2, "levels": (), "training": {"epochs": 2}, "verbose": 0}
# The command line's own comparison, killed when it copies the best model.
KILLED = """
import os, shutil, signal, sys
from consilience import compare

def die(source, target, **options):
    real(source, target, **options)
    os.kill(os.getpid(), signal.SIGKILL)

real, shutil.copytree = shutil.copytree, die
compare(sys.argv[1], ["late", "concat"], seeds=2, levels=(), training={"epochs": 2}, verbose=0, out=sys.argv[2])
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=150)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    heat, sound = (np.eye(3)[y] + rng.normal(scale=0.6, size=(150, 3)) for _ in range(2))
    np.savez(path, heat=heat, sound=sound, y=y)
    return path


@pytest.fixture(scope="module")
def finished(small, tmp_path_factory):
    return compare(small, out=tmp_path_factory.mktemp("runs") / "run", **PROTOCOL)


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished.folder, tmp_path / "copy")


def hidden(folder):
    endings = (".lock", ".part", ".old")
    return [path for path in folder.rglob("*") if path.name.startswith(".") or path.suffix in endings]


def test_a_finished_run_leaves_nothing_hidden(finished):
    assert not hidden(finished.folder)


def test_a_kill_while_the_best_model_is_published_leaves_nothing_for_good(small, finished, tmp_path):
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(small), str(tmp_path / "run")], capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        assert not (tmp_path / "run" / "best").exists()
        assert len(hidden(tmp_path / "run")) == 2, "a part and a lock; those of the kill before are gone"
    done = compare(small, out=tmp_path / "run", **PROTOCOL)
    assert not hidden(tmp_path / "run")
    assert done.findings.values.equals(finished.findings.values)
    assert is_intact(done.best)
    assert (done.best / "weights.safetensors").read_bytes() == (finished.best / "weights.safetensors").read_bytes()


def results(folder):
    return sorted(path for path in (folder / "jobs").glob("*.npz") if not path.name.startswith("refit-"))


@pytest.mark.parametrize("kept", [0, 1, 0.5, 0.999])
def test_truncated_results_are_named_by_a_report_and_repeated_by_compare(copied, finished, small, kept):
    path = results(copied)[1]
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if kept != 1 else 1])
    with pytest.raises(InputError, match=rf"is not whole: 1 of its results, such as {path.name}, cannot be read.*copy"):
        reopen(copied)
    done = compare(small, out=copied, **PROTOCOL)
    assert done.findings.values.equals(finished.findings.values)
    assert reopen(copied).findings.values.equals(finished.findings.values)


def test_missing_results_are_said_by_a_report_and_repeated_by_compare(copied, finished, small):
    for path in results(copied)[:2]:
        path.unlink()
    notes = reopen(copied).findings.notes
    assert any("2 of 4 jobs have no result yet" in note for note in notes)
    done = compare(small, out=copied, **PROTOCOL)
    assert done.findings.values.equals(finished.findings.values)
    assert done.findings.notes == finished.findings.notes


def test_a_truncated_plan_is_an_error(copied, small):
    plan = copied / "plan.json"
    plan.write_text(plan.read_text()[:-50])
    for call in (lambda: reopen(copied), lambda: compare(small, out=copied, **PROTOCOL)):
        with pytest.raises(InputError, match=r"plan\.json is damaged, or is not the plan of .*copy it again"):
            call()
    plan.unlink()
    with pytest.raises(InputError, match="holds no comparison"):
        compare(small, out=copied, **PROTOCOL)
    assert len(results(copied)) == 4


@pytest.mark.parametrize("also_lost", [False, True])
@pytest.mark.parametrize("damage", ["truncated", "without weights", "without description", "none"])
def test_a_best_model_that_is_not_whole_is_made_again(copied, finished, small, damage, also_lost):
    """From the models in the folder, or, where these are not whole either, by training again."""
    folders = [copied / "best", *((copied / "models").iterdir() if also_lost else ())]
    for folder in folders:
        if damage == "truncated":
            path = folder / "weights.safetensors"
            path.write_bytes(path.read_bytes()[:-1])
        elif damage == "none":
            shutil.rmtree(folder)
        else:
            (folder / ("weights.safetensors" if "weights" in damage else "model.json")).unlink()
    done = compare(small, out=copied, **PROTOCOL)
    assert done.findings.values.equals(finished.findings.values)
    assert (done.best / "weights.safetensors").read_bytes() == (finished.best / "weights.safetensors").read_bytes()
    load(done.best)
    assert not hidden(copied)


@pytest.mark.parametrize("name", ["report.html", "report.files", "report.stamp", "figures"])
@pytest.mark.parametrize("how", ["truncated", "missing"])
def test_a_report_that_is_not_whole_is_drawn_again(copied, finished, name, how):
    path = copied / name
    if how == "missing":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (copied / "report.stamp").unlink(missing_ok=True)
    elif path.is_file():
        path.write_bytes(path.read_bytes()[:-40])
    reopen(copied).report()
    reopen(copied)
    assert (copied / "report.html").read_bytes() == (finished.folder / "report.html").read_bytes()
    drawn = {path.name for path in (copied / "figures").iterdir()}
    assert drawn == {path.name for path in (finished.folder / "figures").iterdir()}


def test_a_truncated_page_is_noticed_when_the_comparison_is_opened(copied, finished):
    page = copied / "report.html"
    page.write_bytes(page.read_bytes()[:1000])
    reopen(copied)
    assert page.read_bytes() == (finished.folder / "report.html").read_bytes()


def test_a_plan_of_a_stranger_removes_nothing(copied, small, tmp_path):
    """The keys of jobs name files and folders."""
    precious = tmp_path / "precious"
    shutil.copytree(copied / "best", precious / "model")
    (precious / "model.npz").write_bytes(results(copied)[0].read_bytes())
    before = {path: path.read_bytes() for path in precious.rglob("*") if path.is_file()}
    plan = json.loads((copied / "plan.json").read_text())
    for job in plan["jobs"]:
        job["key"] = str(precious / "model")
    (copied / "plan.json").write_text(json.dumps(plan))
    compare(small, out=copied, **PROTOCOL)
    assert {path: path.read_bytes() for path in precious.rglob("*") if path.is_file()} == before


def test_of_two_processes_with_other_metrics_one_is_right_and_one_is_told(small, tmp_path):
    folder, outcomes = tmp_path / "run", {}
    compare(small, out=folder, **PROTOCOL)
    start = threading.Barrier(2)

    def work(metric):
        start.wait()
        try:
            outcomes[metric] = compare(small, out=folder, metric=metric, **PROTOCOL)
        except StoreError as error:
            outcomes[metric] = error

    threads = [threading.Thread(target=work, args=(metric,)) for metric in ("nll", "macro_f1")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, StoreError)]
    assert all("another process has changed the plan meanwhile" in str(error) for error in errors)
    assert len(errors) < 2
    last = Store(folder).read_plan()["asked"]["metric"]
    assert not isinstance(outcomes[last], StoreError)
    assert is_intact(folder / "best")
    assert not hidden(folder)


def test_a_plan_that_another_extended_meanwhile_is_an_error(small, tmp_path, monkeypatch):
    from consilience.comparison import comparison

    folder, keep = tmp_path / "run", comparison.keep_best

    def meanwhile(store, written, run):
        monkeypatch.setattr(comparison, "keep_best", keep)
        compare(small, out=folder, **{**PROTOCOL, "seeds": 3})
        keep(store, written, run)

    monkeypatch.setattr(comparison, "keep_best", meanwhile)
    with pytest.raises(StoreError, match=r"another process has changed the plan meanwhile.*run the comparison again"):
        compare(small, out=folder, **PROTOCOL)
    assert len(results(folder)) == 6
    assert reopen(folder).findings.seeds == [0, 1, 2]
    assert os.listdir(folder / "best")
