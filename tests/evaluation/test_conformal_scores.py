"""Conformal scores against brute force and MAPIE, and the coverage that their quantiles have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, kstest

from consilience.core.errors import InputError, UnknownNameError
from consilience.evaluation.conformal_scores import (
    RAPS_FREE,
    RAPS_PENALTY,
    class_scores,
    conformal_quantile,
    least_samples,
    own_samples,
    residual_scores,
    tie_breaker,
    weighed_quantiles,
)

SCORES = ("aps", "raps", "lac")
logits = arrays(np.float64, (7, 4), elements=st.floats(-30, 30))


def log_softmax(z):
    return z - np.logaddexp.reduce(z, axis=1, keepdims=True)


def draw(n, classes=4, seed=0, sharpness=2.0):
    """Log-probabilities, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    log_p = log_softmax(rng.normal(0, sharpness, (n, classes)))
    y = (rng.random((n, 1)) > np.exp(log_p).cumsum(1)).sum(1).clip(max=classes - 1)
    return log_p, y


@given(logits)
def test_scores_by_brute_force(z):
    log_p = log_softmax(z)
    u = tie_breaker(log_p)
    found = {score: class_scores(log_p, score) for score in SCORES}
    for row, p in enumerate(np.exp(log_p)):
        # Equally probable classes rank in the order of their columns.
        order = sorted(range(4), key=lambda c: (-log_p[row, c], c))
        for rank, c in enumerate(order):
            aps = sum(p[other] for other in order[:rank]) + u[row] * p[c]
            assert found["aps"][row, c] == pytest.approx(aps, abs=1e-12)
            assert found["raps"][row, c] == pytest.approx(aps + RAPS_PENALTY * max(0, rank + 1 - RAPS_FREE), abs=1e-12)
            assert found["lac"][row, c] == pytest.approx(1 - p[c], abs=1e-12)


def test_lac_separates_samples_that_are_nearly_certain():
    scores = class_scores(log_softmax(np.array([[50.0, 0.0], [60.0, 0.0]])), "lac")[:, 0]
    np.testing.assert_allclose(scores, np.exp([-50.0, -60.0]), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 27])
def test_the_tie_breaker_is_spread_evenly(classes):
    u = tie_breaker(draw(4000, classes)[0])
    assert ((u >= 0) & (u < 1)).all()
    assert kstest(u, "uniform").pvalue > 0.001


def test_the_tie_breaker_does_not_depend_on_the_batch_and_hardly_on_rounding():
    log_p = draw(500)[0]
    u = tie_breaker(log_p)
    np.testing.assert_allclose(u[::-1], tie_breaker(log_p[::-1]), atol=1e-9)
    np.testing.assert_allclose(u[:1], tie_breaker(log_p[:1]), atol=1e-9)
    moved = np.abs(tie_breaker(log_p + 1e-7) - u)
    assert np.minimum(moved, 1 - moved).max() < 1e-4
    assert np.isfinite(tie_breaker(np.array([[0.0, -np.inf]]))).all()


@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_the_quantile_is_the_score_of_that_rank(n, coverage):
    scores = np.random.default_rng(n).permutation(n).astype(float)
    rank = next(k for k in range(1, n + 2) if k >= (n + 1) * coverage - 1e-6)
    assert float(conformal_quantile(scores, coverage)) == (np.inf if rank > n else rank - 1)


@given(st.floats(0.01, 0.995))
def test_the_least_number_of_samples_has_a_finite_quantile(coverage):
    least = least_samples(coverage)
    assert np.isfinite(conformal_quantile(np.zeros(least), coverage))
    if least > 1:
        assert np.isinf(conformal_quantile(np.zeros(least - 1), coverage))
    assert own_samples(coverage) >= least


@pytest.mark.parametrize("score", SCORES)
def test_coverage_is_exact_over_many_draws(score):
    """P(covered) of split conformal prediction without ties is ⌈(n + 1)·c⌉ / (n + 1), whatever the model."""
    n, repeats, coverage = 29, 4000, 0.9
    log_p, y = draw((n + 1) * repeats, seed=1)
    wrong = np.roll(log_p, 1, axis=1) * 0.5 + log_p  # a model that is not the one the labels come from
    scores = class_scores(log_softmax(wrong), score)[np.arange(len(y)), y].reshape(repeats, n + 1)
    covered = sum(bool(row[n] <= conformal_quantile(row[:n], coverage)) for row in scores)
    low, high = binom.interval(0.9999, repeats, 27 / 30)
    assert low <= covered <= high


