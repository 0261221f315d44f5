"""The command as the shell runs it: signals, pipes and terminals."""

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time

import pytest

from cli.conftest import COLUMNS, QUICK
from consilience.comparison import reopen
from consilience.estimators import load

PROGRAM = [sys.executable, "-m", "consilience"]


def test_log_lines_go_to_standard_error_and_the_table_to_standard_output(table, tmp_path):
    words = ["compare", str(table), *COLUMNS, "--methods", "late", *QUICK, "--out", str(tmp_path / "run")]
    done = subprocess.run([*PROGRAM, *words, "--format", "markdown"], capture_output=True, text=True, check=True)
    assert done.stdout == reopen(tmp_path / "run").table("markdown")
    first, *lines = filter(None, done.stderr.splitlines())
    assert first.startswith("compare: 1 method (late) on machines, 2 seeds, ")
    assert [line.split(",")[0] for line in lines] == ["1/2 jobs", "2/2 jobs", "1/1 jobs"]
    assert lines[0].endswith(": late on machines, seed 0")
    assert lines[2].endswith(": late on machines, refitted on train and validation")


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
    assert "2/2" in on_terminal
    assert "training late on machines, seed 0" in on_terminal
    assert "\x1b[2K" in on_terminal, "the bar is drawn over"
    assert "seed 0\n" not in on_terminal, "there are no log lines beside it"
    assert "jobs" not in printed
    assert "late · reference" in printed


def test_a_reader_that_goes_away_is_no_error():
    with subprocess.Popen([*PROGRAM, "methods", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")


def line_with(words, read):
    """The first line that holds these words; a program that ends before it says them fails the test."""
    while line := read():
        if words in line:
            return line
    raise AssertionError(f"the program ended without {words!r}")


def soon_nobody_of(group: int) -> bool:
    """Whether all processes of a group end within ten seconds."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("words", [["--help"], ["compare", "--help"], ["methods"], ["--version"]])
def test_a_reader_that_never_read(words):
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*PROGRAM, *words], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_of_everything_that_goes_away():
    """As in `consilience … 2>&1 | head`."""
    ours, theirs = os.pipe()
    os.close(ours)
    assert subprocess.run([*PROGRAM, "methods"], stdout=theirs, stderr=theirs).returncode == 0
    assert subprocess.run([*PROGRAM, "nothing"], stdout=theirs, stderr=theirs).returncode == 2
    os.close(theirs)


FULL = "consilience: error: cannot write the output: No space left on device\n"


def test_an_output_that_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, "methods"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (2, FULL)
        assert subprocess.run([*PROGRAM, "nothing"], stdout=full, stderr=full).returncode == 2


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        (">&-", 2, "consilience: error: standard output is closed; redirect it to a file, or to /dev/null\n"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        (">&- 2>&- <&-", 2, ""),
    ],
)
def test_closed_streams(tmp_path, closed, code, said):
    words = shlex.join([*PROGRAM, "methods"])
    done = subprocess.run(["sh", "-c", f"{words} {closed}"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, said)


def test_an_output_that_lacks_characters(finished):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [*PROGRAM, "report", str(finished), "--format", "markdown"]
    done = subprocess.run(words, capture_output=True, env=environment, check=True)
    assert rb"\xb1" in done.stdout, "± is not in ASCII"


def running_jobs(parent: int) -> list[str]:
    with open(f"/proc/{parent}/task/{parent}/children") as file:
        return file.read().split()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["0.1", "0.7", "1.5", "a process starts", "2 s later"])
def test_a_signal_is_never_lost(table, tmp_path, number, moment):
    protocol = ["--methods", "late", "--seeds", "4", "--epochs", "3000", "--patience", "3000", "--jobs", "2"]
    words = [*PROGRAM, "compare", str(table), *COLUMNS, *protocol, "--out", str(tmp_path / "run")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as running:
        if moment in ("a process starts", "2 s later"):
            while not running_jobs(running.pid):
                time.sleep(0.01)
        time.sleep({"a process starts": 0.0, "2 s later": 2.0}[moment] if " " in moment else float(moment))
        began = time.monotonic()
        if number == signal.SIGINT:  # a terminal sends it to all processes
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        printed, said = (part.decode() for part in running.communicate(timeout=60))
    assert time.monotonic() - began < 4
    assert running.returncode == 128 + number
    assert printed == ""
    # Before it there may be what the comparison does.
    (last,) = [line for line in said.splitlines() if line and not line.startswith("compare: ")]
    assert last.startswith("consilience: stopped")
    assert soon_nobody_of(running.pid)


@pytest.mark.slow
def test_sigterm_keeps_the_best_weights_of_training(table, tmp_path):
    words = ["train", str(table), *COLUMNS, "--method", "late", "--epochs", "100000", "--patience", "100000"]
    words = [*PROGRAM, *words, "--verbose", "2", "--out", str(tmp_path / "model")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        line_with("epoch 2/", running.stderr.readline)
        running.terminate()
        printed, said = running.communicate(timeout=60)
    assert running.returncode == 143
    assert said.splitlines()[-1] == "consilience: stopped"
    assert f"model: {tmp_path / 'model'}" in printed
    load(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_and_the_same_command_again(run, caplog, table, tmp_path, jobs):
    protocol = ["--methods", "late", "concat", "--levels", "5", "--seeds", "4", "--epochs", "10", "--jobs", str(jobs)]
    words, pipe = ["compare", str(table), *COLUMNS, *protocol, "--out", str(tmp_path / "run")], subprocess.PIPE
    # As a terminal does it, the signal goes to the whole group of processes.
    with subprocess.Popen([*PROGRAM, *words], stderr=pipe, stdout=pipe, start_new_session=True) as running:
        first = line_with(b"jobs", running.stderr.readline).decode()
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

    done = run(*words)
    assert done.code == 0
    assert next(said for said in caplog.messages if "jobs" in said).startswith(f"{len(kept) + 1}/8 jobs")
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "jobs").glob("*.npz")}
    assert len([name for name in now if not name.startswith("refit-")]) == 8
    assert kept.items() <= now.items(), "a finished job was done again"
