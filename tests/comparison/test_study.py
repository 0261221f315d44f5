"""What all studies share: what is open is done, many jobs at once where there is a GPU, and told with the command."""

from dataclasses import dataclass, field

import pytest
import torch

from consilience.comparison.experiments.study import Study, Workings, measure_at_once
from consilience.comparison.plan import Job
from consilience.comparison.store import Result, Store
from consilience.report.document import Account


@dataclass(frozen=True)
class Squares:
    numbers: tuple[int, ...]
    experiment: str = "squares"

    def cells(self):
        return [Job("numbers", f"{number}", 0, "", f"square-{number}") for number in self.numbers]

    def asked(self):
        return {"experiment": self.experiment, "numbers": list(self.numbers)}


@dataclass(frozen=True, kw_only=True)
class SquaresStudy(Study):
    """Keeps what it was asked to measure, one by one and at once."""

    alone: list[str] = field(default_factory=list)
    together: list[list[str]] = field(default_factory=list)

    def protocol(self, quick):
        return Squares((2, 3) if quick else (2, 3, 4, 5))

    def workings(self):
        def square(job):
            return Result({"square": int(job.method) ** 2})

        def measure(job, protocol, store):
            self.alone.append(job.method)
            return square(job)

        def measure_even(cells):
            self.together.append([job.method for job in cells])
            return [square(job) for job in cells]

        def measure_on_gpu(cells, protocol, store):
            measure_at_once([job for job in cells if int(job.method) % 2 == 0], measure_even, store)

        def tell(study, protocol, results):
            told = [f"{job.method}² = {results[job.key].about['square']}" for job in protocol.cells()]
            return Account(study.title, (*told, *study.notes), (), paper=study.paper)

        return Workings(measure, tell, measure_on_gpu)


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return SquaresStudy(name="squares", title="How large?", paper="Somebody", notes=("Exact.",))


def test_a_study_is_measured_told_and_gone_on_with(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = study.run(quick=True, verbose=0, command="consilience reproduce squares")
    assert done.folder.as_posix() == "runs/squares-quick"
    assert done.account.answer == ("2² = 4", "3² = 9", "Exact.")
    assert (done.account.title, done.account.paper) == ("How large?", "Somebody")
    assert done.account.command == Store(done.folder).read_plan()["command"] == "consilience reproduce squares"
    assert "How large?" in done.page.read_text(encoding="utf-8")
    assert done.account.sections[-1].name == "made"
    assert f"torch {torch.__version__.split('+')[0]}" in done.account.sections[-1].words[-1]
    assert study.alone == ["2", "3"]
    Store(done.folder).discard(Squares((3,)).cells()[0])
    assert study.run(quick=True, verbose=0).account.answer == done.account.answer
    assert (study.alone, study.together) == (["2", "3", "3"], [])


def test_on_a_gpu_what_is_open_is_done_at_once_and_the_rest_one_by_one(study, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    done = study.run(out=tmp_path, verbose=0)
    assert done.account.answer[:4] == ("2² = 4", "3² = 9", "4² = 16", "5² = 25")
    assert (study.together, study.alone) == ([["2", "4"]], ["3", "5"])
    Store(tmp_path).discard(Squares((4,)).cells()[0])
    study.run(out=tmp_path, verbose=0)
    study.run(out=tmp_path, verbose=0)  # nothing is open
    assert study.together == [["2", "4"], ["4"]]
