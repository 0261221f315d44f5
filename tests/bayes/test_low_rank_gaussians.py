"""Gaussians of low rank: the densities of scipy, and covariances that are found where they have low rank."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from consilience.bayes.class_gaussians import fit_gaussian
from consilience.bayes.low_rank_gaussians import MAX_RANK, LowRankGaussian, choose_rank, fit_low_rank_gaussian

WIDTHS = (4, 3, 5)


def some_gaussian(rank=3, classes=4):
    rng = np.random.default_rng(0)
    features = sum(WIDTHS)
    parts = (
        3 * rng.normal(size=(classes, features)),
        rng.uniform(0.01, 2, features),
        rng.normal(size=(features, rank)),
        rng.uniform(0.5, 2, classes),
    )
    return LowRankGaussian(*map(torch.from_numpy, parts), WIDTHS)


def covariance_of(gaussian, number):
    shared = torch.diag(gaussian.variance) + gaussian.factors @ gaussian.factors.T
    return (gaussian.level[number] * shared).numpy()


@pytest.mark.parametrize("rank", [0, 1, 3, 12])
def test_densities_and_kappa_are_those_of_scipy_for_every_pattern(rank):
    gaussian = some_gaussian(rank)
    masks = np.array(list(itertools.product([False, True], repeat=3)) * 2)
    x = 3 * np.random.default_rng(1).normal(size=(len(masks), 12))
    hidden = torch.from_numpy(np.where(np.repeat(masks, WIDTHS, axis=1), x, np.nan))
    log_density, log_kappa = gaussian.log_density_and_kappa(hidden, torch.from_numpy(masks))
    ends = np.cumsum([0, *WIDTHS])
    for row, mask in enumerate(masks):
        for number in range(4):

            def density(seen, row=row, number=number):
                columns = np.concatenate([np.arange(ends[m], ends[m + 1]) for m in seen])
                covariance = covariance_of(gaussian, number)[np.ix_(columns, columns)]
                return multivariate_normal(gaussian.mean[number, columns].numpy(), covariance).logpdf(x[row, columns])

            seen = np.flatnonzero(mask)
            joint = density(seen) if len(seen) else 0.0
            own = sum(density([modality]) for modality in seen)
            np.testing.assert_allclose(log_density[row, number], joint, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(log_kappa[row, number], joint - own, rtol=1e-9, atol=1e-8)


def draw(n, seed=0, classes=5, rank=2):
    """Features with common factors of a rank, classes of different spread, in units of very different size."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    loadings = np.array([[1.0] * 12, [1.0, -1.0] * 6])[:rank]  # all features have the same share of noise
    noise = rng.normal(size=(n, rank)) @ loadings + rng.normal(size=(n, 12))
    x = (noise * (1 + 0.2 * y[:, None]) + 4 * y[:, None]) * np.geomspace(1e-3, 1e3, 12)
    return torch.from_numpy(x), torch.from_numpy(y)


def correlation(covariance):
    size = np.sqrt(np.diag(covariance))
    return covariance / np.outer(size, size)


def test_a_covariance_of_low_rank_is_found():
    x, y = draw(20_000)
    found = fit_low_rank_gaussian(x, y, 5, WIDTHS)
    assert found.factors.shape == (12, 2)
    full = fit_gaussian(x, y, 5, WIDTHS, covariance="tied")
    assert np.abs(correlation(covariance_of(found, 0)) - correlation(full.covariance[0].numpy())).max() < 0.15
    own = torch.stack([x[y == number].var(0) / x.var(0) for number in range(5)]).mean(1)
    assert (found.level.argsort() == own.argsort()).all()


def test_independent_features_have_rank_0():
    x = torch.randn(3000, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert fit_low_rank_gaussian(x, torch.arange(3000) % 5, 5, WIDTHS).factors.shape == (12, 0)


def test_the_rank_is_bounded():
    assert choose_rank(torch.linspace(50, 40, 80), 4000, 10**6)[0] == MAX_RANK
    assert choose_rank(torch.tensor([2.0, 0.0]), 2, 100) == (1, 0.0)


def test_samples_that_lack_a_modality_do_not_weaken_the_dependence_between_the_others():
    x, y = draw(20_000)
    present = torch.from_numpy(np.random.default_rng(5).random((20_000, 3)) < 0.6)
    mask = present.repeat_interleave(torch.tensor(WIDTHS), dim=1)
    found = fit_low_rank_gaussian(torch.where(mask, x, torch.nan), y, 5, WIDTHS, present)
    complete = fit_low_rank_gaussian(x, y, 5, WIDTHS)
    off = correlation(covariance_of(found, 0)) - correlation(covariance_of(complete, 0))
    assert np.abs(off).max() < 0.1


@pytest.mark.parametrize("trouble", ["constant", "duplicate", "one sample", "unseen class", "never together", "few"])
def test_degenerate_data_leave_a_proper_density(trouble):
    x, y = draw(4 if trouble == "few" else 60)
    present = torch.ones(len(x), 3, dtype=torch.bool)
    if trouble == "constant":
        x[:, 1] = 4.0
    elif trouble == "duplicate":
        x[:, 5:8] = x[:, :1]
    elif trouble == "one sample":
        y[y == 2] = 1
        y[0] = 2
    elif trouble == "unseen class":
        y[y == 2] = 1
    elif trouble == "never together":
        present[::2, 0] = False
        present[1::2, 1] = False
    gaussian = fit_low_rank_gaussian(x, y, 5, WIDTHS, present)
    for part in gaussian.log_density_and_kappa(x):
        assert torch.isfinite(part).all()


def test_fitting_neither_uses_nor_changes_the_global_generator():
    x, y = draw(300)
    torch.manual_seed(1)
    first, state = fit_low_rank_gaussian(x, y, 5, WIDTHS), torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(fit_low_rank_gaussian(x, y, 5, WIDTHS).factors, first.factors)
