"""Calibration against scikit-learn's own, against torch's L-BFGS, and against what was drawn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brute, check_grad
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from consilience.bayes.calibration import (
    _mixture_loss,
    calibrate,
    fit_bias_temperature,
    fit_robust_temperature,
    fit_temperature,
)
from consilience.core.errors import InputError


def draw(n=400, modalities=3, classes=4, seed=0):
    """Opinions that are right at the given temperatures, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    temperature = np.array([0.5, 1.0, 3.0])[:modalities]
    z = rng.normal(size=(n, modalities, classes)) * 2
    y = np.array([rng.choice(classes, p=p) for p in softmax(z[:, 0])])
    z[:, 1:] = np.eye(classes)[y][:, None] + rng.normal(size=(n, modalities - 1, classes))
    return z * temperature[:, None], y


def softmax(z):
    return np.exp(z - np.logaddexp.reduce(z, axis=-1, keepdims=True))


def log_loss(z, y):
    return -np.log(softmax(z)[np.arange(len(y)), y]).mean()


class Echo(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its input."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def test_temperature_is_that_of_scikit_learn():
    z, y = draw()
    ours = fit_temperature(z, y, smoothing=0)
    for expert in range(z.shape[1]):
        wrapped = FrozenEstimator(Echo().fit(z[:, expert], y))
        theirs = CalibratedClassifierCV(wrapped, method="temperature").fit(z[:, expert], y)
        found = theirs.predict_proba(z[:, expert])
        # Its search stops at a tolerance on log β; ours is at the bottom.
        np.testing.assert_allclose(softmax(z[:, expert] / ours[expert]), found, atol=2e-4)
        assert log_loss(z[:, expert] / ours[expert], y) <= log_loss(np.log(found), y) + 1e-12


@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_both_calibrations_are_those_of_torch_lbfgs(smoothing):
    z, y = draw(200)
    target = (1 - smoothing / len(y)) * np.eye(4)[y] + smoothing / len(y) / 4
    temperature = fit_temperature(z, y, smoothing=smoothing)
    both, bias = fit_bias_temperature(z, y, smoothing=smoothing)
    np.testing.assert_allclose(bias.sum(axis=1), 0, atol=1e-12)
    for expert in range(3):
        for biased, found, moved in ((False, temperature, np.zeros(4)), (True, both, bias[expert])):
            beta, b = torch.ones((), dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
            parameters = [beta.requires_grad_(), b.requires_grad_()] if biased else [beta.requires_grad_()]
            optimizer = torch.optim.LBFGS(
                parameters, max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-16
            )

            def closure(beta=beta, b=b, expert=expert, optimizer=optimizer):
                optimizer.zero_grad()
                scores = beta * torch.from_numpy(z[:, expert]) + b
                loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(target))
                loss.backward()
                return loss

            optimizer.step(closure)
            np.testing.assert_allclose(1 / found[expert], beta.item(), rtol=1e-6)
            np.testing.assert_allclose(moved, (b - b.mean()).detach().numpy(), atol=1e-6)


@given(seed=st.integers(0, 10_000), factor=st.floats(1e-3, 1e3), offset=st.floats(-1e3, 1e3))
@settings(max_examples=20, deadline=None)
def test_temperature_scales_with_the_logits_and_ignores_offsets(seed, factor, offset):
    z, y = draw(60, seed=seed)
    before = fit_temperature(z, y)
    shift = offset * np.random.default_rng(seed).normal(size=(60, 3, 1))
    np.testing.assert_allclose(fit_temperature(factor * z + shift, y), factor * before, rtol=1e-5)


def test_the_slope_of_the_loss_is_zero_at_the_temperature():
    z, y = draw(150)
    for expert, temperature in enumerate(fit_temperature(z, y, smoothing=0)):
        around = [log_loss(z[:, expert] / (temperature * factor), y) for factor in (0.999, 1.0, 1.001)]
        assert around[1] == min(around)


def test_what_is_absent_does_not_count():
    z, y = draw(120)
    present = np.random.default_rng(1).random((120, 3)) < 0.6
    with_garbage = np.where(present[:, :, None], z, np.nan)
    found = fit_temperature(with_garbage, y, present)
    biased, bias = fit_bias_temperature(with_garbage, y, present)
    for expert in range(3):
        rows = present[:, expert]
        np.testing.assert_allclose(found[expert], fit_temperature(z[rows, expert : expert + 1], y[rows])[0], rtol=1e-9)
        alone = fit_bias_temperature(z[rows, expert : expert + 1], y[rows])
        np.testing.assert_allclose(biased[expert], alone[0][0], rtol=1e-7)
        np.testing.assert_allclose(bias[expert], alone[1][0], atol=1e-7)
    none_present = np.zeros((120, 3), dtype=bool)
    assert fit_temperature(z, y, none_present).tolist() == [1.0, 1.0, 1.0]


def test_a_weight_of_two_is_the_sample_twice():
    z, y = draw(80)
    weight = np.random.default_rng(0).integers(0, 3, size=80)
    twice = np.repeat(np.arange(80), weight)
    np.testing.assert_allclose(fit_temperature(z, y, weight=weight), fit_temperature(z[twice], y[twice]), rtol=1e-9)
    ours, theirs = fit_bias_temperature(z, y, weight=weight), fit_bias_temperature(z[twice], y[twice])
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-7)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-7)


