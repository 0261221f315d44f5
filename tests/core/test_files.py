"""Files and folders appear whole or not at all."""

import contextlib
import errno
import io
import os
import resource
import signal
import stat
import subprocess
import sys
from functools import partial

import numpy as np
import polars as pl
import pytest
import torch

from consilience.core import files
from consilience.core.errors import ConsilienceError, InputError, TrainingError, WriteError
from consilience.core.files import (
    atomic_file,
    atomic_folder,
    full_disk,
    remove_leftovers,
    temporary_folder,
    write_atomically,
)


@pytest.mark.parametrize("content", [b"two\nlines", "two\nlines", lambda file: file.write(b"two\nlines")])
def test_bytes_text_and_functions(tmp_path, content):
    path = tmp_path / "new" / "file.txt"
    assert write_atomically(path, content) == path
    assert path.read_bytes() == b"two\nlines"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_atomically(tmp_path / "file.txt", "old")

    def fail(file):
        file.write(b"half of")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
def test_modes_are_kept(tmp_path):
    path = write_atomically(tmp_path / "file.txt", "old")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o640)
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_two_writers_at_once_do_not_meet(tmp_path):
    path = tmp_path / "file.txt"
    with atomic_file(path) as first, atomic_file(path) as second:
        first.write(b"first")
        second.write(b"second")
        assert not path.exists()
    assert path.read_text() == "first"  # which ended last
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with atomic_folder(path) as temporary:
            (temporary / name).write_text(name)
        assert [entry.name for entry in path.iterdir()] == [name]
    with pytest.raises(WriteError, match="folder: No such file"), atomic_folder(path) as temporary:
        (temporary / "no such folder" / "third").write_text("third")
    assert [entry.name for entry in path.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_linked_folder_is_replaced_behind_its_link(tmp_path):
    real, link = tmp_path / "disk" / "real", tmp_path / "link"
    real.mkdir(parents=True)
    link.symlink_to(real)
    for name in ("first", "second"):
        with atomic_folder(link) as temporary:
            (temporary / name).write_text(name)
        assert link.is_symlink()
        assert [entry.name for entry in real.iterdir()] == [name]
    assert sorted(tmp_path.rglob("*")) == [real.parent, real, real / "second", link]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file modes")
@pytest.mark.parametrize("mode", [0o750, 0o2775, 0o555])
def test_the_mode_of_a_folder_is_kept(tmp_path, mode):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    path.chmod(mode)
    with atomic_folder(path) as temporary:
        (temporary / "new").write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert sorted(tmp_path.rglob("*")) == [path, path / "new"]
    path.chmod(0o700)


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    path = write_atomically(tmp_path / "file.txt", "old")
    with pytest.raises(InputError, match=r"file\.txt is a file"), atomic_folder(path):
        pytest.fail("nothing is to be written")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_while_folders_are_swapped_brings_the_old_one_back(tmp_path, monkeypatch, error):
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    path, replace = tmp_path / "folder", os.replace
    path.mkdir()
    (path / "old").write_text("old")

    def fail_for_the_new_folder(source, target):
        if str(source).endswith(".part"):
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_for_the_new_folder)
    with pytest.raises(error), atomic_folder(path) as temporary:
        (temporary / "new").write_text("new")
    assert sorted(tmp_path.rglob("*")) == [path, path / "old"]


# Every call that changes the disk; a write of a file is counted by the file itself.
CALLS = ("open", "mkdir", "dup", "fsync", "replace", "chmod", "unlink", "rmdir", "write")


class Fault:
    """Fails, or kills the process, at the n-th call that changes the disk."""

    def __init__(self, monkeypatch, n, kill, exchange=True):
        self.left, self.kill = n, kill
        for name in CALLS[:-1]:
            monkeypatch.setattr(os, name, partial(self.count, getattr(os, name)))
        monkeypatch.setattr(os, "fdopen", lambda descriptor, mode: io.BufferedWriter(Raw(self, descriptor, "w"), 16))
        before = files._exchange
        monkeypatch.setattr(files, "_exchange", lambda *names: exchange and self.count(before, *names))

    def count(self, call, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*arguments, **options)


class Raw(io.FileIO):
    def __init__(self, fault, *arguments):
        self.fault = fault
        super().__init__(*arguments)

    def write(self, data):
        return self.fault.count(super().write, data)


def save_file(path, letter):
    write_atomically(path, lambda file: [file.write(letter.encode() * 20) for _ in range(4)])


def save_folder(path, letter):
    with atomic_folder(path) as folder:
        for name in ("one", "two"):
            (folder / name).write_text(letter * 40)


