"""A study: open cells are measured, alone or in groups, by any number of processes, and the page is written."""

import pytest
import torch

from consilience.comparison.store import Result, Store
from consilience.core.errors import InputError, TrainingError
from consilience.report.document import Document
from consilience.reproduction.study import Cell, load_script, run_study

SCRIPT = """
from functools import cache
import os
from consilience.comparison.store import Result

CALLS = []

def measure(cell, shared):
    CALLS.append(cell["number"])
    return Result({"power": cell["number"] ** shared["exponent"], "process": os.getpid(), "calls": len(CALLS)})
"""


def describe(results):
    return Document("How large?", tuple(str(result.about["power"]) for result in results), ())


def cells(*numbers):
    return [{"number": number} for number in numbers]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "powers-study.py"
    path.write_text(SCRIPT)
    return load_script(path)


def run(script, *numbers, exponent=2, **options):
    return run_study("powers", script.measure, cells(*numbers), {"exponent": exponent}, describe, verbose=0, **options)


def test_only_open_cells_are_measured(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(script, 2, 3, quick=True, command="python powers-study.py")
    assert done.folder.as_posix() == "runs/powers-quick"
    assert done.document.answer == ("4", "9")
    assert done.document.command == Store(done.folder).read_plan()["command"] == "python powers-study.py"
    assert "How large?" in done.page.read_text(encoding="utf-8")
    assert done.document.sections[-1].name == "made"
    assert f"torch {torch.__version__.split('+')[0]}" in done.document.sections[-1].words[-1]
    assert script.CALLS == [2, 3]
    store = Store(done.folder)
    store.discard(Cell(**store.read_plan()["jobs"][1]))
    assert run(script, 2, 3, quick=True).document.answer == ("4", "9")
    assert script.CALLS == [2, 3, 3]
    assert run(script, 2, 3, 4, quick=True).document.answer == ("4", "9", "16")  # more cells extend a run
    assert script.CALLS == [2, 3, 3, 4]


def test_other_shared_settings_are_refused(script, tmp_path):
    run(script, 2, out=tmp_path / "run")
    with pytest.raises(InputError, match="exponent was 2, now 3"):
        run(script, 2, exponent=3, out=tmp_path / "run")


def test_a_cell_that_fails_is_named(script, tmp_path):
    with pytest.raises(TrainingError, match="number 0: ZeroDivisionError"):
        run(script, 2, 0, exponent=-1, out=tmp_path / "run")


def test_processes_load_the_file_and_keep_what_it_holds(script, tmp_path):
    done = run(script, *range(8), jobs=2, out=tmp_path / "run")
    assert done.document.answer == tuple(str(number**2) for number in range(8))
    assert script.CALLS == []
    store = Store(tmp_path / "run")
    results = [store.read(Cell(**job)).about for job in store.read_plan()["jobs"]]
    processes = {result["process"] for result in results}
    # A file that was loaded for every cell would count one call each.
    assert sum(max(r["calls"] for r in results if r["process"] == process) for process in processes) == 8
    with pytest.raises(InputError, match="top level of a file"):
        run_study("powers", lambda cell, shared: Result({}), cells(1), {}, describe, jobs=2, out=tmp_path / "other")


def test_groups_are_measured_at_once_on_a_gpu(script, tmp_path, monkeypatch):
    groups = []

    def measure_group(group, shared):
        groups.append([cell["number"] for cell in group])
        return [script.measure(cell, shared) for cell in group]

    def grouped(*numbers):
        even = {"group_of": lambda cell: "even" if cell["number"] % 2 == 0 else None}
        return run(script, *numbers, measure_group=measure_group, **even, out=tmp_path / "run")

    grouped(2, 3)
    assert (groups, script.CALLS) == ([], [2, 3])  # no GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert grouped(2, 3, 4, 5, 6).document.answer == ("4", "9", "16", "25", "36")
    assert groups == [[4, 6]]
    assert script.CALLS == [2, 3, 4, 6, 5]


def test_a_script_is_loaded_once(tmp_path):
    path = tmp_path / "with-a-dash.py"
    path.write_text("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int' = 1\n")
    assert load_script(path) is load_script(str(path))
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('no')")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            load_script(broken)
