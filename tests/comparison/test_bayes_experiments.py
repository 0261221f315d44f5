"""`bayes-digits`, `bayes-handwritten` and `bayes-predictions`: the ways to decide, the rows, and the pages, small."""

import re

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from consilience import BayesFusion, estimate_target_prior
from consilience.comparison.experiments import find_experiment
from consilience.comparison.experiments.bayes import linear
from consilience.comparison.experiments.bayes.account import standing
from consilience.comparison.experiments.bayes.beside import FIGURES
from consilience.comparison.experiments.bayes.cells import PROTOCOLS, Condition, Protocol, judge
from consilience.comparison.experiments.bayes.deciding import (
    CALIBRATED,
    COPULA,
    EM,
    OURS,
    PUBLISHED,
    RELIABLE,
    ROBUST,
    SINGLE,
    TRUE,
    TRUE_NAIVE,
    Case,
    Decided,
    decide_all,
    decide_elsewhere,
    decide_when_broken,
    decide_with_gaps,
    mean_of_probabilities,
)
from consilience.comparison.experiments.bayes.findings import Findings
from consilience.comparison.experiments.bayes.predictions import swap
from consilience.comparison.experiments.bayes.splits import draw_shares, graded_shares, thin_out, weigh_by_class
from consilience.comparison.store import Store
from consilience.core.samples import Samples


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
    ways = decide_all(case)
    for name, settings in {
        OURS: {},
        ROBUST: {"calibration": "robust"},
        COPULA: {"kappa": "copula"},
        CALIBRATED: {"kappa": "none"},
    }.items():
        expected = BayesFusion(**settings).fit(case.learned, case.labels).predict_log_proba(case.asked)
        np.testing.assert_allclose(ways[name], expected, atol=1e-12)
    broken = decide_when_broken(case, 0.75)[RELIABLE]
    expected = BayesFusion(reliability="auto").fit(case.learned, case.labels).predict_log_proba(case.asked)
    np.testing.assert_allclose(broken, expected, atol=1e-12)


def test_gaps_are_those_of_the_estimator(case):
    present = np.random.default_rng(1).random(case.asked.shape[:2]) < 0.6
    gaps = Case(case.learned, case.labels, case.asked, present)
    expected = BayesFusion().fit(case.learned, case.labels).predict_log_proba(case.asked, present)
    np.testing.assert_allclose(decide_with_gaps(gaps)[OURS], expected, atol=1e-12)
    mean = np.exp(mean_of_probabilities(case.asked, present, case.prior))
    for row, there, found in zip(np.exp(case.asked), present, mean):
        np.testing.assert_allclose(found, row[there].mean(axis=0) if there.any() else case.prior)


def test_the_best_expert_is_chosen_by_what_is_learned_from(case):
    silent = np.full_like(case.learned[:, 0], -np.log(3))
    chosen = Case(np.stack([silent, case.learned[:, 1]], axis=1), case.labels, case.asked)
    assert chosen.best == 1
    np.testing.assert_array_equal(decide_all(chosen)[SINGLE], case.asked[:, 1])


def test_other_shares(case):
    rng = np.random.default_rng(2)
    true = np.array([0.8, 0.15, 0.05])
    y = rng.choice(3, size=400, p=true)
    elsewhere = Case(case.learned, case.labels, opinions(rng, y, 3))
    ways, off = decide_elsewhere(elsewhere, true)
    fusion = BayesFusion(target_prior="em").fit(case.learned, case.labels)
    np.testing.assert_allclose(ways[EM], fusion.predict_log_proba(elsewhere.asked), atol=1e-12)
    kept = BayesFusion().fit(case.learned, case.labels).predict_log_proba(elsewhere.asked)
    assert off["fused"] == pytest.approx(np.abs(estimate_target_prior(kept, case.prior) - true).sum())
    # The formulas in words: every expert's old prior out, the new one in once; or the new one out N − 1 times.
    odds = np.exp(elsewhere.asked).prod(axis=1)
    for name, prior in ((TRUE_NAIVE, true / case.prior**2), (PUBLISHED, 1 / true)):
        expected = odds * prior
        np.testing.assert_allclose(
            np.exp(ways[name]) / np.exp(ways[name]).sum(axis=1, keepdims=True),
            expected / expected.sum(axis=1, keepdims=True),
        )
    right = {name: np.mean(said.argmax(axis=1) == y) for name, said in ways.items()}
    assert right[PUBLISHED] < right[TRUE_NAIVE] <= right[TRUE] + 0.05


def test_rows_and_weights():
    y = np.repeat(np.arange(4), 50)
    shares = graded_shares(4, 10)
    train, others = draw_shares(y, shares, 80, seed=0)
    np.testing.assert_array_equal(np.bincount(y[train]), np.round(80 * shares))
    assert sorted(np.concatenate([train, others])) == list(range(200))
    used = thin_out(y, others, shares[::-1])
    assert np.abs(np.bincount(y[used]) / len(used) - shares[::-1]).max() < 0.02
    assert not set(used) & set(train)
    weight = weigh_by_class(y[others], shares)
    np.testing.assert_allclose(np.bincount(y[others], weight) / weight.sum(), shares)


