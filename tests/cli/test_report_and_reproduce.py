"""`consilience report` and `consilience reproduce`."""

import json
import shutil
import sys
from dataclasses import replace

import pytest

from consilience.comparison import reopen
from consilience.comparison.experiments import Part, experiment, experiments, study
from consilience.comparison.experiments.progressive_synthetic import cells
from consilience.comparison.experiments.progressive_synthetic.nets import MAIN


def test_a_report_is_drawn_again(run, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "report.html").unlink()
    shutil.rmtree(folder / "figures")
    (folder / "report.stamp").write_text("of another time")
    done = run("report", folder)
    assert done.code == 0
    assert "late · reference" in done.out
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert list((folder / "figures").glob("*.png"))


@pytest.mark.parametrize("format", ["markdown", "latex"])
def test_the_table_in_another_format(run, finished, format):
    assert run("report", finished, "--format", format).out == reopen(finished).table(format)


def test_a_folder_without_a_comparison(run, tmp_path):
    done = run("report", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"consilience: error: {tmp_path} holds no comparison: there is no readable plan.json\n"


def test_the_experiments_are_listed(run):
    for words in (("reproduce", "--list"), ("reproduce",)):
        shown = run(*words).out.splitlines()
        assert [line.split()[0] for line in shown] == list(experiments())


def test_an_experiment_in_quick_form(run, tmp_path, monkeypatch):
    small = {"methods": ["late"], "corruption": ["missing"], "levels": (5,), "seeds": 1, "training": {"epochs": 1}}
    known = experiments()["digits-robustness"]
    published = {("digits", "late", "missing", 5.0): 0.5}
    reduced = replace(known, parts={"digits": Part(known.parts["digits"].full, small)}, published=published)
    monkeypatch.setitem(experiment._EXPERIMENTS, "digits-robustness", reduced)
    done = run("reproduce", "digits-robustness", "--quick", "--out", tmp_path / "run")
    assert done.code == 0
    assert "digits: accuracy, %" in done.out
    assert "published" in done.out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in done.out
    assert known.notes[0] in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    command = f"consilience reproduce digits-robustness --quick --out {tmp_path / 'run'}"
    assert json.loads((tmp_path / "run" / "digits" / "plan.json").read_text())["command"] == command
    plain = run("reproduce", "digits-robustness", "--quick", "--out", tmp_path / "run", "--format", "markdown")
    assert plain.out.startswith("**digits: accuracy, %**")


def test_seeds_side_by_side_are_for_comparisons(run, tmp_path, monkeypatch):
    asked = []
    known = experiments()["digits-robustness"]
    monkeypatch.setattr(type(known), "run", lambda self, **how: asked.append(how) or sys.exit(0))
    run("reproduce", "digits-robustness", "--quick", "--side-by-side")  # ends where it would begin
    assert asked[0]["side_by_side"] is True
    done = run("reproduce", "progressive-synthetic", "--quick", "--side-by-side", "--out", tmp_path)
    assert done.code == 2
    assert "--side-by-side is for comparisons of methods: progressive-synthetic" in done.err


def test_where_the_data_lie_may_be_said(run, tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    done = run("reproduce", "tmc-handwritten", "--quick", "--data-dir", tmp_path, "--out", tmp_path / "run")
    assert done.code == 2
    assert f"{tmp_path}" in done.err


def test_an_experiment_that_does_not_exist(run):
    done = run("reproduce", "digit-robustness")
    assert done.code == 2
    assert "unknown experiment 'digit-robustness': did you mean 'digits-robustness'?" in done.err


def test_an_experiment_that_is_no_comparison(run, tmp_path, monkeypatch):
    grid = {"sizes": (20,), "etas": (0.0, 1.0), "sigmas": (0.0, 1.0), "trials": 2, "test": 20}
    monkeypatch.setattr(cells, "QUICK", cells.Protocol(**grid, nets=tuple(MAIN), epochs=1))
    monkeypatch.setattr(study, "write_account", lambda account, folder: folder / "report.html")  # drawing takes long
    words = ("reproduce", "progressive-synthetic", "--quick", "--out", tmp_path / "run")
    done = run(*words)
    assert done.code == 0
    assert "control: wide net" in done.out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in done.out
    assert run(*words, "--format", "markdown").out.startswith("**Trials won and mean gain")
    refused = run("report", tmp_path / "run")
    assert refused.code == 2
    assert "holds the experiment 'progressive-synthetic', no comparison of methods" in refused.err
