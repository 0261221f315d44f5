"""Updating a rule against refitting it on pooled rows, in closed form where there is one."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.calibration import fit_temperature
from consilience.bayes.priors import empirical_prior
from consilience.bayes.rule_update import update_rule
from consilience.core.errors import InputError

CLASSES = 3


def opinions(rng, n, *, temperature=(1.5, 0.7), shares=(1 / 3, 1 / 3, 1 / 3)):
    """Labels, and logits of two experts that become calibrated when they are divided by their temperature.

    Each expert sees the class through Gaussian noise, and knows the shares 1/3.
    """
    y = rng.choice(CLASSES, size=n, p=shares)
    seen = np.eye(CLASSES)[y][:, None] + rng.normal(size=(n, 2, CLASSES)) * 0.8
    return seen / 0.64 * np.array(temperature)[:, None], y


def there(y):
    return np.ones((len(y), 2), dtype=bool)


def fitted(z, y, **settings):
    return BayesRule(2, CLASSES, kappa="none", **settings).double().fit(z, y)


def test_class_shares_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    (z, y), (new, labels) = opinions(rng, 300), opinions(rng, 120, shares=(0.8, 0.1, 0.1))
    rule = fitted(z, y)
    update_rule(rule, new, labels, there(labels), old_rows=300 + CLASSES)
    expected = empirical_prior(np.concatenate([y, labels]), CLASSES)
    np.testing.assert_allclose(rule.target.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(rule.prior.numpy(), empirical_prior(y, CLASSES), err_msg="the experts' own stay")


def test_temperatures_are_near_those_of_a_fit_on_all_rows():
    rng = np.random.default_rng(1)
    (z, y), (new, labels) = opinions(rng, 2000), opinions(rng, 3000)
    rule, old = fitted(z, y), fitted(z, y)
    update_rule(rule, new, labels, there(labels), old_rows=2000 + CLASSES)
    pooled = fit_temperature(np.concatenate([z, new]), np.concatenate([y, labels]))
    np.testing.assert_allclose(rule.temperature.numpy(), pooled, rtol=0.002)
    assert abs(old.temperature.numpy() / pooled - 1).max() > 0.02


def test_a_temperature_minimises_the_stated_sum_of_losses():
    rng = np.random.default_rng(2)
    (z, y), (new, labels) = opinions(rng, 200), opinions(rng, 100, temperature=(4.0, 4.0), shares=(0.6, 0.3, 0.1))
    rule = fitted(z, y)
    before, prior = rule.temperature.numpy().copy(), rule.prior.numpy().copy()
    update_rule(rule, new, labels, there(labels), old_rows=250)
    weight = prior[labels] / rule.target.numpy()[labels]
    weight *= len(labels) / weight.sum()

    def log_q(expert, temperature):
        scores = new[:, expert] / temperature
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    for expert in range(2):
        p = np.exp(log_q(expert, before[expert]))

        def loss(log_t, expert=expert, p=p):
            q = log_q(expert, np.exp(log_t))
            return -(weight * (q[np.arange(100), labels] + 2.5 * (p * q).sum(axis=1))).sum()

        found = minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10})
        assert rule.temperature[expert].item() == pytest.approx(np.exp(found.x), rel=1e-5)
        assert before[expert] < rule.temperature[expert].item() < 4


def test_without_old_evidence_it_is_a_fit_on_the_new_rows():
    rng = np.random.default_rng(3)
    (z, y), (new, labels) = opinions(rng, 200), opinions(rng, 400, temperature=(3.0, 3.0))
    rule = fitted(z, y)
    update_rule(rule, new, labels, there(labels), old_rows=0)
    shares = empirical_prior(labels, CLASSES)
    weight = rule.prior.numpy()[labels] / shares[labels]
    expected = fit_temperature(new, labels, weight=weight * 400 / weight.sum())
    np.testing.assert_allclose(rule.temperature.numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(rule.target.numpy(), shares)


@pytest.mark.parametrize("calibration", ["temperature", "bias", "robust"])
def test_much_old_evidence_changes_little_and_new_evidence_helps(calibration):
    rng = np.random.default_rng(4)
    z, y = opinions(rng, 3000)
    new, labels = opinions(rng, 1000, temperature=(6.0, 0.7), shares=(0.7, 0.2, 0.1))
    test, truth = opinions(rng, 3000, temperature=(6.0, 0.7), shares=(0.7, 0.2, 0.1))

    def loss(rule):
        import torch

        log_p = rule(torch.from_numpy(test)).numpy()
        return -log_p[np.arange(len(truth)), truth].mean()

    rule = fitted(z, y, calibration=calibration)
    state, before = {name: value.clone() for name, value in rule.state_dict().items()}, loss(rule)
    update_rule(rule, new, labels, there(labels), old_rows=1e9)
    for name, value in state.items():
        np.testing.assert_allclose(rule.state_dict()[name], value, rtol=0.01, atol=0.01, err_msg=name)
    update_rule(rule, new, labels, there(labels), old_rows=100)
    assert loss(rule) < before - 0.1


def test_an_expert_that_the_rows_lack_stays():
    rng = np.random.default_rng(5)
    (z, y), (new, labels) = opinions(rng, 200), opinions(rng, 100, temperature=(9.0, 9.0))
    rule, mask = fitted(z, y), there(labels)
    mask[:, 1] = False
    new[:, 1] = np.nan
    before = rule.temperature.clone()
    update_rule(rule, new, labels, mask, old_rows=200)
    assert rule.temperature[1] == before[1]
    assert rule.temperature[0] > 1.5 * before[0]


def test_no_rows_and_no_number():
    rng = np.random.default_rng(6)
    z, y = opinions(rng, 50)
    rule = fitted(z, y)
    with pytest.raises(InputError, match="no row of positive weight"):
        update_rule(rule, z, y, there(y), old_rows=50, weight=np.zeros(50))
    with pytest.raises(InputError, match="old_rows must be a number ≥ 0"):
        update_rule(rule, z, y, there(y), old_rows=-1.0)


@pytest.mark.parametrize("calibration", ["temperature", "robust", "auto", "bias"])
def test_while_it_is_updated_a_rule_answers_as_before(calibration, monkeypatch):
    """Another thread may predict meanwhile."""
    rng = np.random.default_rng(7)
    z, y = opinions(rng, 200)
    rule = fitted(z, y, calibration=calibration)
    state, meanwhile, calibrated = rule.state_dict(), [], rule.calibrated

    def looking(*arguments):
        meanwhile.append({name: rule.get_buffer(name).clone() for name in state})
        return calibrated(*arguments)

    monkeypatch.setattr(rule, "calibrated", looking)
    update_rule(rule, 2 * z, y, there(y), old_rows=10)
    assert meanwhile
    assert all(torch.equal(value, state[name]) for seen in meanwhile for name, value in seen.items())


def test_an_update_that_fails_leaves_the_rule_as_it_was(monkeypatch):
    rng = np.random.default_rng(8)
    z, y = opinions(rng, 200)
    rule = fitted(z, y, calibration="auto")
    before = {name: value.clone() for name, value in rule.state_dict().items()}

    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(rule, "calibrated", fails)
    with pytest.raises(MemoryError):
        update_rule(rule, z, y, there(y), old_rows=10)
    assert all(torch.equal(value, before[name]) for name, value in rule.state_dict().items())
