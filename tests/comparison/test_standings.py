"""From scores on several sets to where each method stands."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import friedmanchisquare, rankdata

from consilience import compare
from consilience.comparison.comparison import Comparison
from consilience.comparison.gather_results import _ranks
from consilience.comparison.ranks import critical_difference, mean_scores, scores_of, standings
from consilience.comparison.results import CLEAN, EVERYTHING
from report.factory import make_findings

NAMES = ["late", "concat", "early", "qmf"]
SETS = ("one", "two", "three")


@pytest.fixture(scope="module")
def findings():
    made = make_findings(NAMES, sets=SETS, seeds=3, failed=[("boom", 0, "ValueError: x")])
    values = made.values.filter(~((pl.col("set") == "two") & (pl.col("method") == "qmf")))  # cannot serve it
    made.values = values
    return made


def by_hand(findings, name, method, corruptions, levels):
    rows = findings.values.filter(pl.col("level").is_in(levels), set=name, method=method, metric=findings.metric)
    return np.mean([rows.filter(corruption=name)["value"].mean() for name in corruptions])


def test_scores_are_means_over_what_went_wrong(findings):
    scores = scores_of(findings, "one")
    assert list(scores) == [EVERYTHING, CLEAN, *findings.corruptions]
    for method in NAMES:
        assert scores[CLEAN][method] == pytest.approx(by_hand(findings, "one", method, ["gaussian"], [0.0]))
        for corruption in findings.corruptions:
            expected = by_hand(findings, "one", method, [corruption], [5.0, 10.0])
            assert scores[corruption][method] == pytest.approx(expected)
        expected = by_hand(findings, "one", method, findings.corruptions, [5.0, 10.0])
        assert scores[EVERYTHING][method] == pytest.approx(expected)
    assert np.isnan(scores[EVERYTHING]["boom"])  # failed on all its seeds
    assert "qmf" not in scores_of(findings, "two")[CLEAN]


def test_a_set_counts_once_and_who_failed_is_last(findings):
    scores = {name: scores_of(findings, name) for name in SETS}
    found = standings(scores, larger_is_better=True)
    assert [standing.label for standing in found] == [EVERYTHING, CLEAN, *findings.corruptions]
    for standing in found:
        methods = ["late", "concat", "early", "boom"]  # served on all sets
        table = np.array([[np.nan_to_num(scores[name][standing.label][method]) for method in methods] for name in SETS])
        ranks = dict(zip(methods, rankdata(-table, axis=1).mean(axis=0)))
        assert dict(zip(standing.methods, standing.ranks)) == pytest.approx(ranks)
        assert list(standing.ranks) == sorted(standing.ranks)
        assert standing.methods[-1] == "boom"
        assert standing.ranks[-1] == 4
        assert standing.sets == len(SETS)  # not sets × corruptions
        assert standing.critical == pytest.approx(critical_difference(4, 3))
        assert standing.p == pytest.approx(friedmanchisquare(*rankdata(-table, axis=1).T).pvalue)
        assert standing.left_out == ("qmf",)


def test_the_table_of_ranks_has_the_same_methods(findings):
    ranks = pl.DataFrame(list(_ranks(findings)))
    assert set(ranks["method"]) == {"late", "concat", "early", "boom"}
    assert set(ranks.filter(method="boom")["rank"]) == {4.0}


def test_small_errors_lead_where_smaller_is_better():
    scores = {name: {CLEAN: {"a": 3.0, "b": 1.0, "c": 2.0}} for name in SETS}
    assert standings(scores, larger_is_better=False)[0].methods == ("b", "c", "a")


def test_one_corruption_stands_for_all_and_sets_count_where_they_met_it():
    same = {"a": 0.9, "b": 0.8, "c": 0.7}
    one = {EVERYTHING: same, CLEAN: same, "gaussian": same}
    assert [found.label for found in standings({"x": one, "y": one}, True)] == ["gaussian", CLEAN]
    other = {EVERYTHING: same, CLEAN: same, "blank": same}
    found = standings({"x": one, "y": one, "z": other}, True)
    assert {standing.label: standing.sets for standing in found} == {EVERYTHING: 3, CLEAN: 3, "gaussian": 2}


def test_too_few_have_no_standing():
    assert standings({"x": {CLEAN: {"a": 0.9, "b": 0.8, "c": 0.1}}}, True) == []
    assert standings({name: {CLEAN: {"a": 0.9, "b": 0.8}} for name in SETS}, True) == []


def test_tasks_on_one_set_are_one_set():
    first, second = {CLEAN: {"a": 0.5, "b": 1.0}}, {CLEAN: {"a": 0.7, "b": 0.0}}
    assert mean_scores([first, second])[CLEAN] == pytest.approx({"a": 0.6, "b": 0.5})
    assert mean_scores([first, {CLEAN: {"a": np.nan, "b": 0.0}}])[CLEAN]["a"] != 0.5  # failed on one, failed on both


def test_a_comparison_on_several_sets_has_standings(tmp_path, monkeypatch):
    monkeypatch.setattr(Comparison, "report", lambda self: None)  # its figures are tested elsewhere
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        y = rng.integers(0, 2, size=60)
        np.savez(tmp_path / f"{name}.npz", a=y[:, None] + rng.normal(size=(60, 2)), b=rng.normal(size=(60, 3)), y=y)
    found = compare(
        [tmp_path / "left.npz", tmp_path / "right.npz"],
        ["late", "concat", "early"],
        corruption="gaussian",
        levels=(5,),
        seeds=1,
        training={"epochs": 1},
        out=tmp_path / "run",
        verbose=0,
    )
    assert [standing.label for standing in found.findings.standings] == ["gaussian", CLEAN]
    assert found.findings.standings[0].sets == 2
    assert set(found.findings.ranks["method"]) == {"late", "concat", "early"}
