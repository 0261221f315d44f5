"""Files and folders appear whole or not at all."""

import os
import stat

import pytest

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
