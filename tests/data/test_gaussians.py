import itertools

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from consilience.core.errors import UnknownNameError
from consilience.data import load_data


@pytest.fixture(scope="module", params=[0.0, 0.6])
def data(request):
    return load_data(
        "gaussians", n=60, n_modalities=3, n_classes=3, d=2, dependence=request.param, prior=[0.5, 0.3, 0.2]
    )


def likelihood(truth, x, seen):
    """ln p of the modalities seen given each class, by scipy: [n, class]."""
    d = truth.means.shape[2]
    features = np.concatenate([np.arange(j * d, (j + 1) * d) for j in seen])
    return np.stack(
        [
            multivariate_normal(mean.reshape(-1)[features], truth.covariance[np.ix_(features, features)]).logpdf(
                x[:, seen].reshape(len(x), -1)
            )
            for mean in truth.means
        ],
        axis=1,
    )


def test_posterior_of_every_subset_agrees_with_scipy(data):
    truth = data.extra["truth"]
    x = np.stack([data.samples[name] for name in truth.names], axis=1)
    for size in (1, 2, 3):
        for seen in itertools.combinations(range(3), size):
            present = np.zeros((len(x), 3), bool)
            present[:, seen] = True
            scores = likelihood(truth, x, list(seen)) + np.log(truth.prior)
            expected = scores - logsumexp(scores, axis=1, keepdims=True)
            assert np.allclose(truth.log_posterior(data.samples, present), expected)
            assert np.allclose(
                truth.log_posterior({truth.names[j]: x[:, j] for j in seen}), expected
            )  # absent from the mapping
            own = sum(likelihood(truth, x, [j]) for j in seen)
            assert np.allclose(truth.log_kappa(data.samples, present), likelihood(truth, x, list(seen)) - own)


def test_rows_with_different_masks_are_each_answered(data):
    truth = data.extra["truth"]
    present = np.random.default_rng(0).random((len(data), 3)) < 0.6
    together = truth.log_posterior(data.samples, present)
    for row in range(len(data)):
        alone = truth.log_posterior(data.samples[[row]], present[[row]])
        assert np.allclose(together[row], alone[0])
    nothing = truth.log_posterior(data.samples, np.zeros((len(data), 3), bool))
    assert np.allclose(nothing, np.log(truth.prior))


def test_the_fusion_formula_holds_exactly(data):
    """ln π + Σ_j (ln p(c|x_j) − ln π) + ln κ, normalised, is the joint posterior."""
    truth = data.extra["truth"]
    prior = np.log(truth.prior)
    scores = prior + (truth.opinions(data.samples) - prior).sum(axis=1) + truth.log_kappa(data.samples)
    fused = scores - logsumexp(scores, axis=1, keepdims=True)
    assert np.allclose(fused, truth.log_posterior(data.samples))


def test_kappa_is_one_without_dependence():
    data = load_data("gaussians", n=50, dependence=0)
    assert np.allclose(data.extra["truth"].log_kappa(data.samples), 0)


def test_samples_follow_the_truth():
    data = load_data("gaussians", n=20_000, dependence=0.5, prior=[0.6, 0.3, 0.1])
    truth = data.extra["truth"]
    x = np.concatenate([data.samples[name] for name in truth.names], axis=1)
    assert np.bincount(data.y) / len(data) == pytest.approx(truth.prior, abs=0.02)
    for label in range(3):
        own = x[data.y == label]
        assert np.allclose(own.mean(axis=0), truth.means[label].reshape(-1), atol=0.1)
        assert np.allclose(np.cov(own.T), truth.covariance, atol=0.1)


def test_unknown_modalities_are_named():
    truth = load_data("gaussians", n=50).extra["truth"]
    with pytest.raises(UnknownNameError, match="modality 'm4'"):
        truth.log_posterior({"m4": np.zeros((2, 4))})
