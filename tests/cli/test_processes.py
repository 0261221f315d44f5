"""The command as the shell runs it: signals, pipes and terminals."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from cli.conftest import COLUMNS, QUICK
from consilience.comparison import reopen

PROGRAM = [sys.executable, "-m", "consilience"]


def test_log_lines_go_to_standard_error_and_the_table_to_standard_output(table, tmp_path):
    words = ["compare", str(table), *COLUMNS, "--methods", "late", *QUICK, "--out", str(tmp_path / "run")]
    done = subprocess.run([*PROGRAM, *words, "--format", "markdown"], capture_output=True, text=True, check=True)
    assert done.stdout == reopen(tmp_path / "run").table("markdown")
    lines = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == ["1/2 jobs", "2/2 jobs"]
    assert lines[0].endswith(": late on machines, seed 0")


def test_a_terminal_gets_a_bar(table, tmp_path):
    words = ["compare", str(table), *COLUMNS, "--methods", "late", *QUICK, "--out", str(tmp_path / "run")]
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def listen():
        try:
            while part := os.read(ours, 1024):
                shown.append(part)
        except OSError:  # the other end is closed
            pass

    listener = threading.Thread(target=listen)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=theirs, env=environment) as running:
        os.close(theirs)
        listener.start()
        printed = running.stdout.read().decode()
    listener.join()
    os.close(ours)
    on_terminal = b"".join(shown).decode()
    assert running.returncode == 0
    assert "2/2 jobs" in on_terminal
    assert "\x1b[2K" in on_terminal, "the bar is drawn over"
    assert "seed 0\n" not in on_terminal, "there are no log lines beside it"
    assert "jobs" not in printed
    assert "late · reference" in printed


def test_a_reader_that_goes_away_is_no_error():
    with subprocess.Popen([*PROGRAM, "methods", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")


def soon_nobody_of(group: int) -> bool:
    """Whether all processes of a group end within ten seconds."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_and_the_same_command_again(table, tmp_path, jobs):
    protocol = ["--methods", "late", "concat", "--levels", "5", "--seeds", "4", "--epochs", "10", "--jobs", str(jobs)]
    words = [*PROGRAM, "compare", str(table), *COLUMNS, *protocol, "--out", str(tmp_path / "run")]
    # As a terminal does it, the signal goes to the whole group of processes.
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as running:
        first = running.stderr.readline().decode()
        for pause in (0, 0.05, 0.05, 0.05):  # pressed again and again, while processes are being ended
            time.sleep(pause)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGINT)
        printed, said = (part.decode() for part in running.communicate(timeout=120))
    assert soon_nobody_of(running.pid)
    assert first.startswith("1/8 jobs")
    assert running.returncode == 130
    assert printed == ""
    assert said.splitlines()[-1] == (
        "consilience: stopped. Finished work is kept: the same command continues from there"
    )
    assert "Traceback" not in said
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "jobs").glob("*.npz")}
    assert 1 <= len(kept) < 8

    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr.startswith(f"{len(kept) + 1}/8 jobs")
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "jobs").glob("*.npz")}
    assert len(now) == 8
    assert kept.items() <= now.items(), "a finished job was done again"
