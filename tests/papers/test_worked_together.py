"""A study that several processes work on: its folder, its settings, and what is measured by whom."""

import json
import subprocess
import sys

import pytest

from consilience.core.errors import InputError
from paper_scripts import PAPERS

# A study of three jobs, each of which notes the process that measured it.
SCRIPT = """
import os, sys, time
from consilience.comparison.plan import Job
from consilience.comparison.store import Result
from consilience.report.document import Document
from consilience.reproduction.study import load_script

def jobs(settings):
    return [Job("tiny", str(number), number, "", f"key{number}") for number in range(settings["count"])]

def work(settings, store, until=float("inf")):
    for job in jobs(settings):
        with store.claim(job) as mine:
            if mine and not store.done(job) and time.monotonic() < until:
                time.sleep(settings["pause"])
                store.write(job, Result({"process": os.getpid()}))

def describe(settings, store, command):
    measured = [store.read(job).about["process"] for job in jobs(settings)]
    return Document("Tiny", (f"{len(measured)} jobs by {len(set(measured))} processes.",), (), command)

def keep(path, settings):
    path.write_text(str(settings["count"]))

settings = {"count": 3, "pause": 0.0, "other": 1}
shared = load_script(WHERE).SharedStudy("tiny", __file__, settings, settings, ("count", "pause"), work, describe, keep)
if __name__ == "__main__":
    shared.main("Tiny")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(SCRIPT.replace("WHERE", repr(str(PAPERS / "shared" / "worked_together.py"))))
    return path


def call(script, *arguments):
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_several_processes_share_the_jobs_and_the_page_is_written(script, tmp_path):
    out = str(tmp_path / "run")
    settings = {"count": 4, "pause": 0.5}
    call(script, "--settings", json.dumps(settings), "--out", out, "--jobs", "2")
    assert not (tmp_path / "run" / "report.html").exists()  # only measured
    assert len(list((tmp_path / "run" / "jobs").glob("*.npz"))) == 4
    printed = call(script, "--out", out)
    assert "3 jobs by" in printed
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.slow
def test_nothing_is_begun_after_the_time(script, tmp_path):
    call(script, "--settings", json.dumps({"pause": 1.0}), "--out", str(tmp_path / "run"), "--seconds", "0.5")
    assert len(list((tmp_path / "run" / "jobs").glob("*.npz"))) == 1


def test_a_folder_is_extended_but_not_by_other_settings(script, tmp_path, monkeypatch):
    from consilience.reproduction.study import load_script

    shared = load_script(script).shared
    shared.run(settings={"count": 1}, out=tmp_path / "run")
    done = shared.run(settings={"count": 2}, out=tmp_path / "run")
    assert done.document.answer == ("2 jobs by 1 processes.",)
    with pytest.raises(InputError, match="other was 1, now 2"):
        shared.run(settings={"other": 2}, out=tmp_path / "run")


def test_what_another_machine_needs_is_written(script, tmp_path):
    call(script, "--keep", str(tmp_path / "kept"))
    assert (tmp_path / "kept").read_text() == "3"
