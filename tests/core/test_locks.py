"""A lock has one holder, ends with the process, and leaves no file."""

import multiprocessing
import os
import signal
import threading

import pytest

from consilience.core.locks import locked


def test_the_file_vanishes(tmp_path):
    with locked(tmp_path / "a.lock") as mine:
        assert mine
        assert (tmp_path / "a.lock").exists()
        with locked(tmp_path / "a.lock", wait=False) as again:
            assert not again
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="inside"), locked(tmp_path / "a.lock"):
        raise RuntimeError("inside")
    assert not list(tmp_path.iterdir())


def test_a_link_is_refused(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "a.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"), locked(tmp_path / "a.lock"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_there_is_never_more_than_one_holder(tmp_path):
    """Also where one removes the file that another has opened and waits for."""
    inside, most, done = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(200):
            with locked(tmp_path / "a.lock"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1
                    done += 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 1200)
    assert not list(tmp_path.iterdir())


def _hold(path, ready):
    with locked(path) as mine:
        ready.send(mine)
        signal.pause()


def test_a_killed_holder_lets_go_and_the_next_one_removes_its_file(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    ready, said = spawn.Pipe(duplex=False)
    other = spawn.Process(target=_hold, args=(tmp_path / "a.lock", said))
    other.start()
    assert ready.recv() is True
    with locked(tmp_path / "a.lock", wait=False) as mine:
        assert not mine
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert (tmp_path / "a.lock").exists()
    with locked(tmp_path / "a.lock") as mine:
        assert mine
    assert not list(tmp_path.iterdir())
