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
from consilience.training.model_folder import Folder, is_intact, write_folder

JOB = Job("digits", "late", 0, "data", "a" * 24)
RESULT = Result({"method": "late", "score": 0.5}, {"y": np.arange(5), "text": np.array(["a", "bb"])})


HOSTILE = ["/PRECIOUS", "../../precious", "..", ".", "", "a/b", "\0", "x" * 400, "\ud800", "jobs"]
NO_PROCESS = 2**22 + 1  # larger than the largest number of a process


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


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "\x00", '{"asked": 1}', '["jobs"]', '{"asked": [], "jobs": []}', '{"asked": {}, "jobs": [1]}'),
        *('{"asked": {}, "jobs": {"key": 1}}', '{"asked": {}, "jobs": [{"key": "a"}]}', "[" * 100_000),
    ],
)
def test_a_damaged_plan_is_an_error_and_none_is_none(store, text):
    (store.folder / "plan.json").write_text(text)
    with pytest.raises(InputError, match=r"plan\.json is damaged, or is not the plan of a comparison.*copy it again"):
        store.read_plan()
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        store.check({})
    assert Store(store.folder / "elsewhere").read_plan() is None


@pytest.mark.parametrize("flipped", range(0, 700, 7))
def test_a_changed_byte_is_a_damaged_result_or_the_same(store, flipped):
    store.write(JOB, RESULT)
    path = next(store.jobs.glob("*.npz"))
    content = bytearray(path.read_bytes())
    content[flipped * len(content) // 700] ^= 0xFF
    path.write_bytes(content)
    found = store.read(JOB)
    assert found is None or (found.about == RESULT.about and found.arrays["y"].tolist() == RESULT.arrays["y"].tolist())
    assert store.damaged([JOB]) == ([] if found else [path])


def test_an_unreadable_result_is_not_taken_for_a_missing_one(store):
    (store.jobs / f"{JOB.key}.npz").mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*npz: Is a directory"):
        store.read(JOB)


def tree(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def precious(tmp_path):
    folder = tmp_path / "precious"
    (folder / "deep").mkdir(parents=True)
    (folder / "data.npy").write_bytes(b"years of work")
    (folder / "deep" / "notes.txt").write_text("more")
    return folder


@pytest.mark.parametrize("key", HOSTILE)
def test_no_key_of_a_plan_leads_out_of_the_folder(store, precious, key):
    """Plans are read from folders that others may have made."""
    before = tree(precious)
    job = Job("digits", "late", 0, "data", key.replace("/PRECIOUS", str(precious)))
    with store.claim(job) as mine:
        assert mine
    store.write(job, RESULT)
    assert store.read(job).about == RESULT.about
    store.discard(job)
    save(store, job)
    store.drop_models([job])
    assert tree(precious) == before
    assert not list(store.models.iterdir())
    assert sorted(path.name for path in store.folder.parent.iterdir()) == ["precious", "run"]


@pytest.mark.parametrize("name", ["jobs", "models", "best", ".lock"])
def test_links_in_a_run_folder_are_refused(tmp_path, precious, name):
    store = Store(tmp_path / "linked")
    store.folder.mkdir()
    (store.folder / "plan.json").write_text(json.dumps({"asked": {}, "jobs": []}))
    (store.folder / name).symlink_to(precious)
    before = tree(precious)
    with pytest.raises(InputError, match=r"is a symbolic link, and nothing outside .*linked is written or removed"):
        store.settle({}, dict)
    assert tree(precious) == before


def test_linked_models_and_results_are_not_followed(store, precious):
    before = tree(precious)
    store.models.mkdir()
    store.model(JOB).symlink_to(precious)
    with pytest.raises(InputError, match="symbolic link"):
        store.drop_models([JOB])
    (store.jobs / f"{JOB.key}.npz").symlink_to(precious / "data.npy")
    with pytest.raises(InputError, match="symbolic link"):
        store.write(JOB, RESULT)
    store.discard(JOB)  # the link alone
    (store.folder / "plan.json").unlink()
    (store.folder / "plan.json").symlink_to(precious / "data.npy")
    with pytest.raises(InputError, match="symbolic link"):
        store.write_plan({})
    assert tree(precious) == before


def save(store, job, text="late"):
    write_folder(store.model(job), Folder({"method": text}, {}))


def publish(store, job, labels=("a", "b")):
    save(store, job)
    with store.alone():
        store.publish(job, store.best(labels[0], labels))


@pytest.mark.parametrize("label", HOSTILE)
def test_publishing_stays_in_the_folder(store, precious, label):
    before = tree(precious)
    label = label.replace("/PRECIOUS", str(precious))
    target = store.best(label, [label, "other"])
    publish(store, JOB, (label, "other"))
    assert target.parent == store.folder / "best"
    assert is_intact(target)
    assert store.published(JOB, target)
    assert tree(precious) == before
    assert sorted(path.name for path in store.folder.iterdir()) == ["best", "jobs", "models", "plan.json"]


def test_only_a_published_model_is_replaced(store):
    publish(store, JOB, ("a",))
    other = Job("digits", "concat", 0, "data", "b" * 24)
    publish(store, other, ("a",))
    best = store.folder / "best"
    assert store.published(other, best)
    assert not store.published(JOB, best)
    (best / "my notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"best holds 'my notes.txt', which is no part of a model.*move it elsewhere"):
        publish(store, JOB, ("a",))
    assert (best / "my notes.txt").read_text() == "mine"
    assert (best / "job.key").read_text() == other.key


@pytest.mark.parametrize(
    "content", [{"a.csv": "1"}, {"weights.safetensors": "?"}, {"model.json": '{"library": "other"}'}]
)
def test_a_folder_without_our_mark_is_never_replaced(store, content):
    best = store.folder / "best" / "a"
    best.mkdir(parents=True)
    for name, text in content.items():
        (best / name).write_text(text)
    with pytest.raises(InputError, match="is no part of a model of this comparison"):
        store.check_published(best)
    with pytest.raises(InputError, match="is no part of a model of this comparison"):
        publish(store, JOB)
    assert {path.name: path.read_text() for path in best.iterdir()} == content


def test_folders_and_links_under_the_names_of_model_files_are_foreign(store, precious):
    publish(store, JOB, ("a",))
    best, before = store.folder / "best", tree(precious)
    (best / "experts.skops").mkdir()
    (best / "experts.skops" / "mine").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'experts\.skops'"):
        store.check_published(best)
    (best / "experts.skops" / "mine").unlink()
    (best / "experts.skops").rmdir()
    (best / "experts.skops").symlink_to(precious / "data.npy")
    with pytest.raises(InputError, match=r"holds 'experts\.skops'"):
        store.check_published(best)
    assert tree(precious) == before


def test_a_model_folder_with_something_else_in_it_is_not_dropped(store):
    save(store, JOB)
    (store.model(JOB) / "notes.txt").write_text("mine")
    store.drop_models([JOB])
    assert (store.model(JOB) / "notes.txt").read_text() == "mine"
    (store.model(JOB) / "notes.txt").unlink()
    store.drop_models([JOB])
    assert not store.model(JOB).exists()


@pytest.mark.parametrize("damage", ["truncated", "without weights", "without description", "without key"])
def test_a_published_model_that_is_not_whole_is_published_again(store, damage):
    publish(store, JOB, ("a",))
    best = store.folder / "best"
    whole = {path.name: path.read_bytes() for path in best.iterdir()}
    weights = best / "weights.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1])
    else:
        {"weights": weights, "description": best / "model.json", "key": best / "job.key"}[damage.split()[1]].unlink()
    assert not store.published(JOB, best)
    with store.alone():
        store.publish(JOB, best)
    assert {path.name: path.read_bytes() for path in best.iterdir()} == whole


def test_what_killed_processes_left_is_removed_and_what_living_ones_write_stays(store):
    from consilience.core.files import atomic_folder

    publish(store, JOB)
    left = [
        *(store.folder / f".{name}.{NO_PROCESS}.part" for name in ("best", "plan.json")),
        store.jobs / f".{JOB.key}.npz.{NO_PROCESS}.0a1b2c3d.part",
        store.models / f".{JOB.key}.{NO_PROCESS}.0a1b2c3d.part",
        store.folder / "best" / f".a.{NO_PROCESS}.0a1b2c3d.part",
        store.jobs / f"{JOB.key}.lock",
        store.folder / ".publish.lock",
        store.folder / ".lock",
    ]
    for path in left:
        path.write_text("half")
    mine = [store.folder / "notes.part", store.jobs / ".hidden.part", store.folder / "best" / "x.lock"]
    for path in mine:
        path.write_text("mine")
    asked = store.read_plan()["asked"]
    with atomic_folder(store.models / "living") as living, store.claim(JOB):
        store.settle(asked, dict)
        assert living.exists()
        assert (store.jobs / f"{JOB.key}.lock").exists(), "this process holds it"
        assert not [path for path in left if path.exists() and path.name != f"{JOB.key}.lock"]
    store.settle(asked, dict)
    assert not [path for path in left if path.exists()]
    assert all(path.read_text() == "mine" for path in mine)


def test_the_second_of_two_that_begin_at_once_with_other_settings_is_refused(tmp_path):
    first, second = Store(tmp_path / "run"), Store(tmp_path / "run")
    plans = [{"asked": {"levels": [level]}, "jobs": []} for level in (5, 10)]

    def meanwhile():
        first.settle(plans[0]["asked"], lambda: plans[0])
        return plans[1]

    with pytest.raises(InputError, match=r"levels was \[5\], now \[10\]"):
        second.settle(plans[1]["asked"], meanwhile)
    assert first.read_plan() == plans[0]
    first.check_unchanged(plans[0])
    second.write_plan(plans[1])
    with pytest.raises(StoreError, match=r"another process has changed the plan meanwhile.*All results are kept"):
        first.check_unchanged(plans[0])


def test_a_copy_without_its_folder_of_jobs_goes_on(store):
    store.jobs.rmdir()
    store.settle(store.read_plan()["asked"], dict)
    with store.claim(JOB) as mine:
        assert mine