def content(path):
    """All letters of a file or of a folder's two files; a part of either would be shorter."""
    if path.is_file():
        return path.read_text()
    return "".join((path / name).read_text() for name in ("one", "two"))


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("save", [save_file, save_folder])
def test_a_call_that_fails_leaves_the_old_or_the_new_one_whole_and_nothing_else(tmp_path, save, exchange):
    path = tmp_path / "target"
    for n in range(1, 60):
        save(path, "a")
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, n, kill=False, exchange=exchange)
            with contextlib.suppress(WriteError):
                save(path, "b")
        assert content(path) in ("a" * 80, "b" * 80), f"call {n}"
        if fault.left > 0:  # it was never reached
            break
        save(path, "c")
        assert list(tmp_path.iterdir()) == [path], f"call {n}"
    assert 5 < n < 59
    assert content(path) == "b" * 80


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("save", [save_file, save_folder])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_one_whole(tmp_path, monkeypatch, save, exchange):
    path = tmp_path / "target"
    for n in range(1, 60):
        save(path, "a")
        child = os.fork()
        if child == 0:
            Fault(monkeypatch, n, kill=True, exchange=exchange)
            save(path, "b")
            os._exit(0)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
        if exchange:  # never is there nothing under the name
            assert content(path) in ("a" * 80, "b" * 80), f"call {n}"
        remove_leftovers(tmp_path, path.name)  # as one does who finds nothing there
        assert content(path) in ("a" * 80, "b" * 80), f"call {n}"
        save(path, "c")
        assert list(tmp_path.iterdir()) == [path], f"the next writer removes the rest of call {n}"
        assert content(path) == "c" * 80
        if not killed:
            break
    assert 5 < n < 59


def test_what_is_being_written_is_no_leftover(tmp_path):
    path = tmp_path / "file.txt"
    with atomic_file(path) as file, temporary_folder(path) as folder:
        file.write(b"first")
        subprocess.run(
            [sys.executable, "-c", f"from consilience.core.files import *; write_atomically({str(path)!r}, 'second')"],
            check=True,
        )
        remove_leftovers(tmp_path)
        assert folder.is_dir()
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_only_our_own_leftovers_of_this_name_are_removed(tmp_path):
    kept = [".file.txt.part", ".file.txt.12.xyz.part", ".other.12.0123abcd.part", "file.txt.12.0123abcd.part"]
    for name in (*kept, ".file.txt.12.0123abcd.part"):
        (tmp_path / name).write_text("")
    (tmp_path / ".file.txt.13.0123abcd.part").mkdir()
    (tmp_path / ".file.txt.13.0123abcd.part" / "weights").write_text("")
    (tmp_path / ".file.txt.14.0123abcd.part").symlink_to(tmp_path / kept[0])
    write_atomically(tmp_path / "file.txt", "new")
    link = ".file.txt.14.0123abcd.part"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "file.txt", link])


WRITERS = {
    "numpy.save": lambda file: np.save(file, np.zeros(100_000)),
    "numpy.savez": lambda file: np.savez(file, a=np.zeros(100_000)),
    "torch.save": lambda file: torch.save(torch.zeros(100_000), file),
    "csv": pl.DataFrame({"a": np.zeros(100_000)}).write_csv,
    "parquet": pl.DataFrame({"a": np.random.default_rng(0).normal(size=100_000)}).write_parquet,
}


@pytest.fixture
def small_files():
    """No file may grow over 64 kB, as on a full disk: the error is EFBIG."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_error_whatever_the_library_raises(tmp_path, small_files, name):
    path = write_atomically(tmp_path / "file", "old")
    with pytest.raises(WriteError, match=r"cannot write .*file: File too large\. What was there") as raised:
        write_atomically(path, WRITERS[name])
    assert full_disk(raised.value) == errno.EFBIG
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_that_the_content_hides_is_raised_all_the_same(tmp_path, small_files):
    def hide(file):
        with contextlib.suppress(OSError):
            for _ in range(100):
                file.write(bytes(2**16))

    with pytest.raises(WriteError, match="File too large"):
        write_atomically(tmp_path / "file", hide)
    assert not list(tmp_path.iterdir())


def test_a_small_disk_that_is_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk]).returncode:
        pytest.skip("only the superuser may mount a small disk")
    try:
        path = write_atomically(disk / "file", "old")
        with pytest.raises(WriteError, match="No space left on device"):
            write_atomically(path, bytes(2**20))
        with pytest.raises(WriteError, match="model: No space left on device"), atomic_folder(disk / "model") as folder:
            (folder / "weights").write_bytes(bytes(2**20))
        assert path.read_text() == "old"
        assert list(disk.iterdir()) == [path]
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(WriteError, match="Read-only file system"):
            write_atomically(path, "new")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_devices_and_links_stay(tmp_path):
    full, real = tmp_path / "full.csv", tmp_path / "disk" / "real.csv"
    full.symlink_to("/dev/full")
    with pytest.raises(WriteError, match=r"full\.csv: No space left on device"):
        write_atomically(full, "text")
    assert os.readlink(full) == "/dev/full"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    link = tmp_path / "link.csv"
    link.symlink_to(real)
    for text in ("first", "second"):
        write_atomically(link, text)
        assert (link.is_symlink(), real.read_text()) == (True, text)


@pytest.mark.parametrize("name", ["ä" * 127, "\udcff" * 3, "a\nb", "a" * 255])
def test_any_name_of_a_file_can_be_written(tmp_path, name):
    for text in ("first", "second"):
        assert write_atomically(tmp_path / name, text).read_text() == text
    with atomic_folder(tmp_path / "sub" / name) as folder:
        (folder / "file").write_text("")
    assert [path.name for path in tmp_path.iterdir() if path.name != "sub"] == [name]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="this is no path of a file"):
        write_atomically(tmp_path / name, "text")


def test_a_full_disk_is_recognised_behind_other_errors():
    error = TrainingError("failed")
    error.__cause__ = OSError(errno.EDQUOT, "quota")
    assert full_disk(error) == errno.EDQUOT
    assert full_disk(OSError(errno.ENOENT, "gone")) is None
    assert issubclass(WriteError, ConsilienceError)
