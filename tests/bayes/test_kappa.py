"""The convex fit of calibrated κ: its gradient, its optimum, and what it finds where the answer is known."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from consilience import load_data
from consilience.bayes.kappa import (
    RIDGES,
    choose_ridge,
    coefficient_share,
    cross_fit,
    fit_coefficients,
    spread_folds,
)
from consilience.core.errors import InputError


def problem(n=400, modalities=3, classes=3, seed=0, missing=0.0):
    """Evidence, labels, prior, presence and estimates, as numbers without a meaning."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    own = np.eye(classes)[y]
    evidence = own[:, None] * rng.uniform(0.2, 2, (1, modalities, 1)) + rng.normal(size=(n, modalities, classes))
    present = rng.random((n, modalities)) >= missing
    estimate = [torch.from_numpy(0.5 * own + rng.normal(size=(n, classes))) for _ in range(2)]
    prior = np.array([0.5, 0.3, 0.2])
    return (
        torch.from_numpy(evidence),
        torch.from_numpy(y),
        torch.from_numpy(np.log(prior)),
        torch.from_numpy(present),
        estimate,
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_fit_is_the_optimum_of_the_penalised_loss(missing):
    evidence, y, log_prior, present, estimate = problem(missing=missing)
    found = fit_coefficients(evidence, y, log_prior, present, (estimate[0], estimate[1]), ridge=0.01)

    # The same loss written plainly, with τ and δ as numbers of their own.
    share = coefficient_share(present).numpy()[:, None]
    counted = np.where(present[:, :, None], evidence, 0.0)
    counted = counted - counted.mean(2, keepdims=True)
    extra = [values.numpy() - values.numpy().mean(1, keepdims=True) for values in estimate]
    rms = [np.sqrt(np.mean((share * values) ** 2)) for values in (counted.sum(1), *counted.transpose(1, 0, 2), *extra)]

    def loss(x):
        tau, delta, alpha, beta = x[0], x[1:4], x[4], x[5]
        weight = (1 - share) + share * (tau + delta)
        scores = (
            log_prior.numpy() + (weight[:, :, None] * counted).sum(1) + share * (alpha * extra[0] + beta * extra[1])
        )
        total = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(y)), y]
        penalty = 3 * (np.array(rms[1:]) ** 2 @ x[1:] ** 2) + 0.01 * (rms[0] * tau) ** 2
        return total.sum() + penalty / 2

    best = minimize(
        loss,
        np.full(6, 0.3),
        method="L-BFGS-B",
        bounds=[(0, None)] + [(None, None)] * 3 + [(0, None)] * 2,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxfun": 100_000},
    )
    ours = [*found.weights, found.alpha, found.beta]
    np.testing.assert_allclose(ours, [*(best.x[0] + best.x[1:4]), *best.x[4:]], atol=2e-4)


def test_the_ridge_is_the_one_of_the_smallest_cross_fitted_loss():
    evidence, y, log_prior, present, estimate = problem(60)
    for scale in (1.0, 30.0):  # right opinions that are far too small or large
        common = (scale * evidence, y, log_prior, present, (estimate[0], estimate[1]))
        fold_of, losses = spread_folds(y.numpy(), 3), []
        z = scale * evidence.numpy()
        for ridge in RIDGES:
            losses.append(0.0)
            for fold in range(3):
                found = fit_coefficients(*common, (fold_of != fold).astype(float), ridge=ridge)
                scores = log_prior.numpy() + np.tensordot(z, found.weights, ([1], [0]))
                scores += found.alpha * estimate[0].numpy() + found.beta * estimate[1].numpy()
                scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
                losses[-1] -= scores[fold_of == fold, y.numpy()[fold_of == fold]].sum()
        ridge, held_out = choose_ridge(*common)
        assert ridge == RIDGES[int(np.argmin(losses))]
        np.testing.assert_allclose(held_out.sum(), min(losses), rtol=1e-6)
    assert choose_ridge(*(values[:20] for values in common[:2]), log_prior, present[:20], estimate)[0] == RIDGES[0]