def test_a_swapped_opinion_is_the_same_experts(case):
    swapped = swap(case.asked, 0.5, np.random.default_rng(0))
    for expert in range(2):
        assert {tuple(row) for row in swapped[:, expert]} <= {tuple(row) for row in case.asked[:, expert]}
    assert 0.3 < (swapped != case.asked).any(axis=2).mean() < 0.7


def test_scores_count_the_weights(case):
    rng = np.random.default_rng(3)
    y, weight = rng.integers(0, 3, len(case.asked)), rng.random(len(case.asked))
    result = judge(Decided({"one": case.asked[:, 0]}, np.arange(len(y)), y, weight))
    p = np.exp(case.asked[:, 0])
    scores = result.about["scores"]["one"]
    assert scores["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(axis=1), sample_weight=weight))
    assert scores["nll"] == pytest.approx(log_loss(y, p, sample_weight=weight))
    assert result.arrays["loss"].sum() / weight.sum() == pytest.approx(scores["nll"])


CONDITIONS = (
    Condition("n900", "all", "Many", 90, over_n=True),
    Condition("n100", "all", "Few", 30, over_n=True),
    Condition("uneven-last", "uneven, rising", "Uneven", 150),
    Condition("missing", "missing", "Missing", 60),
    Condition("reversed", "reversed", "Reversed", 150, EM),
)


def test_the_page_of_linear_experts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    views = {name: np.eye(3)[y] + 0.7 * rng.normal(size=(300, 3)) for name in ("a", "b")}
    monkeypatch.setattr(Protocol, "load", lambda self, seed: Samples.of(views, y))
    protocol = Protocol("bayes-digits", "digits", CONDITIONS, 2)
    done = find_experiment("bayes-digits").follow(protocol, tmp_path / "run", verbose=0)
    tables = done.account.tables
    assert [table.caption for table in tables] == [one.title for one in CONDITIONS]
    assert all(table.rows[table.marked[0]][0] == one.reference for table, one in zip(tables, CONDITIONS))
    store = Store(tmp_path / "run")
    findings = Findings.gather(protocol, store.read_all(protocol.cells(), "bayes-digits"))
    ours = findings.scores(CONDITIONS[0], OURS, "nll")
    row = next(row for row in tables[0].rows if row[0] == OURS)
    known = FIGURES["bayes-digits", "n900"][OURS][1]
    assert row[2] == f"{ours.mean():.3f} ± {ours.std(ddof=1):.3f}"
    assert row[3] == "–"
    concat = next(row for row in tables[0].rows if row[0] == linear.CONCAT)
    apart, low, high = (float(one.replace("−", "-")) for one in re.findall(r"[+−]?\d\.\d{4}", concat[3]))
    assert apart == pytest.approx((findings.scores(CONDITIONS[0], linear.CONCAT, "nll") - ours).mean(), abs=1e-4)
    assert low < apart < high
    assert row[5:] == ("97.2 / 0.101", f"{100 * (ours.mean() / known - 1):+.0f}".replace("-", "−"))
    assert "2 seeds are too few to be sure of" in done.account.answer[0]
    assert "differs by" in done.account.answer[-1]
    assert (tmp_path / "run" / "figures" / "over-n.png").exists()
    monkeypatch.setattr(linear, "hear", None)  # a finished run is only told again
    again = find_experiment("bayes-digits").follow(protocol, tmp_path / "run", verbose=0)
    assert again.account.answer == done.account.answer


def test_a_sure_difference_is_called_so(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    said = opinions(rng, y, 3)[:, 0]
    worse = np.log(0.5 * np.exp(said) + 0.5 / 3)
    condition = Condition("n900", "all", "Many", 90)
    protocol = Protocol("invented", "digits", (condition,), 8)
    ways = {OURS: said, "theorem (κ = 1)": worse, "concat regression": said}
    results = {cell.key: judge(Decided(ways, np.arange(300), y)) for cell in protocol.cells()}
    told = standing(Findings.gather(protocol, results), condition)
    assert "significantly lower than that of theorem (κ = 1)" in told
    assert "not significantly other than that of concat regression" in told


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
    experiment = find_experiment("bayes-predictions")
    assert experiment.protocol(quick=True).seeds % 3 == experiment.protocol(quick=False).seeds % 3 == 0
    protocol = Protocol("bayes-predictions", *PROTOCOLS["bayes-predictions"], 1)
    done = experiment.follow(protocol, tmp_path / "run", verbose=0)
    pairs = {row[0]: row for row in done.account.tables[0].rows}
    assert pairs["image"][5] == "63.8"
    assert pairs[OURS][5] == "–"
    assert [len(table.rows) for table in done.account.tables] == [16, 5, 7, 5]
    assert float(pairs["centralnet"][1].split()[0]) > float(pairs["image"][1].split()[0])
