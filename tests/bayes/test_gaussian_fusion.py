"""Gaussian fusion of numbers, compared with closed forms, scipy and generated data."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from consilience.bayes.gaussian_fusion import (
    GaussianRule,
    Measurements,
    fit_noise,
    fit_spread,
    gaussian_posterior,
    invert_subsets,
    shrunk_correlation,
    split_gaussian,
)
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.training import Model, Trainer, load_model

# Unbiased experts whose errors have this covariance.
COVARIANCE = np.array([[0.5, 0.3, 0.1], [0.3, 0.8, 0.0], [0.1, 0.0, 1.2]])


def draw(n, seed=0, covariance=COVARIANCE, mean=0.0, variance=1.0):
    """Targets `[n, 1]` and Gaussian opinions of unbiased experts `[n, modality, 2]`, all of log-variance 0."""
    rng = np.random.default_rng(seed)
    y = rng.normal(mean, np.sqrt(variance), size=(n, 1))
    numbers = y + rng.multivariate_normal(np.zeros(len(covariance)), covariance, size=n)
    return y, np.stack([numbers, np.zeros_like(numbers)], axis=2)


def random_measurements(seed, n=5, targets=2, modalities=3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(targets, modalities, 2 * modalities))
    covariance = root @ root.transpose(0, 2, 1)
    size = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    values = (
        rng.normal(size=(n, targets, modalities)),
        rng.uniform(0, 2, size=(n, targets, modalities)),
        covariance / size[:, :, None] / size[:, None],
        rng.normal(size=targets),
        rng.uniform(0.5, 2, size=targets),
    )
    present = torch.from_numpy(rng.random((n, modalities)) < 0.7)
    return Measurements(*map(torch.from_numpy, values)), present


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1], [0, 2], [0, 1, 2]])
def test_a_wide_prior_gives_the_best_linear_unbiased_estimate(chosen):
    size = np.sqrt(np.diag(COVARIANCE))
    x = np.array([[0.3, -1.0, 2.0]])
    measured = Measurements(
        torch.from_numpy((x / size)[:, None]),
        torch.from_numpy(1 / size)[None, None],
        torch.from_numpy(COVARIANCE / np.outer(size, size))[None],
        torch.zeros(1).double(),
        torch.full((1,), 1e12).double(),
    )
    present = torch.isin(torch.arange(3), torch.tensor(chosen))[None]
    mean, variance, weights = gaussian_posterior(measured, present)
    inverse = np.linalg.inv(COVARIANCE[np.ix_(chosen, chosen)])
    blue = inverse.sum(axis=1) / inverse.sum()
    assert variance.item() == pytest.approx(1 / inverse.sum())
    assert weights[0, 0, chosen].numpy() == pytest.approx(blue)
    assert mean.item() == pytest.approx(x[0, chosen] @ blue)
    assert (weights[0, 0][~present[0]] == 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_it_is_the_conditional_of_the_joint_gaussian(seed):
    measured, present = random_measurements(seed)
    mean, variance, _ = gaussian_posterior(measured, present)
    u, h, correlation, prior, spread = (values.numpy() for values in measured[:5])
    for i in range(len(u)):
        there = np.flatnonzero(present[i].numpy())
        for t in range(u.shape[1]):
            loading = h[i, t, there]
            joint = correlation[t][np.ix_(there, there)] + spread[t] * np.outer(loading, loading)
            gain = spread[t] * loading @ np.linalg.inv(joint)
            assert mean[i, t].item() == pytest.approx(prior[t] + gain @ u[i, t, there])
            assert variance[i, t].item() == pytest.approx(spread[t] - spread[t] * gain @ loading)


def test_inverses_of_subsets():
    measured, _ = random_measurements(0)
    sets = torch.tensor([[False, False, False], [True, False, True]])
    inverse, log_determinant = invert_subsets(measured.correlation, sets)
    assert (inverse[0] == 0).all()
    part = measured.correlation[:, [0, 2]][:, :, [0, 2]]
    torch.testing.assert_close(inverse[1][:, [0, 2]][:, :, [0, 2]], torch.linalg.inv(part))
    torch.testing.assert_close(log_determinant, torch.stack([torch.zeros(2).double(), torch.logdet(part)]))


def test_a_fitted_rule_has_the_closed_form_of_the_true_covariance():
    y, opinions = draw(40000, mean=0.5, variance=2.0)
    rule = GaussianRule(3, 1).double().fit(opinions, y, np.ones((len(y), 3), dtype=bool))
    for chosen in ([0], [0, 1], [0, 1, 2]):
        present = np.tile(np.isin(np.arange(3), chosen), (len(y), 1))
        mean, log_variance = split_gaussian(rule(torch.from_numpy(opinions), torch.from_numpy(present)))
        inverse = np.linalg.inv(COVARIANCE[np.ix_(chosen, chosen)])
        assert log_variance.exp().mean().item() == pytest.approx(1 / (1 / 2.0 + inverse.sum()), rel=0.03)
        assert np.mean((mean.numpy() - y) ** 2) == pytest.approx(1 / (1 / 2.0 + inverse.sum()), rel=0.03)


def test_one_expert_that_is_calibrated_is_left_as_it_is():
    y, opinions = draw(40000, covariance=np.array([[0.5]]))
    shrunk = opinions.copy()
    shrunk[:, :, 0] /= 1.5  # the posterior mean of N(0, 1) and a measurement of variance 0.5
    rule = GaussianRule(1, 1).double().fit(shrunk, y, np.ones((len(y), 1), dtype=bool))
    fused = rule(torch.from_numpy(shrunk), torch.ones(len(y), 1, dtype=torch.bool))
    assert fused[:, 0].numpy() == pytest.approx(shrunk[:, 0, 0], abs=0.05)
    assert fused[:, 1].exp().numpy() == pytest.approx(1 / 3, rel=0.03)


def test_without_modalities_it_is_the_prior():
    y, opinions = draw(100, mean=3.0, variance=4.0)
    weight = np.random.default_rng(0).random(100)
    rule = GaussianRule(3, 1).double().fit(opinions, y, np.ones((100, 3), dtype=bool), weight=weight)
    fused, weights = rule.fuse(torch.from_numpy(opinions[:2]), torch.zeros(2, 3, dtype=torch.bool))
    mean = np.average(y[:, 0], weights=weight)
    assert fused[:, 0].numpy() == pytest.approx(mean)
    assert fused[:, 1].exp().numpy() == pytest.approx(np.average((y - mean) ** 2, axis=0, weights=weight)[0])
    assert (weights == 0).all()


def test_weights_of_samples_are_repetitions():
    y, opinions = draw(60)
    present = np.random.default_rng(1).random((60, 3)) < 0.8
    repeats = np.random.default_rng(2).integers(1, 4, 60)
    rule = GaussianRule(3, 1, dependent=False).double().fit(opinions, y, present, weight=repeats)
    again = [np.repeat(values, repeats, axis=0) for values in (opinions, y, present)]
    same = GaussianRule(3, 1, dependent=False).double().fit(*again)
    for name, values in rule.named_buffers():
        torch.testing.assert_close(values, getattr(same, name))


def test_correlations_of_many_samples_are_numpys_and_of_few_are_shrunk():
    errors = draw(20000, variance=1e-12)[1][:, :, 0]
    full, ones = np.ones(errors.shape, dtype=bool), np.ones(len(errors))
    found = shrunk_correlation(errors, full, ones)
    assert found == pytest.approx(np.corrcoef(errors.T), abs=0.02)
    few = shrunk_correlation(errors[:8], full[:8], ones[:8])
    off, scaled = ~np.eye(3, dtype=bool), errors[:8] / np.linalg.norm(errors[:8], axis=0)
    ratio = few[off] / (scaled.T @ scaled)[off]
    assert ratio == pytest.approx(ratio[0])
    assert 0 < ratio[0] < 0.9
    assert np.linalg.eigvalsh(few).min() > 0


def test_modalities_that_never_meet_are_independent():
    errors = np.random.default_rng(0).normal(size=(100, 2))
    present = np.arange(200).reshape(100, 2) % 4 < 2
    present[:, 1] = ~present[:, 0]
    assert shrunk_correlation(errors, present, np.ones(100)) == pytest.approx(np.eye(2))


def test_copies_of_an_expert_add_nothing():
    y, opinions = draw(2000, covariance=np.array([[0.5]]))
    present = np.ones((2000, 4), dtype=bool)
    rule = GaussianRule(4, 1).double().fit(np.repeat(opinions, 4, axis=1), y, present)
    alone = GaussianRule(1, 1).double().fit(opinions, y, present[:, :1])
    four = rule(torch.from_numpy(np.repeat(opinions, 4, axis=1)), torch.from_numpy(present))
    one = alone(torch.from_numpy(opinions), torch.from_numpy(present[:, :1]))
    torch.testing.assert_close(four, one, rtol=0.02, atol=0.02)


def test_noise_that_an_expert_knows_is_found_and_other_noise_is_not():
    rng = np.random.default_rng(0)
    y, said, ones = rng.normal(size=20000), rng.normal(size=20000), np.ones(20000)
    numbers = y + rng.normal(size=20000) * np.exp(0.5 * (0.7 + said))
    alpha, power = fit_noise(y, numbers, said, 1.0, 1.0, ones, 1e-9)
    assert (alpha, power) == pytest.approx((0.7, 1.0), abs=0.2)
    assert fit_noise(y, y + rng.normal(size=20000), said, 1.0, 1.0, ones, 1e-9)[1] == 0
    # The error grows with the number, but a large number is right to be large.
    skewed = rng.gamma(1.0, size=20000)
    drawn = skewed * rng.exponential(size=20000) - 1
    slope = np.cov(drawn, skewed)[0, 1] / drawn.var()
    assert fit_noise(drawn, skewed - 1, np.log(skewed), slope, drawn.var(), ones, 1e-9)[1] == 0


def test_the_fused_variance_is_calibrated():
    rng = np.random.default_rng(0)
    said = rng.normal(size=20000)
    errors = rng.normal(size=20000) * np.exp(0.5 * (0.7 + 0.5 * said))
    assert fit_spread(errors, said, np.ones(20000)) == pytest.approx((0.7, 0.5), abs=0.1)
    assert fit_spread(rng.normal(size=20000), said, np.ones(20000))[1] == 0


def test_an_expert_that_knows_its_errors_gets_more_weight_where_they_are_small():
    rng = np.random.default_rng(0)
    y, log_variances = rng.normal(size=(3000, 1)), rng.uniform(-3, 1, size=(3000, 2))
    numbers = y + rng.normal(size=(3000, 2)) * np.exp(0.5 * log_variances)
    opinions, present = np.stack([numbers, log_variances], axis=2), np.ones((3000, 2), dtype=bool)
    rule = GaussianRule(2, 1).double().fit(opinions, y, present)
    fused, weights = rule.fuse(torch.from_numpy(opinions), torch.from_numpy(present))
    first = log_variances[:, 0] < log_variances[:, 1]
    assert (weights[:, 0] > weights[:, 1]).numpy()[first].mean() > 0.95
    exact = numbers / np.exp(log_variances)
    best = exact.sum(axis=1) / (1 + np.exp(-log_variances).sum(axis=1))
    assert np.mean((fused[:, 0].numpy() - y[:, 0]) ** 2) < 1.02 * np.mean((best - y[:, 0]) ** 2)
    density = multivariate_normal(0, 1).logpdf((y - fused[:, :1].numpy())[:, 0] / fused[:, 1].mul(0.5).exp().numpy())
    assert -density.mean() == pytest.approx(0.5 * np.log(2 * np.pi) + 0.5, abs=0.05)


@pytest.mark.parametrize("opinion", [0.0, 5.0])
def test_useless_experts_change_nothing(opinion):
    y, opinions = draw(200, covariance=np.diag([0.5, 0.5]))
    opinions[:, 1, 0] = opinion  # always the same number
    present = np.ones((200, 2), dtype=bool)
    rule = GaussianRule(2, 1).double().fit(opinions, y, present)
    both = rule(torch.from_numpy(opinions), torch.from_numpy(present))
    present[:, 1] = False
    torch.testing.assert_close(rule(torch.from_numpy(opinions), torch.from_numpy(present)), both)


def sensors(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 2))
    mix = np.random.default_rng(99).normal(size=(3, 2, 5))
    values = {f"sensor{m}": y @ mix[m] + rng.normal(size=(n, 5)) for m in range(3)}
    return Samples.of(values, y * [1.0, 10.0])


@pytest.fixture(scope="module")
def trained():
    return {
        name: Model.fit(name, sensors(400, 0), settings=own, trainer=Trainer(epochs=8, lr=0.01, device="cpu"))
        for name, own in (("late", {}), ("bayes", {"folds": 2}), ("bayes-robust", {"folds": 2}))
    }


def squared_error(model, samples):
    return np.mean((model.predict(samples, device="cpu").output.numpy() - model.task.encode(samples.y)) ** 2)


def test_a_broken_sensor_does_less_harm(trained):
    test = sensors(600, 1)
    hit = Corruptor(sensors(400, 0)).apply(test, "gaussian", 10, modalities=["sensor0"], probability=0.5)
    errors = {name: [squared_error(model, samples) for samples in (test, hit)] for name, model in trained.items()}
    assert errors["bayes-robust"][1] < 0.8 * errors["late"][1]
    assert errors["bayes-robust"][1] < 0.8 * errors["bayes"][1]
    assert errors["bayes-robust"][0] < 1.05 * errors["bayes"][0] < 1.1 * errors["late"][0]
    broken = np.abs(hit["sensor0"] - test["sensor0"]).max(axis=1) > 0
    trust = trained["bayes-robust"].predict(hit, device="cpu").weights[:, 0].numpy()
    assert trust[broken].mean() < 0.2 < 0.7 < trust[~broken].mean()


@pytest.mark.parametrize("name", ["bayes", "bayes-robust"])
def test_the_variance_is_that_of_the_error(trained, name):
    test = sensors(600, 1)
    found = trained[name].predict(test, device="cpu")
    scaled = (found.output.numpy() - trained[name].task.encode(test.y)) ** 2 / found.extra["variance"].numpy()
    assert scaled.mean(axis=0) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("name", ["bayes", "bayes-robust"])
def test_predictions_without_modalities_and_after_saving(trained, name, tmp_path):
    test = sensors(50, 1)
    nothing = trained[name].predict(test.replaced({}, present=np.zeros((50, 3), dtype=bool)), device="cpu")
    assert nothing.output.numpy() == pytest.approx(0, abs=1e-6)  # the standardised mean of the training targets
    assert nothing.extra["variance"].numpy() == pytest.approx(1, rel=1e-5)
    again, _ = load_model(trained[name].save(tmp_path / "model"))
    found, expected = (model.predict(test, device="cpu") for model in (again, trained[name]))
    assert torch.equal(found.output, expected.output)
    assert torch.equal(found.extra["variance"], expected.extra["variance"])