def test_with_the_true_kappa_of_dependent_gaussians_nothing_needs_changing():
    data = load_data("gaussians", n=20_000, n_modalities=3, n_classes=3, dependence=0.6, separation=0.6, seed=1)
    truth, samples = data.extra["truth"], data.samples
    log_prior = torch.from_numpy(np.log(truth.prior))
    evidence = torch.from_numpy(truth.opinions(samples)) - log_prior
    log_kappa = torch.from_numpy(truth.log_kappa(samples))
    present = torch.ones(evidence.shape[:2], dtype=torch.bool)
    found = fit_coefficients(evidence, torch.from_numpy(samples.y), log_prior, present, (log_kappa, None))
    np.testing.assert_allclose(found.weights, 1, atol=0.1)
    np.testing.assert_allclose(found.alpha, 1, atol=0.1)
    assert found.beta == 0


def test_an_estimate_that_says_nothing_gets_no_weight():
    evidence, y, log_prior, present, estimate = problem(2000)
    noise = torch.randn(2000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    against = -estimate[1]  # worse than nothing: coefficients are not negative
    found = fit_coefficients(evidence, y, log_prior, present, (noise, against))
    assert found.alpha < 0.1
    assert found.beta == 0


def test_a_problem_without_mistakes_keeps_finite_coefficients():
    evidence, y, log_prior, present, _ = problem(100)
    right = 20.0 * torch.nn.functional.one_hot(y, 3).double()
    found = fit_coefficients(right[:, None] + 0 * evidence, y, log_prior, present, (right, right))
    assert np.isfinite(found.weights).all()
    assert found.weights.max() < 10


def test_experts_who_were_never_heard_together_keep_the_theorem():
    evidence, y, log_prior, present, estimate = problem(60)
    turns = torch.nn.functional.one_hot(torch.arange(60) % present.shape[1], present.shape[1]).bool()
    found = fit_coefficients(evidence, y, log_prior, turns, estimate)
    assert found.weights.tolist() == [1.0] * present.shape[1]
    assert found.alpha == found.beta == 0


def test_a_weight_of_two_is_the_sample_twice():
    evidence, y, log_prior, present, (first, second) = problem(150)
    twice = torch.cat([torch.arange(150), torch.arange(50)])
    weight = np.r_[np.full(50, 2.0), np.ones(100)]
    one = fit_coefficients(evidence, y, log_prior, present, (first, second), weight)
    other = fit_coefficients(evidence[twice], y[twice], log_prior, present[twice], (first[twice], second[twice]))
    # The scale of the features, and with it the ridge, is measured without weights: nearly the same, not exactly.
    np.testing.assert_allclose(one.weights, other.weights, atol=0.02)


def test_cross_fitting_judges_no_sample_by_a_model_that_saw_it():
    y = np.arange(53) % 3

    def fit(rows):
        def judge(judged):
            assert not set(rows) & set(judged)
            assert len(rows) + len(judged) == 53
            return torch.from_numpy(judged)[:, None], None

        return judge

    found, nothing = cross_fit(fit, y)
    assert found[:, 0].tolist() == list(range(53))
    assert nothing is None


def test_folds_hold_their_share_of_every_class():
    y = np.random.default_rng(0).integers(0, 4, 103)
    counts = np.stack([np.bincount(y[spread_folds(y, 5) == fold], minlength=4) for fold in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1


def test_groups_stay_together_and_classes_are_spread():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 40, 600)
    y = (groups + rng.integers(0, 2, 600)) % 3
    fold_of = spread_folds(y, 5, groups)
    assert all(len(np.unique(fold_of[groups == group])) == 1 for group in range(40))
    counts = np.stack([np.bincount(y[fold_of == fold], minlength=3) for fold in range(5)])
    assert (counts > 0.5 * counts.mean(axis=0)).all()
    assert set(spread_folds(y, 5, groups % 3)) == {0, 1, 2}
    with pytest.raises(InputError, match="at least 2 groups"):
        spread_folds(y, 5, np.zeros(600))
