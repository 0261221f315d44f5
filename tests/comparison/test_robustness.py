"""Standings over sets, and the page of `robustness`, on tiny generated data."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.stats import friedmanchisquare, rankdata

from consilience import compare, load_data
from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments import Part, find_experiment
from consilience.comparison.experiments.published import headlines
from consilience.comparison.experiments.robustness import METHODS, Robustness, answer
from consilience.comparison.gather_results import _rank
from consilience.comparison.ranks import critical_difference
from consilience.comparison.resolution import applicable
from consilience.comparison.standings import mean_scores, scores_of, standings
from consilience.corruption import corruption_names
from consilience.report.rank_diagram import CLEAN, EVERYTHING, Standing
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
    return np.mean([rows.filter(corruption=one)["value"].mean() for one in corruptions])


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
    assert [one.label for one in found] == [EVERYTHING, CLEAN, *findings.corruptions]
    for one in found:
        methods = ["late", "concat", "early", "boom"]  # served on all sets
        table = np.array([[np.nan_to_num(scores[name][one.label][method]) for method in methods] for name in SETS])
        ranks = dict(zip(methods, rankdata(-table, axis=1).mean(axis=0)))
        assert dict(zip(one.methods, one.ranks)) == pytest.approx(ranks)
        assert list(one.ranks) == sorted(one.ranks)
        assert one.methods[-1] == "boom"
        assert one.ranks[-1] == 4
        assert one.sets == len(SETS)  # not sets × corruptions
        assert one.critical == pytest.approx(critical_difference(4, 3))
        assert one.p == pytest.approx(friedmanchisquare(*rankdata(-table, axis=1).T).pvalue)
        assert one.left_out == ("qmf",)


def test_the_table_of_ranks_has_the_same_methods(findings):
    _rank(findings)
    assert set(findings.ranks["method"]) == {"late", "concat", "early", "boom"}
    assert set(findings.ranks.filter(method="boom")["rank"]) == {4.0}


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


def of(ranks, critical, p, label=EVERYTHING, methods=("a", "b", "c", "d", "e")):
    return Standing(label, methods, ranks, 8, critical, p)


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (of((1.0, 2.0, 3.0, 4.0, 5.0), 2.5, 0.001), "It is significantly better than `d` and `e`; between it"),
        (of((1.0, 2.0, 3.0, 4.0, 5.0), 3.9, 0.3), "Friedman's test does not tell the methods apart (p = 0.3): 8 sets"),
        (of((2.0, 2.5, 3.0, 3.5, 4.0), 3.0, 0.01), "it is told apart from no single one: that takes mean ranks 3.0"),
        (of((1.0, 2.0, 3.0, 4.0, 5.0), 4.2, 0.01), "So few sets tell no two of 5 methods apart: that takes"),
    ],
    ids=["some", "alike", "none", "hopeless"],
)
def test_the_answer_claims_no_more_than_the_ranks_bear(standing, said):
    first, second = answer([standing])
    assert first.startswith("Over all corruptions, `a` has the best mean rank: ")
    assert said in second


def test_the_answer_tells_of_clean_data():
    main = of((1.0, 2.0, 3.0, 4.0, 5.0), 2.5, 0.001)
    assert answer([main, of(main.ranks, 2.5, 0.001, CLEAN)])[-1] == "On clean data it leads too, with 1.0."
    turned = of(main.ranks, 2.5, 0.001, CLEAN, methods=("e", "d", "c", "b", "a"))
    assert answer([main, turned])[-1] == "On clean data `e` leads with 1.0; there `a` has 5.0."


def test_headlines_of_several_parts_say_which_is_meant(findings):
    comparisons = dict.fromkeys(("pump", "valve"), SimpleNamespace(findings=findings))
    parts = {"pump": Part({}, title="The pump"), "valve": Part({})}
    told = list(headlines(parts, comparisons))
    assert told[0].startswith("The pump: on one, ")
    assert told[len(told) // 2].startswith("On one, ")  # without a title
    assert next(headlines(parts, {"pump": comparisons["pump"]})).startswith("On one, ")  # there is but one


def test_every_number_corruption_is_in_the_protocol():
    experiment = find_experiment("robustness")
    published = {"qmf-gaussian", "qmf-salt-and-pepper"}  # one paper's forms of two that are there
    assert set(experiment.parts["digits"].full["corruption"]) == set(corruption_names("vector")) - published
    assert set(experiment.parts["captions"].full["corruption"]) == set(corruption_names("text")) - published
    assert set(experiment.sets) | set(experiment.full_only) <= set(experiment.parts)


@pytest.mark.parametrize("name", ["digits", "gaussians", "captions", "sequences"])
def test_every_method_serves_every_set_that_needs_no_download(name):
    assert applicable(METHODS, "", load_data(name)) == (list(METHODS), {})


@pytest.fixture(scope="module")
def no_reports():
    """The comparisons' own reports are tested elsewhere, and take longer to draw than these methods to train."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "report", lambda self: (self.folder / "report.html").write_text("stand-in"))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, no_reports):
    """Two sets and two tasks on a third, each with three cheap methods."""
    shared = {
        "methods": ["late", "concat", "early"],
        "corruption": ["gaussian", "missing"],
        "levels": (0, 5),
        "seeds": 1,
        "training": {"epochs": 1},
    }
    parts = {f"part-{place}": Part({"data": "gaussians", "n": 90, "seed": place, **shared}) for place in range(4)}
    experiment = Robustness(
        name="tiny",
        title="Which?",
        parts=parts | {"absent": Part({"data": "mosi", "data_dir": "nowhere", **shared}), "left": Part({})},
        sets={"part-2": "third", "part-3": "third"},
        full_only=("left",),
        notes=("A note.",),
    )
    return experiment.run(quick=True, out=tmp_path_factory.mktemp("run"), command="repeat me", verbose=0)


def test_the_page_shows_the_diagram_first(run):
    names = [section.name for section in run.account.sections]
    assert names == ["ranks", "conditions", "sets", "known", "made"]
    ranks, conditions, sets, known, _ = run.account.sections
    assert [drawing.name for drawing in ranks.figures] == ["ranks"]
    assert [drawing.name for drawing in conditions.figures] == ["ranks-clean", "ranks-gaussian", "ranks-missing"]
    assert sets.tables[0].header == ("method", "mean", "part-0", "part-1", "third")
    assert any(words.startswith("absent was left out: ") for words in known.words)
    assert all((run.folder / address).exists() for _, address in sets.links)
    assert "over 3 sets" in ranks.figures[0].caption
    assert (run.folder / "figures" / "ranks-missing.png").exists()


def test_ranks_in_the_table_are_those_of_its_scores(run):
    table, scores, clean = run.account.sections[2].tables
    assert clean.caption == "Accuracy, clean, %"
    for column in (1, 2, 3):
        own = [float(row[column + 1]) for row in table.rows]
        worth = [float(row[column]) for row in scores.rows]
        if len(set(worth)) == len(worth):  # equal after rounding may differ before
            assert own == rankdata([-one for one in worth]).tolist()
    means = [np.mean([float(cell) for cell in row[2:]]) for row in table.rows]
    assert [float(row[1]) for row in table.rows] == pytest.approx(means, abs=0.051)


def test_a_comparison_on_several_sets_has_standings(tmp_path, no_reports):
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
    assert [one.label for one in found.findings.standings] == ["gaussian", CLEAN]
    assert found.findings.standings[0].sets == 2
    assert set(found.findings.ranks["method"]) == {"late", "concat", "early"}
