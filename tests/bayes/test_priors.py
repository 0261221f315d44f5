"""Priors: counted, and found again in data whose classes are mixed otherwise."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from consilience import estimate_target_prior, load_data
from consilience.bayes.priors import empirical_prior, maximise_likelihood
from consilience.core.errors import InputError


def test_the_empirical_prior_counts_and_smooths():
    y = np.array([0, 0, 2, 2, 2, 0, 0])
    np.testing.assert_allclose(empirical_prior(y, 3, smoothing=0), [4 / 7, 0, 3 / 7])
    np.testing.assert_allclose(empirical_prior(y, 3), [5 / 10, 1 / 10, 4 / 10])
    weight = np.array([1.0, 0, 2, 0, 0, 0, 0])
    np.testing.assert_allclose(empirical_prior(y, 3, weight=weight), [2 / 6, 1 / 6, 3 / 6])


@pytest.mark.parametrize("y", [np.array([0, 3]), np.array([-1, 0]), np.array([0.0, 1.0]), np.zeros((2, 2), int)])
def test_labels_that_are_no_classes_are_refused(y):
    with pytest.raises(InputError, match="prior"):
        empirical_prior(y, 3)


def log_likelihood(shares, ratio):
    """Of unlabelled data, up to a constant: Σ ln Σ_c q_c p(x | c)."""
    return np.log(ratio @ shares).sum()


def test_the_likelihood_rises_at_every_step_to_the_top():
    rng = np.random.default_rng(0)
    prior = np.array([0.5, 0.3, 0.2])
    posterior = rng.dirichlet([0.5, 0.5, 0.5], size=200)
    ratio = posterior / prior
    course = [maximise_likelihood(np.log(posterior), prior, steps, 0.0) for steps in (0, 1, 2, 3, 5, 10, 100, 3000)]
    reached = [log_likelihood(shares, ratio) for shares in course]
    assert (np.diff(reached) >= -1e-9).all()
    assert reached[1] > reached[0]

    def loss(free):
        shares = np.exp(np.append(free, 0.0))
        return -log_likelihood(shares / shares.sum(), ratio)

    best = minimize(loss, np.zeros(2), tol=1e-12)
    np.testing.assert_allclose(reached[-1], -best.fun, rtol=1e-10)
    shares = np.exp(np.append(best.x, 0.0))
    np.testing.assert_allclose(estimate_target_prior(np.log(posterior), prior), shares / shares.sum(), atol=1e-5)


def test_it_is_exact_where_x_takes_few_values():
    # x in {0, 1, 2} with known p(x | c); counts of x at the target's shares exactly.
    given_class = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    prior, target = np.array([0.8, 0.2]), np.array([0.35, 0.65])
    joint = prior[:, None] * given_class
    posterior = (joint / joint.sum(axis=0)).T
    counts = np.round(10_000 * target @ given_class).astype(int)
    rows = np.repeat(np.arange(3), counts)
    found = estimate_target_prior(posterior[rows], prior, from_probabilities=True, tolerance=1e-13)
    np.testing.assert_allclose(found, target, atol=1e-8)


def test_shares_of_gaussians_are_found_from_opinions_and_their_dependence():
    prior, target = [0.6, 0.3, 0.1], np.array([0.1, 0.2, 0.7])
    options = {"dependence": 0.6, "separation": 1.0, "n_modalities": 3, "prior": prior, "seed": 3}
    data = load_data("gaussians", n=6000, **options)
    truth, samples = data.extra["truth"], data.samples
    rng = np.random.default_rng(0)
    chosen = np.concatenate(
        [rng.choice(np.flatnonzero(samples.y == c), round(1000 * share)) for c, share in enumerate(target)]
    )
    shifted = samples[chosen]
    opinions, log_kappa = truth.opinions(shifted), truth.log_kappa(shifted)
    found = estimate_target_prior(opinions, prior, log_kappa=log_kappa)
    assert np.abs(found - target).sum() < 0.05
    np.testing.assert_allclose(found, estimate_target_prior(truth.log_posterior(shifted), prior), atol=1e-6)
    # Taking dependent experts for independent ones makes them too sure, and the estimate worse.
    assert np.abs(estimate_target_prior(opinions, prior) - target).sum() > np.abs(found - target).sum()


def test_tensors_give_tensors_and_ruled_out_classes_stay_so():
    posterior = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    found = estimate_target_prior(posterior, [0.5, 0.5, 0.0], from_probabilities=True)
    assert isinstance(found, torch.Tensor)
    assert found[2] == 0
    torch.testing.assert_close(found.sum(), torch.tensor(1.0))


def test_whole_numbers_as_logits_do_not_round_the_shares():
    logits = torch.tensor([[3, 0], [2, 0], [0, 1]])
    torch.testing.assert_close(
        estimate_target_prior(logits, [0.5, 0.5]), estimate_target_prior(logits.float(), [0.5, 0.5])
    )


def test_a_posterior_is_checked_like_the_opinion_of_one_expert():
    p, prior = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), [0.5, 0.5]
    expected = estimate_target_prior(np.log(p), prior)
    np.testing.assert_allclose(estimate_target_prior(p.tolist(), prior, from_probabilities=True), expected)
    np.testing.assert_allclose(estimate_target_prior({"only": np.log(p)}, prior), expected)
    present = np.array([[True], [True], [False]])
    np.testing.assert_allclose(
        estimate_target_prior(np.log(p), prior, present=present), estimate_target_prior(np.log(p[:2]), prior), atol=1e-6
    )
    with pytest.raises(InputError, match="sum to one: row 1"):
        estimate_target_prior(np.array([[0.9, 0.1], [2.0, 0.8]]), prior, from_probabilities=True)
    with pytest.raises(InputError, match="hold NaN"):
        estimate_target_prior(np.array([[0.9, np.nan], [0.2, 0.8]]), prior)
    contradicts = np.array([[-np.inf, -np.inf], *np.log(p)])
    np.testing.assert_allclose(estimate_target_prior(contradicts, prior), expected)


def test_a_posterior_of_no_samples_is_refused():
    with pytest.raises(InputError, match="target prior"):
        estimate_target_prior(np.zeros((0, 3)), [0.2, 0.3, 0.5])
    with pytest.raises(InputError, match="no sample"):
        estimate_target_prior(np.full((2, 2), -np.inf), [0.5, 0.5])