def test_an_expert_who_is_always_right_does_not_become_certain():
    y = np.arange(30) % 3
    z = 5.0 * np.eye(3)[y][:, None]
    assert softmax(z / fit_temperature(z, y)[:, None]).max() < 1 - 1 / 90
    assert softmax(calibrate(z, *fit_bias_temperature(z, y))).max() < 1 - 1 / 90
    assert np.isfinite(fit_temperature(z, y, smoothing=0)).all()
    assert np.isfinite(fit_bias_temperature(z, y, smoothing=0)[1]).all()


def test_an_expert_who_knows_nothing_is_silenced():
    z = np.random.default_rng(0).normal(size=(3000, 1, 3))
    y = np.random.default_rng(1).integers(0, 3, 3000)
    assert np.ptp(softmax(z / fit_temperature(z, y)[:, None]), axis=2).max() < 0.25
    z[:] = 0
    assert np.isfinite(fit_temperature(z, y)).all()


def test_bias_mends_a_shifted_expert():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(5000, 3)) * 2
    y = np.array([rng.choice(3, p=p) for p in softmax(true)])
    temperature, bias = fit_bias_temperature((2 * true + [4.0, 0.0, 0.0])[:, None], y)
    np.testing.assert_allclose(temperature, [2.0], rtol=0.1)
    np.testing.assert_allclose(bias[0] - bias[0, 1], [-2.0, 0.0, 0.0], atol=0.15)


def mixture_loss(z, y, prior, temperature, reliability):
    """The loss of the mixture, with its two added labels, written plainly."""
    p = reliability * softmax(z / temperature) + (1 - reliability) * prior
    return -np.log(p[np.arange(len(y)), y]).sum() - np.log(reliability) - np.log(1 - reliability)


def test_the_mixture_is_at_the_bottom_of_its_loss():
    z, y = draw(150)
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    temperature, reliability = fit_robust_temperature(z, y, prior)
    for expert in range(3):
        ours = mixture_loss(z[:, expert], y, prior, temperature[expert], reliability[expert])

        def loss(x, expert=expert):
            return mixture_loss(z[:, expert], y, prior, np.exp(x[0]), x[1])

        best = brute(loss, [(-3, 4), (0.01, 0.999)], Ns=60, finish=None)
        assert ours <= loss(best) + 1e-6


def test_the_gradient_of_the_mixture_is_that_of_differences():
    z, y = draw(40)
    given = (z[:, 0], y, np.linspace(0.5, 2, 40), np.array([0.4, 0.3, 0.2, 0.1]))
    for x in ([0.0, 2.0], [1.0, -1.0], [-2.0, 0.3]):
        off = check_grad(lambda x: _mixture_loss(x, *given)[0], lambda x: _mixture_loss(x, *given)[1], np.array(x))
        assert off < 1e-4


def test_temperature_and_reliability_are_found_again():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(20_000, 1, 3))
    prior = np.array([0.6, 0.3, 0.1])
    p = 0.8 * softmax(z[:, 0] / 2) + 0.2 * prior
    y = (p.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    temperature, reliability = fit_robust_temperature(z, y, prior)
    np.testing.assert_allclose(temperature, [2.0], rtol=0.07)
    np.testing.assert_allclose(reliability, [0.8], atol=0.02)


def test_the_mixture_heeds_presence_and_weight():
    z, y = draw(80)
    prior = np.full(4, 0.25)
    present = np.random.default_rng(1).random((80, 3)) < 0.7
    found = fit_robust_temperature(np.where(present[:, :, None], z, np.nan), y, prior, present)
    rows = present[:, 1]
    alone = fit_robust_temperature(z[rows, 1:2], y[rows], prior)
    np.testing.assert_allclose([found[0][1], found[1][1]], [alone[0][0], alone[1][0]], rtol=1e-3)
    weight = np.random.default_rng(0).integers(0, 3, size=80)
    twice = np.repeat(np.arange(80), weight)
    one, other = fit_robust_temperature(z, y, prior, weight=weight), fit_robust_temperature(z[twice], y[twice], prior)
    np.testing.assert_allclose(one, other, rtol=1e-3)
    none_present = fit_robust_temperature(z, y, prior, np.zeros((80, 3), dtype=bool))
    assert np.array(none_present).tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    ("opinions", "y", "message"),
    [
        (np.zeros((4, 3)), [0] * 4, r"\[n, modality, class\], got \[4, 3\]"),
        (np.zeros((4, 1, 3)), [0, 1, 3, 2], "label 3 .row 2. is not a class"),
        (np.zeros((4, 1, 3)), [0, 1], "y must be 4 class indices"),
        (np.zeros((2, 1, 3)), [0.0, 1.0], "class indices"),
        (np.array([[[0.0, 1.0]], [[np.nan, 1.0]]]), [0, 1], "finite where present .row 1."),
    ],
)
def test_bad_input_is_named(opinions, y, message):
    with pytest.raises(InputError, match=message):
        fit_temperature(opinions, np.array(y))
