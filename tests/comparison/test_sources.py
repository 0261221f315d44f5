"""What sets are called in tables: short, text, and never alike."""

import os
from pathlib import Path

import pytest

from consilience.comparison.plan import Plan
from consilience.comparison.sources import Source, tell_apart
from consilience.core.errors import InputError


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("digits", "digits"),
        ("data/sensors.csv", "sensors"),
        ("/abs/sensors.csv.gz", "sensors"),
        ("/abs/.sens", ".sens"),
        ("/abs/.sens/", ".sens"),
        (".sens.csv", ".sens"),
        ("..sens", "..sens"),
        ("/abs/folder/..", "abs"),
        ("/abs/folder/.", "folder"),
        ("/", "/"),
        ("/abs/caf\udce9.csv", "caf\\udce9"),
    ],
)
def test_a_file_is_called_by_its_name_alone(name, label):
    assert Source.of(name).label == label


def test_the_current_folder_is_called_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert Source.of(".").label == "here"
    assert Source.of("..").label == tmp_path.name


def labels(*names):
    return [source.label for source in tell_apart([Source.of(name) for name in names])]


def test_files_with_the_same_name_are_told_apart():
    assert labels("/a/x.csv", "/b/x.csv", "/b/y.csv") == ["a/x.csv", "b/x.csv", "y"]
    assert labels("/a/x.csv", "/a/x.parquet") == ["x.csv", "x.parquet"]
    assert labels("/a/.sens", "/b/.sens") == ["a/.sens", "b/.sens"]
    assert labels("/a/1/x", "/b/1/x", "/x") == ["a/1/x", "b/1/x", "/x"]
    assert labels("digits", "/a/digits.csv") == ["digits", "digits.csv"]
    assert labels("digits", "/a/digits") == ["digits", "a/digits"]


def test_the_same_file_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"two data sets are called alike \(x, x\)"):
        Plan((Source.of("x.csv"), Source.of(str(Path(os.getcwd()) / "x.csv"))))
