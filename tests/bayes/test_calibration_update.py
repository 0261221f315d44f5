"""The calibration of one expert after few, many and uninformative new rows."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.calibration_update import Expert, _Model, update_expert
from consilience.bayes.rule_update import update_rule

KINDS = ("temperature", "bias", "robust")
CALIBRATIONS = ("temperature", "bias", "robust", "auto")
PRIOR = np.array([0.5, 0.3, 0.2])
OLD = Expert(1.7, np.array([0.2, -0.3, 0.1]), 0.9)


def rows(rng, n, gain=1.0):
    y = rng.integers(3, size=n)
    return gain * (2 * np.eye(3)[y] + rng.normal(size=(n, 3))), y


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_loss(kind):
    z, _ = rows(np.random.default_rng(0), 8)
    model, weight = _Model(OLD, kind, z, PRIOR), np.random.default_rng(1).random((8, 3))
    x = model.start + 0.1
    numeric = approx_fprime(x, lambda x: model.loss(x, weight)[0], 1e-7)
    np.testing.assert_allclose(model.loss(x, weight)[1], numeric, rtol=1e-5, atol=1e-6)


def after(calibration, n, gain, old_rows=None, seed=0):
    """Log-probabilities of usual rows before and after an update by n rows; each of 92 rows counts in a fit."""
    rng = np.random.default_rng(seed)
    z, y = rows(rng, 89)
    rule = BayesRule(1, 3, kappa="none", calibration=calibration).double().fit(z[:, None], y)
    test = torch.from_numpy(rows(rng, 200)[0][:, None])
    before = rule(test).exp().numpy()
    new, labels = rows(rng, n, gain)
    update_rule(rule, new[:, None], labels, np.ones((n, 1), dtype=bool), old_rows=92 if old_rows is None else old_rows)
    return before, rule(test).exp().numpy()


@pytest.mark.parametrize("gain", [1.0, 1e-3, 0.0])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_one_row_moves_the_probabilities_of_others_by_little(calibration, gain):
    for seed in range(5):
        before, new = after(calibration, 1, gain, seed=seed)
        assert abs(new - before).max() < 0.08, "it is one row in 93"


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_rows_that_say_nothing_leave_the_calibration(calibration):
    before, new = after(calibration, 200, 0.0, old_rows=1e9)
    np.testing.assert_allclose(new, before, atol=1e-4)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_a_great_many_old_rows_outweigh_one(calibration):
    before, new = after(calibration, 1, 1.0, old_rows=1e12)
    np.testing.assert_allclose(new, before, atol=1e-6)


def usual(kind):
    """A calibration, 500 usual rows with their labels, and what it says of them."""
    z, y = rows(np.random.default_rng(3), 500)
    old = OLD if kind == "bias" else OLD._replace(bias=np.zeros(3))
    model = _Model(old, kind, z - z.mean(axis=1, keepdims=True), PRIOR)
    return old, model, z, y, np.exp(model._log_q(model.start)[0])


@pytest.mark.parametrize("kind", ["temperature", "bias"])
def test_usual_rows_lack_no_information(kind):
    _, model, _, _, said = usual(kind)
    missing = model.missing_information(said, np.ones(500))
    if kind == "bias":  # equal biases change nothing, and nothing is known of them
        across = np.eye(4) - np.outer(equal := np.r_[0, np.ones(3)], equal) / 3
        missing = across @ missing @ across
    assert abs(missing).max() < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_of_usual_rows_the_stated_loss_is_minimised(kind):
    old, model, z, y, said = usual(kind)
    found = update_expert(old, kind, z, said, y, np.ones(500), PRIOR, old_rows=100.0, old_share=0.2)
    weight = np.eye(3)[y] + 0.2 * said
    alone = minimize(lambda x: model.loss(x, weight), model.start, jac=True, method="BFGS").x

    def shares(expert):
        scores = z / expert.temperature + expert.bias
        p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
        sound = expert.reliability if kind == "robust" else 1.0
        return sound * p + (1 - sound) * PRIOR

    np.testing.assert_allclose(shares(found), shares(model.expert(alone)), atol=0.01)
    assert abs(shares(found) - said).max() > 0.02, "the rows move it"
