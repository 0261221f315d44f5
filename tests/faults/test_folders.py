"""Run folders that are shared, full, read-only or only partly there."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest

from cli.conftest import COLUMNS, QUICK, machines
from consilience.comparison import reopen

PROGRAM = [sys.executable, "-m", "consilience"]
COMPARE = (*COLUMNS, "--methods", "late", "concat", *QUICK)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "machines.csv"
    machines().write_csv(path)
    return path


@pytest.fixture(scope="module")
def calm(table, tmp_path_factory):
    """The folder of an undisturbed run."""
    folder = tmp_path_factory.mktemp("runs") / "calm"
    subprocess.run([*PROGRAM, "compare", table, *COMPARE, "--out", folder], check=True, capture_output=True)
    return folder


def values(folder):
    found = reopen(folder).findings.values
    return found.sort(found.columns)


@pytest.fixture
def disk(tmp_path):
    """A disk of eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder]).returncode:
        pytest.skip("only the superuser may mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(path):
    """Write a file until the disk is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def commands(table, calm, out):
    """Every command that writes, and where it writes."""
    return {
        "compare": ["compare", table, *COMPARE, "--out", out / "run"],
        "compare in processes": ["compare", table, *COMPARE, "--jobs", "2", "--out", out / "run"],
        "train": ["train", table, *COLUMNS, "--epochs", "1", "--out", out / "model"],
        "predict": ["predict", calm / "best", table, "--out", out / "new.csv"],
        "report": ["report", out / "done"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("why", ["full", "read-only"])
@pytest.mark.parametrize("name", ["compare", "compare in processes", "train", "predict", "report"])
def test_a_disk_that_cannot_be_written(table, calm, disk, name, why):
    shutil.copytree(calm, disk / "done")
    fill(disk / "ballast")
    said = "No space left on device"
    if why == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = "read-only" if name in ("train", "predict") else "Read-only file system"
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    done = subprocess.run([*PROGRAM, *commands(table, calm, disk)[name]], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if "epoch" not in line]
    assert len(lines) == 1
    assert said in lines[0]
    now = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    assert before.items() <= now.items()
    assert not [path for path in now if path.suffix in (".part", ".old")]
    if why == "full":
        (disk / "ballast").unlink()
        subprocess.run([*PROGRAM, *commands(table, calm, disk)[name]], check=True, capture_output=True)


@pytest.mark.slow
def test_two_commands_on_one_folder(table, calm, tmp_path):
    words = [*PROGRAM, "compare", table, *COMPARE, "--out", tmp_path / "run"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [running.communicate()[0] for running in both]
    assert [running.returncode for running in both] == [0, 0]
    assert printed[0] == printed[1]
    assert values(tmp_path / "run").equals(values(calm))
    assert not [path.name for path in (tmp_path / "run").rglob("*") if path.suffix in (".part", ".old")]


@pytest.mark.slow
def test_a_folder_that_was_copied_only_in_part(table, calm, tmp_path):
    """As a copy that was stopped: some files are missing, one is cut off."""
    run = tmp_path / "run"
    shutil.copytree(calm, run)
    results = sorted((run / "jobs").glob("*.npz"))
    results[0].unlink()
    results[1].write_bytes(results[1].read_bytes()[:500])
    results[2].write_bytes(b"")
    shutil.rmtree(run / "best")
    (run / "report.html").write_bytes(b"")
    subprocess.run([*PROGRAM, "compare", table, *COMPARE, "--out", run], check=True, capture_output=True)
    assert values(run).equals(values(calm))
    weights = "best/weights.safetensors"
    assert (run / weights).read_bytes() == (calm / weights).read_bytes()
