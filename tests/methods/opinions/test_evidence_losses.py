"""Dirichlet losses against numerical integration, their textbook form in scipy, and arithmetic of 300 digits."""

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln, roots_legendre

from consilience.methods.opinions.evidence import (
    digamma_of_exp,
    divergence_from_uniform,
    evidential_losses,
    expected_cross_entropy,
)


def log_of(*alpha):
    return torch.tensor([alpha], dtype=torch.float64).log()


def textbook_divergence(alpha):
    """KL(Dir(α) ‖ Dir(1)) for an array `[row, class]`."""
    total, classes = alpha.sum(1), alpha.shape[1]
    pull = (alpha - 1) * (digamma(alpha) - digamma(total)[:, None])
    return gammaln(total) - gammaln(alpha).sum(1) - gammaln(classes) + pull.sum(1)


def expectation(function, alpha):
    """E[f(p, density)] over a Dirichlet of two or three classes: quadrature on the simplex, by breaking a stick."""
    node, weight = roots_legendre(600)
    node, weight = (node + 1) / 2, weight / 2
    if len(alpha) == 2:
        p, area = np.stack([node, 1 - node]), weight
    else:
        first, second = np.meshgrid(node, node)
        p = np.stack([first, (1 - first) * second, (1 - first) * (1 - second)])
        area = np.outer(weight, weight) * (1 - first)
    constant = math.exp(math.lgamma(sum(alpha)) - sum(map(math.lgamma, alpha)))
    density = constant * np.prod([share ** (a - 1) for share, a in zip(p, alpha)], axis=0)
    return (function(p, density) * density * area).sum()


@pytest.mark.parametrize("alpha", [(1.0, 1.0), (3.5, 1.4), (2.0, 40.0), (2.0, 1.5, 4.0)])
def test_losses_are_the_integrals_they_stand_for(alpha):
    log_alpha, uniform = log_of(*alpha), math.lgamma(len(alpha))
    for y in range(len(alpha)):
        expected = expectation(lambda p, _, y=y: -np.log(p[y]), alpha)
        assert expected_cross_entropy(log_alpha, torch.tensor([y])).item() == pytest.approx(expected, abs=2e-6)
    divergence = expectation(lambda _, density: np.log(density) - uniform, alpha)
    assert divergence_from_uniform(log_alpha).item() == pytest.approx(divergence, abs=2e-6)


def test_divergence_in_its_textbook_form_for_many_classes():
    alpha = 1 + np.random.default_rng(0).exponential(20, size=(50, 12))
    got = divergence_from_uniform(torch.tensor(alpha).log())
    np.testing.assert_allclose(got, textbook_divergence(alpha), rtol=1e-9, atol=1e-9)
    assert divergence_from_uniform(torch.zeros(3, 12)).abs().max() < 1e-5


def test_the_evidential_loss_takes_the_true_class_out_of_the_divergence():
    alpha = np.array([[5.0, 1.5, 2.0], [1.0, 3.0, 9.0]])
    y = np.array([0, 1])
    divergence = textbook_divergence(np.array([[1.0, 1.5, 2.0], [1.0, 1.0, 9.0]]))
    entropy = digamma(alpha.sum(1)) - digamma(alpha[[0, 1], y])
    for annealing in (0.0, 0.3, 1.0):
        losses = evidential_losses(torch.tensor(alpha).log(), torch.tensor(y), annealing)
        np.testing.assert_allclose(losses, entropy + annealing * divergence, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_digits_are_lost_to_large_evidence(dtype):
    mpmath = pytest.importorskip("mpmath")
    rows = [[0.0, 0.1, 3.0], [3.9, 3.92, 2.0], [20.0, 2.0, 0.0], [60.0, 300.0, 80.0]]  # ln α, on both sides of ln 50
    log_alpha = torch.tensor(rows, dtype=dtype)
    close = {"rel": 1e-5, "abs": 1e-6} if dtype == torch.float32 else {"rel": 1e-10}
    with mpmath.workdps(300):
        for row, got in zip(log_alpha.tolist(), divergence_from_uniform(log_alpha).tolist()):
            alpha = [mpmath.exp(value) for value in row]
            total = mpmath.fsum(alpha)
            expected = mpmath.loggamma(total) - mpmath.fsum(map(mpmath.loggamma, alpha)) - mpmath.loggamma(3)
            expected += mpmath.fsum((a - 1) * (mpmath.digamma(a) - mpmath.digamma(total)) for a in alpha)
            assert got == pytest.approx(float(expected), **close)
        for one in log_alpha.flatten():
            expected = float(mpmath.digamma(mpmath.exp(one.item())))
            assert digamma_of_exp(one).item() == pytest.approx(expected, **close)


def test_gradients_agree_with_finite_differences_on_both_sides_of_the_series():
    log_alpha = torch.tensor([[0.3, 2.0, 3.0], [3.8, 4.0, 5.0], [9.0, 0.1, 30.0]], dtype=torch.float64)
    y = torch.tensor([0, 1, 2])
    assert torch.autograd.gradcheck(lambda t: evidential_losses(t, y, 0.7), log_alpha.requires_grad_())
