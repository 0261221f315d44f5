"""bayes-digits, bayes-handwritten and bayes-predictions: the ways to decide, the rows, and small pages."""

import re

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from consilience import BayesFusion, estimate_target_prior
from consilience.comparison.store import Result
from consilience.core.samples import Samples
from paper_scripts import PAPERS, script

bayes = script("bayes")
ways = bayes.ways
Case, Decided, OURS = ways.Case, ways.Decided, ways.OURS


def opinions(rng, y, classes, experts=2, sure=2.0):
    """Log-probabilities that favour the class, the experts' errors in part the same."""
    shared = rng.normal(size=(len(y), 1, classes))
    z = sure * (np.arange(classes) == y[:, None])[:, None] + shared + rng.normal(size=(len(y), experts, classes))
    return z - np.logaddexp.reduce(z, axis=2, keepdims=True)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    seen, asked = rng.integers(0, 3, 150), rng.integers(0, 3, 80)
    return Case(opinions(rng, seen, 3), seen, opinions(rng, asked, 3))


def test_the_ways_are_those_of_the_estimator(case):
    decided = ways.decide_all(case)
    for name, settings in {
        OURS: {},
        ways.ROBUST: {"calibration": "robust"},
        ways.COPULA: {"kappa": "copula"},
        ways.CALIBRATED: {"kappa": "none"},
    }.items():
        expected = BayesFusion(**settings).fit(case.learned, case.labels).predict_log_proba(case.asked)
        np.testing.assert_allclose(decided[name], expected, atol=1e-12)
    broken = ways.decide_with_broken(case, 0.75)[ways.RELIABLE]
    expected = BayesFusion(reliability="auto").fit(case.learned, case.labels).predict_log_proba(case.asked)
    np.testing.assert_allclose(broken, expected, atol=1e-12)


def test_gaps_are_those_of_the_estimator(case):
    present = np.random.default_rng(1).random(case.asked.shape[:2]) < 0.6
    gaps = Case(case.learned, case.labels, case.asked, present)
    expected = BayesFusion().fit(case.learned, case.labels).predict_log_proba(case.asked, present)
    np.testing.assert_allclose(ways.decide_with_missing(gaps)[OURS], expected, atol=1e-12)
    mean = np.exp(ways.mean_of_probabilities(gaps))
    for row, there, found in zip(np.exp(case.asked), present, mean):
        np.testing.assert_allclose(found, row[there].mean(axis=0) if there.any() else case.prior)


def test_the_best_expert_is_chosen_by_what_is_learned_from(case):
    silent = np.full_like(case.learned[:, 0], -np.log(3))
    chosen = Case(np.stack([silent, case.learned[:, 1]], axis=1), case.labels, case.asked)
    assert chosen.best == 1
    np.testing.assert_array_equal(ways.decide_all(chosen)[ways.SINGLE], case.asked[:, 1])


def test_other_shares(case):
    rng = np.random.default_rng(2)
    true = np.array([0.8, 0.15, 0.05])
    y = rng.choice(3, size=400, p=true)
    elsewhere = Case(case.learned, case.labels, opinions(rng, y, 3))
    decided, off = ways.decide_with_other_shares(elsewhere, true)
    fusion = BayesFusion(target_prior="em").fit(case.learned, case.labels)
    np.testing.assert_allclose(decided[ways.EM], fusion.predict_log_proba(elsewhere.asked), atol=1e-12)
    kept = BayesFusion().fit(case.learned, case.labels).predict_log_proba(elsewhere.asked)
    assert off["fused"] == pytest.approx(np.abs(estimate_target_prior(kept, case.prior) - true).sum())
    # The formulas in words: every expert's old prior out, the new one in once; or the new one out N − 1 times.
    odds = np.exp(elsewhere.asked).prod(axis=1)
    for name, prior in ((ways.TRUE_NAIVE, true / case.prior**2), (ways.PUBLISHED, 1 / true)):
        expected = odds * prior
        np.testing.assert_allclose(
            np.exp(decided[name]) / np.exp(decided[name]).sum(axis=1, keepdims=True),
            expected / expected.sum(axis=1, keepdims=True),
        )
    right = {name: np.mean(said.argmax(axis=1) == y) for name, said in decided.items()}
    assert right[ways.PUBLISHED] < right[ways.TRUE_NAIVE] <= right[ways.TRUE] + 0.05


def test_rows_and_weights():
    y = np.repeat(np.arange(4), 50)
    shares = ways.uneven_shares(4)
    train, others = ways.draw_shares(y, shares, 80, seed=0)
    np.testing.assert_array_equal(np.bincount(y[train]), np.round(80 * shares))
    assert sorted(np.concatenate([train, others])) == list(range(200))
    used = ways.thin_out(y, others, shares[::-1])
    assert np.abs(np.bincount(y[used]) / len(used) - shares[::-1]).max() < 0.02
    assert not set(used) & set(train)
    ratios = ways.uneven_shares(4, np.geomspace)
    np.testing.assert_allclose(ratios[:-1] / ratios[1:], 20 ** (1 / 3))
    weight = ways.weigh_by_class(y[others], shares)
    np.testing.assert_allclose(np.bincount(y[others], weight) / weight.sum(), shares)


def test_a_swapped_opinion_is_the_same_experts(case):
    swapped = ways.swap(case.asked, 0.5, np.random.default_rng(0))
    for expert in range(2):
        assert {tuple(row) for row in swapped[:, expert]} <= {tuple(row) for row in case.asked[:, expert]}
    assert 0.3 < (swapped != case.asked).any(axis=2).mean() < 0.7


