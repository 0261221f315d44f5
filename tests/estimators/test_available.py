"""Methods that an estimator has only under a condition: who asks for one that is not there is told why."""

import numpy as np
import pytest

import consilience as cs
from consilience.estimators.sklearn_parameters import UnfittedError

RANDOM = np.random.default_rng(0)
X = {name: RANDOM.normal(size=(60, 2)) for name in "ab"}
Y = np.arange(60) % 2
QUICK = {"epochs": 1, "device": "cpu"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (cs.FusionClassifier(), "leaderboard"),
        (cs.FusionClassifier(), "trust"),
        (cs.FusionClassifier(), "partial_fit"),
        (cs.FusionRegressor(), "leaderboard"),
        (cs.FusionRegressor(), "trust"),
        (cs.BayesFusion(), "partial_fit"),
    ],
)
def test_before_fitting(model, name):
    assert not hasattr(model, name)
    with pytest.raises(UnfittedError, match=f"This {type(model).__name__} instance is not fitted yet"):
        getattr(model, name)
    with pytest.raises(UnfittedError):
        getattr(type(model), name)(model)


def test_the_reason_is_in_the_error():
    joined = cs.FusionClassifier("concat", **QUICK).fit(X, Y)
    for name, reason in (
        ("leaderboard", "method 'concat' does not pool members, so it has no leaderboard"),
        ("trust", "method 'concat' does not weigh its modalities, so it has no trust"),
        ("partial_fit", "partial_fit is for bayes, bayes-robust and auto; method 'concat' has no calibrated experts"),
    ):
        assert not hasattr(joined, name)
        with pytest.raises(AttributeError, match=f"This 'FusionClassifier' has no attribute '{name}': {reason}"):
            getattr(joined, name)
    assert cs.FusionClassifier.trust.__doc__.startswith("Return the trust")


def test_the_leaderboard_of_a_regression():
    numbers = cs.FusionRegressor(steps=20, device="cpu").fit(X, X["a"][:, 0])
    with pytest.raises(AttributeError, match="for a regression 'auto' is bayes-robust, which does not pool members"):
        numbers.leaderboard()
    plain = cs.FusionRegressor("concat", **QUICK).fit(X, X["a"][:, 0])
    with pytest.raises(AttributeError, match="method 'concat' does not pool members"):
        plain.leaderboard()
