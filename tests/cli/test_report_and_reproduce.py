"""`consilience report` and `consilience reproduce`."""

import json
import re
import shutil
from itertools import pairwise

import pytest

from consilience.comparison import reopen
from consilience.comparison.store import Store
from consilience.reproduction.papers import list_papers

PROTOCOL = """title: Digits in four quadrants
parts:
  digits:
    data: digits
    seeds: 20
    quick: {methods: [late], corruption: [missing], levels: [5], seeds: 1, training: {epochs: 1}}
published: {digits: {missing 5: {late: 0.5}}}
notes: [There is no published table.]
"""
SCRIPT = """
from consilience.reproduction.study import Reproduction, run_folder
from consilience.report.document import Document, Section, TextTable, write_document

TITLE, PAPER = "A study", ""


def run(*, quick=False, out=None, jobs=1, cluster=None, verbose=1, command="", name="study"):
    table = TextTable("Sizes", ("of", "value"), (("quick", str(quick)), ("jobs", str(jobs)), ("name", name)))
    document = Document(TITLE, ("It works.",), (Section("sizes", "Sizes", tables=(table,)),), command)
    folder = run_folder("study", quick, out)
    folder.mkdir(parents=True)
    return Reproduction(folder, document, write_document(document, folder))
"""


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


def test_the_papers_are_listed(run):
    for words in (("reproduce", "--list"), ("reproduce",)):
        shown = run(*words).out.splitlines()
        assert [line.split()[0] for line in shown if not line.startswith(" ")] == list(list_papers())
    assert any(line.startswith("digits-robustness ") and "broken quadrant" in line for line in shown)
    needs = next(after.strip() for line, after in pairwise(shown) if line.startswith("progressive-table7 "))
    time = r"(\d+ processor minutes?|more than \d+ processor minutes?|time not measured).*"
    assert re.fullmatch(rf"data: finance( \(files missing\))?; 240 trainings, 24 with --quick; {time}", needs)


def test_a_protocol_in_quick_form(run, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(PROTOCOL, encoding="utf-8")
    done = run("reproduce", path, "--quick", "--out", tmp_path / "run")
    assert done.code == 0
    assert "digits: accuracy, %" in done.out
    assert "published" in done.out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in done.out
    assert "There is no published table." in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    command = f"consilience reproduce {path} --quick --out {tmp_path / 'run'}"
    assert json.loads((tmp_path / "run" / "digits" / "plan.json").read_text())["command"] == command
    plain = run("reproduce", path, "--quick", "--out", tmp_path / "run", "--format", "markdown")
    assert plain.out.startswith("**digits: accuracy, %**")


def test_an_error_in_a_protocol_names_the_line(run, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(PROTOCOL.replace("    seeds: 20", "    sedes: 20"), encoding="utf-8")
    done = run("reproduce", path, "--quick")
    assert done.code == 2
    assert f"{path}, line 5: unknown key 'sedes': did you mean 'seeds'?" in done.err


def test_seeds_side_by_side_are_for_comparisons(run, tmp_path, monkeypatch):
    (tmp_path / "own.yaml").write_text(PROTOCOL, encoding="utf-8")
    (tmp_path / "study.py").write_text(SCRIPT, encoding="utf-8")
    calls = []
    monkeypatch.setattr(
        "consilience.reproduction.papers.run_protocol", lambda protocol, **options: calls.append(options)
    )
    monkeypatch.setattr("consilience.cli.reproduce.print_document", lambda done, format: None)
    assert run("reproduce", tmp_path / "own.yaml", "--quick", "--side-by-side", "--jobs", "3").code == 0
    assert (calls[0]["side_by_side"], calls[0]["jobs"], calls[0]["quick"]) == (True, 3, True)
    done = run("reproduce", tmp_path / "study.py", "--quick", "--side-by-side", "--out", tmp_path)
    assert done.code == 2
    assert "--side-by-side is for comparisons of methods: study" in done.err


def test_where_the_data_lie_may_be_said(run, tmp_path, monkeypatch):
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    done = run("reproduce", "tmc-handwritten", "--quick", "--data-dir", tmp_path, "--out", tmp_path / "run")
    assert done.code == 2
    assert f"{tmp_path}" in done.err


def test_a_name_that_does_not_exist(run):
    done = run("reproduce", "digit-robustness")
    assert done.code == 2
    assert "unknown protocol 'digit-robustness': did you mean 'digits-robustness'?" in done.err


def test_a_script(run, tmp_path):
    (tmp_path / "study.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "named.yaml").write_text("title: Named\nscript: study.py\n", encoding="utf-8")
    done = run("reproduce", tmp_path / "study.py", "--quick", "--out", tmp_path / "run")
    assert done.code == 0
    assert "It works." in done.out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in done.out
    named = run(
        "reproduce", tmp_path / "named.yaml", "--jobs", "2", "--out", tmp_path / "other", "--format", "markdown"
    )
    assert [line.split()[1:4:2] for line in named.out.splitlines()[4:]] == [
        ["quick", "False"],
        ["jobs", "2"],
        ["name", "named"],
    ]


def test_a_report_of_a_study_is_not_drawn_again(run, tmp_path):
    plan = {"asked": {"experiment": "study"}, "jobs": [], "command": "consilience reproduce study.py"}
    Store(tmp_path).write_plan(plan)
    done = run("report", tmp_path)
    assert done.code == 2
    assert "holds the experiment 'study', no comparison of methods" in done.err