def test_scores_count_the_weights(case):
    rng = np.random.default_rng(3)
    y, weight = rng.integers(0, 3, len(case.asked)), rng.random(len(case.asked))
    result = ways.judge(Decided({"one": case.asked[:, 0]}, np.arange(len(y)), y, weight))
    p = np.exp(case.asked[:, 0])
    scores = result.about["scores"]["one"]
    assert scores["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(axis=1), sample_weight=weight))
    assert scores["nll"] == pytest.approx(log_loss(y, p, sample_weight=weight))
    assert result.arrays["loss"].sum() / weight.sum() == pytest.approx(scores["nll"])


CONDITIONS = [
    {"name": "n900", "kind": "all", "title": "Many", "n": 90, "over_n": True},
    {"name": "n100", "kind": "all", "title": "Few", "n": 30, "over_n": True},
    {"name": "uneven-last", "kind": "uneven, rising", "title": "Uneven", "n": 150},
    {"name": "missing", "kind": "missing", "title": "Missing", "n": 60},
    {"name": "reversed", "kind": "reversed", "title": "Reversed", "n": 150},
]


def test_the_page_of_linear_experts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    views = {name: np.eye(3)[y] + 0.7 * rng.normal(size=(300, 3)) for name in ("a", "b")}
    results = []
    describe = bayes.describe
    monkeypatch.setattr(bayes, "describe", lambda settings, found: results.extend(found) or describe(settings, found))
    monkeypatch.setattr(ways, "load", lambda data, seed: Samples.of(views, y))
    settings = {"name": "bayes-digits", "conditions": CONDITIONS, "seeds": 2, "out": tmp_path / "run", "verbose": 0}
    done = bayes.run(**settings)
    tables = done.document.tables
    assert [table.caption for table in tables] == [condition["title"] for condition in CONDITIONS]
    assert [table.rows[table.marked[0]][0] for table in tables] == [OURS] * 4 + [ways.EM]
    scores = [result.about["scores"] for result in results[:: len(CONDITIONS)]]
    ours, concat = (np.array([score[way]["nll"] for score in scores]) for way in (OURS, ways.CONCAT))
    rows = {row[0]: row for row in tables[0].rows}
    assert rows[OURS][2] == f"{ours.mean():.3f} ± {ours.std(ddof=1):.3f}"
    assert rows[OURS][3] == "–"
    apart, low, high = (float(one.replace("−", "-")) for one in re.findall(r"[+−]?\d\.\d{4}", rows[ways.CONCAT][3]))
    assert apart == pytest.approx((concat - ours).mean(), abs=1e-4)
    assert low < apart < high
    assert rows[OURS][5:] == ("97.2 / 0.101", f"{100 * (ours.mean() / 0.101 - 1):+.0f}".replace("-", "−"))
    assert "2 seeds are too few to be sure of" in done.document.answer[0]
    assert "differs by" in done.document.answer[-1]
    assert "When the recipe was chosen: 0.10 and 0.29." in done.document.sections[4].words[0]
    assert (tmp_path / "run" / "figures" / "over-n.png").exists()
    monkeypatch.setattr(ways, "load", None)  # a finished run is not measured again
    assert bayes.run(**settings).document.answer == done.document.answer


def test_a_significant_difference_is_called_so():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    said = opinions(rng, y, 3)[:, 0]
    worse = np.log(0.5 * np.exp(said) + 0.5 / 3)
    decided = Decided({OURS: said, ways.THEOREM: worse, ways.CONCAT: said}, np.arange(300), y)
    results: list[Result] = [ways.judge(decided)] * 8
    sentence = bayes.say_standing(bayes.Findings(CONDITIONS[0], results, {}))
    assert "significantly lower than that of theorem (κ = 1)" in sentence
    assert "not significantly other than that of concat regression" in sentence


@pytest.mark.parametrize("name", bayes.NAMES)
def test_every_condition_and_way_of_a_file_is_known(name):
    import yaml

    study = yaml.safe_load((PAPERS / f"{name}.yaml").read_text(encoding="utf-8"))
    settings = study["settings"]
    assert (study["script"], study["paper"], settings["name"]) == ("bayes.py", bayes.PAPER, name)
    assert all(condition["kind"] in ways.KINDS for condition in settings["conditions"])
    assert settings["published"].keys() <= {condition["name"] for condition in settings["conditions"]}
    known = {value for value in vars(ways).values() if isinstance(value, str)} | {*ways.NETWORKS}
    assert {way for figures in settings["published"].values() for way in figures} <= known


def test_the_page_of_saved_predictions(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 40)
    arrays = {
        f"{name}_{run}": np.exp(opinions(rng, y, 10, experts=1, sure=sure)[:, 0]).astype(np.float32)
        for run in (1, 2, 3)
        for name, sure in (("image", 1.0), ("audio", 3.0), ("centralnet", 5.0))
    }
    arrays["audio_1"][0] = np.eye(10, dtype=np.float32)[3]  # probabilities that are 0
    (tmp_path / "avmnist_predictions").mkdir()
    np.savez(tmp_path / "avmnist_predictions" / "test_probabilities.npz", y=y, **arrays)
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    done = bayes.run(name="bayes-predictions", seeds=1, out=tmp_path / "run", verbose=0)
    pairs = {row[0]: row for row in done.document.tables[0].rows}
    assert pairs["image"][5] == "63.8"
    assert pairs[OURS][5] == "–"
    assert [len(table.rows) for table in done.document.tables] == [16, 5, 7, 5]
    assert float(pairs["centralnet"][1].split()[0]) > float(pairs["image"][1].split()[0])
