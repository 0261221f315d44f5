"""What is compared where nobody says, what is said before, and the time that is left."""

import json
import logging
import os
import re

import pytest

from consilience import compare
from consilience.comparison.chosen_method import Choice
from consilience.comparison.plan import Job
from consilience.comparison.progress import Progress
from consilience.comparison.quick_default import (
    QUICK_METHODS,
    default_jobs,
    default_methods,
    default_seeds,
    seeds_at_once,
)
from consilience.comparison.significance import too_few_seeds
from consilience.comparison.time_left import TimeLeft, say_left
from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.methods import METHODS
from consilience.report.choice_words import say_certainty


def job(method, seed=0):
    return Job("toy", method, seed, "data", f"{method}-{seed}")


def test_the_default_is_a_few_methods_that_are_registered():
    methods = default_methods(thorough=False)
    assert 5 <= len(methods) <= len(QUICK_METHODS)
    assert set(methods) == set(QUICK_METHODS) & set(METHODS)
    assert {"auto", "late", "concat", "best-unimodal", "bayes-robust"} <= set(methods)
    assert default_methods(thorough=True) is None
    assert [default_seeds(*given) for given in ((False, False), (True, False), (False, True))] == [5, 10, 10]
    assert [default_seeds(False, False, [folds]) for folds in (None, 2, 5, 7)] == [5, 6, 5, 7]


def test_seeds_that_leave_folds_untested_are_refused(tmp_path):
    folds = load_data("gaussians", n=100, folds=5)
    for given, asked in (("gaussians", {"folds": 5}), (folds, {})):
        with pytest.raises(InputError, match=r"2 seeds would test only 2 of the 5 folds.*seeds=5 \(--seeds 5\).*once"):
            compare(given, ["late"], seeds=2, out=tmp_path / "run", **asked)
    with pytest.raises(InputError, match=r"7 seeds would test some of the 5 folds more often.*or 10 twice"):
        compare("gaussians", ["late"], seeds=7, folds=5, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_named_methods_and_seeds_win_and_the_plan_is_said_first(tmp_path, capsys, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "consilience")  # with a log that takes them, lines are not printed
    monkeypatch.setattr("consilience.comparison.quick_default.QUICK_METHODS", ("late", "concat", "no-such-method"))
    options = {"levels": (5,), "corruption": "gaussian", "training": {"epochs": 1}, "out": tmp_path / "run"}
    quick = compare("gaussians", seeds=2, **options)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "compare: 2 methods (late, concat) on gaussians, 2 seeds, tested clean and under gaussian"
    )
    assert "4 trainings" in said[0]
    assert "--thorough" in said[1]
    assert [line.split(" jobs")[0] for line in said[2:6]] == ["1/4", "2/4", "3/4", "4/4"]
    assert set(quick.findings.methods) == {"late", "concat"}
    asked = json.loads((quick.folder / "plan.json").read_text())["asked"]
    assert (asked["methods"], asked["seeds"]) == (["late", "concat"], 2)
    more = compare("gaussians", ["late", "early"], seeds=2, verbose=0, **options)
    assert set(more.findings.methods) == {"late", "early"}
    assert capsys.readouterr().err == ""


def test_the_quick_default_uses_the_cores_of_a_machine_without_a_gpu(monkeypatch):
    machine = {"cores": 2, "gib": 8.0, "gpu": False}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(machine["cores"])), raising=False)
    limit = "consilience.comparison.quick_default.memory_limit"  # of the machine or of a container
    monkeypatch.setattr(limit, lambda: int(machine["gib"] * 2**30))
    monkeypatch.setattr(os.path, "exists", lambda path: machine["gpu"])
    assert default_jobs(named=False) == 2
    assert default_jobs(named=True) == 1
    machine["cores"] = 64
    assert default_jobs(named=False) == 4
    machine["gib"] = 4.5
    assert default_jobs(named=False) == 2
    machine["gib"] = 1.0
    assert default_jobs(named=False) == 1
    machine |= {"gib": 64.0, "gpu": True}
    assert (default_jobs(named=False), default_jobs(named=False, device="cpu")) == (1, 4)


def test_seeds_that_would_do_test_every_fold():
    """Seven would do without folds; with five folds they would be refused."""
    assert too_few_seeds(5, 3).endswith("7 seeds would do.")
    assert too_few_seeds(5, 3, at_once=seeds_at_once({"a": {"split_rule": {"folds": 5}}, "b": {}})).endswith(
        "10 seeds would do."
    )
    assert too_few_seeds(10, 3, at_once=5) is None
    scores = {"late": 0.4, "concat": 0.5, "linear": 0.6, "boosted": 0.7}
    choice = Choice("toy", "late", "nll", scores, dict.fromkeys(scores, 0.25), ("concat",), 5, True)
    assert "`--seeds 7` in" in say_certainty(choice)
    assert "`--seeds 10` in" in say_certainty(choice, 5)


def test_the_time_left_is_that_of_each_method():
    left = TimeLeft()
    assert left.seconds([job("late")]) is None
    left.add(job("late"), 2.0)
    left.add(job("auto"), 30.0)
    assert left.seconds([job("late", 1), job("late", 2), job("auto", 1)]) == pytest.approx(34.0)
    left.add(job("auto", 1), 10.0)  # the first one also warmed up
    assert left.seconds([job("auto", 2)]) == pytest.approx(10.0)
    left.workers = 2
    assert left.seconds([job("auto", 2), job("auto", 3)]) == pytest.approx(10.0)


def test_a_very_short_training_tells_nothing_of_the_others():
    left = TimeLeft()
    left.add(job("majority"), 3.0)
    assert left.seconds([job("auto")]) is None


def test_the_time_left_is_steady(monkeypatch, capsys):
    """Of ten alike jobs each says less than before, whatever the order of methods."""
    now = [0.0]
    monkeypatch.setattr("consilience.comparison.progress.time.monotonic", lambda: now[0])
    jobs = [job(method, seed) for seed in range(5) for method in ("late", "auto")]
    cost = {"late": 4.0, "auto": 32.0}
    said = []
    with Progress(jobs, 0) as progress:
        for place, each in enumerate(jobs):
            progress.update(jobs[place:])
            now[0] += cost[each.method]
            progress.advance(each, "done")
            said.append(progress.left.seconds(jobs[place + 1 :]))
    truth = [sum(cost[each.method] for each in jobs[place + 1 :]) for place in range(len(jobs))]
    assert said == pytest.approx(truth)
    assert re.fullmatch(r"about \d+ min", say_left(truth[0]))
