"""Dynamic against static weights: a factor on all weights is a matter of temperature, and says nothing of dynamics."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from consilience.evaluation.static_comparison import compare_with_static
from consilience.evaluation.trust import record_prediction
from consilience.methods import Prediction


def record_of(weights, opinions, y, present=None, classification=True):
    import torch

    there = np.ones(weights.shape, dtype=bool) if present is None else present
    output = np.einsum("nm,nmc->nc", weights * there, opinions)
    prediction = Prediction(*(torch.tensor(values) for values in (output, opinions, weights)))
    return record_prediction(prediction, y, there, ("a", "b"), classification)


def make(n=300, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, size=n)
    opinions = 1.5 * np.eye(3)[y][:, None] + random.normal(scale=1.5, size=(n, 2, 3))
    return random, opinions, y


def test_constant_weights_gain_nothing_whatever_their_total():
    _, opinions, y = make()
    for total in (1.0, 1.5):
        found = compare_with_static(record_of(np.full((300, 2), total / 2), opinions, y))
        assert found.loss == pytest.approx(found.static_loss, rel=1e-9)
        assert found.best_loss == pytest.approx(found.best_static_loss, rel=1e-9)


def test_a_factor_on_all_weights_changes_the_temperature_alone():
    random, opinions, y = make()
    weights = 0.5 + 0.2 * random.random((300, 2))
    plain, larger = (compare_with_static(record_of(c * weights, opinions, y)) for c in (1.0, 1.6))
    assert abs(plain.loss - larger.loss) > 0.01
    assert larger.temperature == pytest.approx(1.6 * plain.temperature, rel=1e-6)
    assert (larger.best_loss, larger.best_static_loss) == pytest.approx((plain.best_loss, plain.best_static_loss))


def test_the_best_temperature_is_that_of_a_search():
    random, opinions, y = make(seed=1)
    weights, present = random.random((300, 2)), random.random((300, 2)) < 0.8
    found = compare_with_static(record_of(weights, opinions, y, present))
    some = present.any(axis=1)
    mean = np.zeros((300, 2))
    for row in range(300):
        alike = (present == present[row]).all(axis=1)
        mean[row] = weights[alike].mean(axis=0)
    for static, loss, best in ((False, found.loss, found.best_loss), (True, found.static_loss, found.best_static_loss)):
        output = np.einsum("nm,nmc->nc", present * (mean if static else weights), opinions)[some]

        def at(log_temperature, output=output):
            return -log_softmax(output / math.exp(log_temperature), axis=1)[np.arange(some.sum()), y[some]].mean()

        assert loss == pytest.approx(at(0.0))
        assert best == pytest.approx(minimize_scalar(at, bounds=(-5, 5), method="bounded").fun, rel=1e-6)


def test_a_regression_has_no_temperature():
    random, _, _ = make()
    opinions, y = random.normal(size=(300, 2, 1)), random.normal(size=(300, 1))
    weights = np.stack([np.full(300, 0.25), np.full(300, 0.75)], axis=1)
    found = compare_with_static(record_of(weights, opinions, y, classification=False))
    assert found.loss == pytest.approx(found.static_loss)
    assert found.best_loss is None
