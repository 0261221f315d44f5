"""What is said of a protocol before it is run: its data, its size, and the stored time."""

import json
from pathlib import Path

import pytest

from consilience.reproduction import needs
from consilience.reproduction.papers import list_papers

PAPERS = Path(__file__).parents[2] / "papers"
PROTOCOL = """title: A protocol
parts:
  first: {data: digits, methods: [late, concat], seeds: 3, quick: {methods: [late], seeds: 1}}
  second: {data: mosi, methods: [late], seeds: 4, quick: false}
"""
SCRIPT = """
TITLE: str = "A script"
SETS = ("gaussians",)
raise RuntimeError("it is not executed")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "first.yaml").write_text(PROTOCOL)
    (tmp_path / "papers" / "second.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "papers"


def test_data_size_and_time_are_said(folder, tmp_path):
    (folder / needs.TIMINGS).write_text(
        json.dumps(
            {
                "first": {"quick": {"processor_seconds": 20.0, "jobs": 1}, "full": {"processor_seconds": 610.0}},
                "second": {"quick": {"more_than_seconds": 600, "jobs": 3}},
            }
        )
    )
    assert needs.describe_needs("first", str(tmp_path)) == (
        "data: digits, mosi (files missing); 10 trainings, 1 with --quick; 1 processor minute with --quick, 10 in full"
    )
    assert needs.describe_needs("second") == "data: gaussians; more than 10 processor minutes with --quick"


def test_without_a_stored_time_it_is_not_guessed(folder):
    assert needs.describe_needs("second") == "data: gaussians; time not measured"
    (folder / needs.TIMINGS).write_text('{"second": {"quick": {"processor_seconds": 90.0, "jobs": 3}}}')
    assert needs.describe_needs("second") == "data: gaussians; 3 jobs with --quick; 2 processor minutes with --quick"


def test_stored_times_are_of_papers_that_exist():
    stored, known = needs.read_timings(PAPERS), list_papers()
    assert set(stored) <= set(known)
    for sizes in stored.values():
        for measured in sizes.values():
            assert ("processor_seconds" in measured) != ("more_than_seconds" in measured)
            assert measured["machine"]


def test_every_script_names_its_data():
    for name in list_papers():
        said = needs.describe_needs(name)
        assert "data: " in said or name == "progressive-table10", said
