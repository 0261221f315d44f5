"""Run folders that are shared, full, read-only or only partly there."""

import contextlib
import os
import shutil
import subprocess

import pytest

from cli.conftest import COLUMNS, QUICK, machines, run
from consilience.cli import main
from consilience.comparison import reopen

__all__ = ["run"]  # a fixture
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
    assert main(["compare", str(table), *COMPARE, "--out", str(folder)]) == 0
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
def test_a_disk_that_cannot_be_written(run, table, calm, disk, name, why):
    shutil.copytree(calm, disk / "done")
    fill(disk / "ballast")
    said = "No space left on device"
    if why == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        said = "read-only" if name in ("train", "predict") else "Read-only file system"
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    done = run(*commands(table, calm, disk)[name])
    assert (done.code, done.out) == (2, "")
    lines = [line for line in done.err.splitlines() if "epoch" not in line]
    assert len(lines) == 1
    assert said in lines[0]
    now = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    assert before.items() <= now.items()
    assert not [path for path in now if path.suffix in (".part", ".old")]
    if why == "full":
        (disk / "ballast").unlink()
        assert run(*commands(table, calm, disk)[name]).code == 0


def test_a_folder_that_was_copied_only_in_part(run, table, calm, tmp_path):
    """As a copy that was stopped: some files are missing, one is cut off."""
    copy = tmp_path / "run"
    shutil.copytree(calm, copy)
    results = sorted((copy / "jobs").glob("*.npz"))
    results[0].unlink()
    results[1].write_bytes(results[1].read_bytes()[:500])
    results[2].write_bytes(b"")
    shutil.rmtree(copy / "best")
    (copy / "report.html").write_bytes(b"")
    assert run("compare", table, *COMPARE, "--out", copy).code == 0
    assert values(copy).equals(values(calm))
    weights = "best/weights.safetensors"
    assert (copy / weights).read_bytes() == (calm / weights).read_bytes()
