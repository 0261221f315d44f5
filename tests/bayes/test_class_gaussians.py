"""Class-conditional Gaussians against the closed form, scipy and scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf

from consilience import load_data
from consilience.bayes.class_gaussians import ClassGaussian, contrasts, fit_gaussian, patterns
from consilience.core.errors import InputError, UnknownNameError

WIDTHS = (2, 1, 3)


def some_gaussian(seed=0, classes=3, widths=WIDTHS):
    """Random means and covariances."""
    rng = np.random.default_rng(seed)
    features = sum(widths)
    root = rng.normal(size=(classes, features, features + 2))
    mean = rng.normal(size=(classes, features))
    return ClassGaussian(torch.from_numpy(mean), torch.from_numpy(root @ root.transpose(0, 2, 1)), tuple(widths))


def columns_of(seen, widths=WIDTHS):
    ends = np.cumsum([0, *widths])
    return np.concatenate([np.arange(ends[modality], ends[modality + 1]) for modality in seen])


def density(gaussian, x, seen):
    """By scipy: `[n, class]`."""
    columns = columns_of(seen, gaussian.widths)
    each = [
        multivariate_normal(mean[columns].numpy(), covariance[columns][:, columns].numpy()).logpdf(x[:, columns])
        for mean, covariance in zip(gaussian.mean, gaussian.covariance)
    ]
    return np.stack([np.atleast_1d(values) for values in each], axis=1)


def test_densities_and_kappa_are_those_of_scipy_for_every_pattern():
    gaussian = some_gaussian()
    masks = np.array(list(itertools.product([False, True], repeat=3)) * 2)
    x = np.random.default_rng(1).normal(size=(len(masks), 6)) * 2
    garbage = torch.from_numpy(np.where(np.repeat(masks, WIDTHS, axis=1), x, np.nan))
    log_density, log_kappa = gaussian.log_density_and_kappa(garbage, torch.from_numpy(masks))
    for row, mask in enumerate(masks):
        seen = np.flatnonzero(mask)
        if not len(seen):
            assert (log_density[row] == 0).all()
            assert (log_kappa[row] == 0).all()
            continue
        joint = density(gaussian, x[row : row + 1], seen)[0]
        own = sum(density(gaussian, x[row : row + 1], [modality])[0] for modality in seen)
        np.testing.assert_allclose(log_density[row], joint, rtol=1e-10)
        np.testing.assert_allclose(log_kappa[row], joint - own, rtol=1e-8, atol=1e-9)


@given(seed=st.integers(0, 1000), order=st.permutations(range(3)))
@settings(max_examples=25, deadline=None)
def test_kappa_obeys_the_chain_rule_in_any_order(seed, order):
    """ln κ of three is ln κ of two and that of the third with the two taken for one."""
    gaussian = some_gaussian(seed)
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(4, 6)))
    pair = torch.zeros(4, 3, dtype=torch.bool)
    pair[:, list(order[:2])] = True
    first = gaussian.log_kappa(x, pair)
    columns = columns_of([*order[:2], order[2]])
    merged = ClassGaussian(
        gaussian.mean[:, columns],
        gaussian.covariance[:, columns][:, :, columns],
        (WIDTHS[order[0]] + WIDTHS[order[1]], WIDTHS[order[2]]),
    )
    torch.testing.assert_close(first + merged.log_kappa(x[:, columns]), gaussian.log_kappa(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("modalities", [2, 4, 6])
def test_it_is_the_truth_of_the_gaussians_with_their_parameters(modalities):
    data = load_data("gaussians", n=300, n_modalities=modalities, dependence=0.7, seed=modalities)
    truth, samples = data.extra["truth"], data.samples
    gaussian = ClassGaussian(
        torch.from_numpy(truth.means.reshape(3, -1)),
        torch.from_numpy(truth.covariance).repeat(3, 1, 1),
        (4,) * modalities,
    )
    x = torch.from_numpy(np.concatenate([samples[name] for name in samples.names], axis=1))
    present = np.random.default_rng(0).random((300, modalities)) < 0.7
    log_density, log_kappa = gaussian.log_density_and_kappa(x, torch.from_numpy(present))
    np.testing.assert_allclose(log_density, truth.log_likelihood(samples, present), atol=1e-10)
    np.testing.assert_allclose(log_kappa, truth.log_kappa(samples, present), atol=1e-10)


def draw(n=200, classes=3, features=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    mix = rng.normal(size=(classes, features, features)) * [0.1, 1.0, 1.0, 5.0, 20.0]
    x = np.einsum("nf,nfg->ng", rng.normal(size=(n, features)), mix[y]) + 3 * y[:, None]
    return torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("covariance", ["tied", "class", "half"])
def test_covariances_are_shrunk_as_scikit_learn_does(covariance):
    x, y = draw()
    found = fit_gaussian(x, y, 3, [2, 3], covariance=covariance)
    means = np.stack([x[y == c].mean(0).numpy() for c in range(3)])
    np.testing.assert_allclose(found.mean, means, rtol=1e-12)
    away = x.numpy() - means[y]
    scale = away.std(axis=0)
    tied = ledoit_wolf(away / scale, assume_centered=True)[0]
    for c in range(3):
        own = ledoit_wolf(away[y == c] / scale, assume_centered=True)[0]
        expected = {"tied": tied, "class": own, "half": (tied + own) / 2}[covariance]
        np.testing.assert_allclose(found.covariance[c], expected * np.outer(scale, scale), rtol=1e-9)


def test_what_is_missing_is_left_out_of_means_and_covariances():
    x, y = draw(2000)
    present = torch.from_numpy(np.random.default_rng(5).random((2000, 2)) < 0.6)
    mask = present.repeat_interleave(torch.tensor([2, 3]), dim=1)
    found = fit_gaussian(torch.where(mask, x, torch.nan), y, 3, [2, 3], present)
    for c in range(3):
        rows = (y == c) & present[:, 0]
        torch.testing.assert_close(found.mean[c, :2], x[rows, :2].mean(0))
    complete = fit_gaussian(x, y, 3, [2, 3])
    size = complete.covariance.diagonal(dim1=1, dim2=2).sqrt()
    off = (found.covariance - complete.covariance) / (size[:, :, None] * size[:, None])
    assert off.abs().max() < 0.3
    assert torch.linalg.eigvalsh(found.covariance).min() > 0


@pytest.mark.parametrize("trouble", ["constant", "duplicate", "one sample", "unseen class", "never together"])
def test_degenerate_data_leave_a_proper_density(trouble):
    x, y = draw(30)
    present = torch.ones(30, 2, dtype=torch.bool)
    if trouble == "constant":
        x[:, 1] = 4.0
    elif trouble == "duplicate":
        x[:, 3] = x[:, 0]
    elif trouble == "one sample":
        y[y == 2] = 1
        y[0] = 2
    elif trouble == "unseen class":
        y[y == 2] = 1
    else:
        present[::2, 0] = False
        present[1::2, 1] = False
    gaussian = fit_gaussian(x, y, 3, [2, 3], present)
    for part in gaussian.log_density_and_kappa(x):
        assert torch.isfinite(part).all()


@given(classes=st.integers(2, 12))
@settings(deadline=None)
def test_contrasts_are_orthonormal_and_blind_to_offsets(classes):
    basis = contrasts(classes)
    torch.testing.assert_close(basis.T @ basis, torch.eye(classes - 1, dtype=torch.float64))
    torch.testing.assert_close(basis.sum(0), torch.zeros(classes - 1, dtype=torch.float64), atol=1e-12, rtol=0)


def test_gradients_are_finite_with_nan_in_absent_slots():
    gaussian = some_gaussian()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True, False, True]] * 5)
    hidden = torch.where(present.repeat_interleave(torch.tensor(WIDTHS), dim=1), x, torch.nan)
    gaussian.log_kappa(hidden, present).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[:, 2] == 0).all()


def test_patterns_cover_every_row_that_sees_something():
    present = torch.from_numpy(np.random.default_rng(0).random((50, 3)) < 0.5)
    covered = []
    for rows, seen in patterns(present):
        expected = torch.zeros(3, dtype=torch.bool)
        expected[seen] = True
        assert (present[rows] == expected).all()
        covered += rows.tolist()
    assert sorted(covered) == present.any(1).nonzero()[:, 0].tolist()


def test_bad_input_is_named():
    x, y = draw(30)
    with pytest.raises(UnknownNameError, match="did you mean 'tied'"):
        fit_gaussian(x, y, 3, [2, 3], covariance="tide")
    with pytest.raises(InputError, match="widths"):
        fit_gaussian(x, y, 3, [2, 2])
    with pytest.raises(InputError, match="5 features"):
        fit_gaussian(x, y, 3, [2, 3]).log_kappa(x[:, :4])
