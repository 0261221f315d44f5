"""Files and folders appear whole or not at all."""

import os
import stat

import pytest

from consilience.core.errors import InputError
from consilience.core.files import atomic_file, atomic_folder, write_atomically


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
        first.write_text("first")
        second.write_text("second")
        assert not path.exists()
    assert path.read_text() == "first"  # which ended last
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("first", "second"):
        with atomic_folder(path) as temporary:
            (temporary / name).write_text(name)
        assert [entry.name for entry in path.iterdir()] == [name]
    with pytest.raises(FileNotFoundError), atomic_folder(path) as temporary:
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
