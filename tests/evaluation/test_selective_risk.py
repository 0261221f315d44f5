"""The selective risk curve by brute force and in closed form, and thresholds that keep a risk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from consilience.core.errors import InputError
from consilience.evaluation.selective_risk import aurc, least_accepted, risk_threshold, selective_risk_curve


def two_classes(top, right):
    """Probabilities with these largest values, and labels that are right or not."""
    probabilities = np.stack([top, 1 - top], axis=1)
    return np.where(right, 0, 1), probabilities


@given(st.lists(st.tuples(st.integers(51, 99), st.booleans()), min_size=1, max_size=25))
def test_curve_and_area_by_brute_force(samples):
    top, right = np.array([one for one, _ in samples]) / 100, np.array([one for _, one in samples])
    y, p = two_classes(top, right)
    curve = selective_risk_curve(y, p)
    thresholds = sorted(set(top), reverse=True)
    np.testing.assert_allclose(curve.decided, [(top >= least).mean() for least in thresholds])
    np.testing.assert_allclose(curve.risk, [1 - right[top >= least].mean() for least in thresholds], atol=1e-12)
    # The mean over samples of the risk among those at least as certain.
    assert aurc(y, p) == pytest.approx(np.mean([1 - right[top >= own].mean() for own in top]))


def test_area_in_closed_form():
    n, wrong = 50, 10
    top = np.linspace(0.99, 0.51, n)
    ideal = sum((k - (n - wrong)) / k for k in range(n - wrong + 1, n + 1)) / n  # all errors last
    assert aurc(*two_classes(top, np.arange(n) < n - wrong)) == pytest.approx(ideal)
    assert aurc(*two_classes(np.full(n, 0.7), np.arange(n) < n - wrong)) == pytest.approx(wrong / n)  # no ranking
    assert aurc(*two_classes(top, np.ones(n, dtype=bool))) == 0.0


def test_weights_are_repeated_samples():
    rng = np.random.default_rng(0)
    y, p = two_classes(rng.uniform(0.5, 1, 30), rng.random(30) < 0.8)
    counts = rng.integers(0, 4, 30)
    assert aurc(y, p, weight=counts) == pytest.approx(aurc(np.repeat(y, counts), np.repeat(p, counts, axis=0)))


@pytest.mark.parametrize(("risk", "confidence"), [(0.02, 0.95), (0.1, 0.9), (0.3, 0.99)])
def test_the_least_number_is_that_of_clopper_and_pearson(risk, confidence):
    least = least_accepted(risk, confidence)
    assert beta.ppf(confidence, 1, least) <= risk < beta.ppf(confidence, 1, least - 1)
    top = np.linspace(1, 0.5, least)
    assert risk_threshold(top, np.ones(least), risk, confidence) == 0.5
    with pytest.raises(InputError, match=f"there are {least - 1} .* at least {least} are needed"):
        risk_threshold(top[1:], np.ones(least - 1), risk, confidence)


def test_the_risk_holds_as_often_as_stated():
    """P(wrong | certainty t) = 0.9·(1 − t)⁴, so the true risk at threshold t is 0.18·(1 − t)⁴."""
    rng = np.random.default_rng(0)
    risk, confidence, repeats, broken, decided = 0.05, 0.9, 600, 0, []
    for _ in range(repeats):
        top = rng.random(800)
        least = risk_threshold(top, rng.random(800) > 0.9 * (1 - top) ** 4, risk, confidence)
        broken += bool(least <= 1 and 0.18 * (1 - least) ** 4 > risk)
        decided.append(max(0.0, 1 - least))
    assert broken <= binom.ppf(0.9999, repeats, 1 - confidence)
    assert np.mean(decided) > 0.5  # the largest share that keeps the risk is 0.73


def test_equal_certainties_are_decided_together():
    top = np.repeat([0.9, 0.6], 100)
    assert risk_threshold(top, np.arange(200) < 100, 0.1) == 0.9
    assert risk_threshold(np.full(200, 0.9), np.arange(200) % 2 == 0, 0.1) == np.inf


def test_one_early_error_does_not_end_the_search():
    top = np.linspace(1, 0.5, 2000)
    right = np.ones(2000, dtype=bool)
    right[3] = False
    assert risk_threshold(top, right, 0.02) == 0.5


@given(st.integers(0, 1000), st.floats(0.02, 0.4), st.floats(0.02, 0.4))
def test_the_bound_of_clopper_and_pearson_holds_at_the_threshold(seed, one, other):
    rng = np.random.default_rng(seed)
    top = rng.random(400)
    right = rng.random(400) > (1 - top) / 2
    for risk in (one, other):
        least = risk_threshold(top, right, risk)
        chosen = top >= least
        if chosen.any():
            assert beta.ppf(0.95, (~right[chosen]).sum() + 1, right[chosen].sum()) <= risk + 1e-9


@pytest.mark.parametrize("risk", [0, 1, -0.5, "low"])
def test_a_risk_that_is_none(risk):
    with pytest.raises(InputError, match="risk must be a number > 0 and < 1"):
        risk_threshold([0.5], [True], risk)