@given(logits, st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_more_coverage_never_makes_a_set_smaller(z, one, other):
    low, high = sorted((one, other))
    known, y = draw(60)
    for score in SCORES:
        scores = class_scores(known, score)[np.arange(60), y]
        new = class_scores(log_softmax(z), score)
        assert ((new <= conformal_quantile(scores, low)) <= (new <= conformal_quantile(scores, high))).all()


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, "much", np.nan])
def test_a_coverage_that_is_none(coverage):
    with pytest.raises(InputError, match="coverage must be a number > 0 and < 1"):
        conformal_quantile(np.arange(20.0), coverage)


def test_an_unknown_score():
    with pytest.raises(UnknownNameError, match="unknown score 'apps': did you mean 'aps'"):
        class_scores(np.zeros((1, 2)), "apps")


@given(st.floats(0.01, 1.0), st.floats(0.05, 0.95))
def test_equal_reliability_gives_the_plain_quantile(rho, coverage):
    scores = np.random.default_rng(0).normal(size=80)
    found = weighed_quantiles(scores, np.full(80, rho), coverage, np.full(3, rho))
    np.testing.assert_array_equal(found, conformal_quantile(scores, coverage))


@given(arrays(np.float64, 6, elements=st.floats(0, 1)), st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_thresholds_rise_as_reliability_falls_and_as_coverage_rises(rho, one, other):
    rng = np.random.default_rng(0)
    scores, known = rng.normal(size=100), rng.uniform(0.2, 1, 100)
    low, high = (weighed_quantiles(scores, known, coverage, np.sort(rho)) for coverage in sorted((one, other)))
    assert (np.diff(low[np.isfinite(low)]) <= 0).all()
    assert (low <= high).all()


def test_nothing_is_left_out_where_nothing_is_reliable():
    rng = np.random.default_rng(0)
    assert weighed_quantiles(rng.normal(size=100), rng.uniform(0.5, 1, 100), 0.9, np.zeros(1)).tolist() == [np.inf]


def test_weighed_coverage_over_many_draws():
    """Scores that depend on the reliability; the coverage is exact up to 1/n."""
    rng = np.random.default_rng(0)
    n, repeats, covered = 99, 3000, 0
    rho = rng.uniform(0.1, 1, (repeats, n + 1))
    scores = rng.normal(size=(repeats, n + 1)) / rho
    for r, s in zip(rho, scores):
        covered += bool(s[n] <= weighed_quantiles(s[:n], r[:n], 0.9, r[n:])[0])
    low, high = binom.interval(0.9999, repeats, 0.9)
    assert low - repeats / n <= covered <= high + repeats / n


def test_residuals_in_units_of_the_spread():
    rng = np.random.default_rng(0)
    y, prediction, spread = rng.normal(size=(3, 5, 2))
    spread = np.abs(spread) + 0.1
    for row, target in np.ndindex(5, 2):
        expected = abs(y[row, target] - prediction[row, target]) / spread[row, target]
        assert residual_scores(y, prediction, spread)[row, target] == expected
    np.testing.assert_array_equal(residual_scores(y, prediction), np.abs(y - prediction))


def test_least_ambiguous_sets_are_those_of_mapie():
    mapie = pytest.importorskip("mapie.classification", reason="MAPIE is not installed")
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    X[:, 0] += y
    model = LogisticRegression().fit(X[:100], y[:100])
    theirs = mapie.SplitConformalClassifier(model, confidence_level=0.8, conformity_score="lac", prefit=True)
    _, sets = theirs.conformalize(X[100:200], y[100:200]).predict_set(X[200:])
    scores = class_scores(model.predict_log_proba(X[100:200]), "lac")[np.arange(100), y[100:200]]
    ours = class_scores(model.predict_log_proba(X[200:]), "lac") <= conformal_quantile(scores, 0.8)
    np.testing.assert_array_equal(ours, sets[:, :, 0])
