import errno
import json
import multiprocessing
import os
import signal
import stat

import numpy as np
import pytest

from consilience.comparison.plan import Job
from consilience.comparison.store import Result, Store, StoreError
from consilience.core.errors import InputError

JOB = Job("digits", "late", 0, "data", "a" * 24)
RESULT = Result({"method": "late", "score": 0.5}, {"y": np.arange(5), "text": np.array(["a", "bb"])})


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "run")
    store.write_plan({"asked": {"levels": [0, 5], "methods": ["late"]}, "jobs": []})
    return store


def test_a_result_comes_back_as_it_was(store):
    assert store.read(JOB) is None
    store.write(JOB, RESULT)
    again = store.read(JOB)
    assert again.about == RESULT.about
    assert {name: array.tolist() for name, array in again.arrays.items()} == {"y": [0, 1, 2, 3, 4], "text": ["a", "bb"]}
    assert not again.failed


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_a_result_cut_in_half_counts_as_none(store, kept):
    store.write(JOB, RESULT)
    path = next(store.jobs.glob("*.npz"))
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if kept in (0, 1, 100) else int(kept * len(whole))])
    assert store.read(JOB) is None


def test_nothing_in_a_result_is_unpickled(store):
    np.savez(store.jobs / f"{JOB.key}.npz", about=np.array([{"a": 1}], dtype=object))
    assert store.read(JOB) is None


def test_other_settings_are_named_and_extendable_ones_are_not(store):
    with pytest.raises(InputError, match=r"levels was \[0, 5\], now \[0, 10\].*--out"):
        store.check({"levels": [0, 10]})
    store.check({"levels": [0, 5], "methods": ["late", "concat"], "seeds": 3})


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds no comparison"):
        Store(tmp_path).check({})
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    # The superuser may write anywhere, so the refusal is the operating system's own error, raised where it would be.
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(StoreError, match=r"cannot write to .*locked: Permission denied"):
        Store(folder).write_plan({})


def test_a_full_disk_keeps_what_was_there(store, monkeypatch):
    store.write(JOB, RESULT)
    other = Job("digits", "concat", 0, "data", "b" * 24)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Results already there are kept"):
        store.write(other, RESULT)
    assert store.read(JOB).about == RESULT.about
    assert store.read(other) is None
    assert not list(store.jobs.glob(".*")), "no half-written file stays behind"


def _hold(folder, ready, die):
    with Store(folder).claim(JOB) as mine:
        ready.send(mine)
        die.recv()


def test_one_job_one_worker_and_a_killed_one_lets_go(store):
    spawn = multiprocessing.get_context("spawn")
    (ready, said), (die, _) = spawn.Pipe(duplex=False), spawn.Pipe(duplex=False)
    other = spawn.Process(target=_hold, args=(store.folder, said, die))
    other.start()
    assert ready.recv() is True
    with store.claim(JOB) as mine:
        assert mine is False
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    with store.claim(JOB) as mine:
        assert mine is True
    assert not list(store.jobs.glob("*.lock"))


def test_a_plan_that_is_no_plan_counts_as_none(store):
    for text in ("", "{", "[]", '{"asked": 1}', json.dumps(["jobs"])):
        (store.folder / "plan.json").write_text(text)
        assert store.read_plan() is None
