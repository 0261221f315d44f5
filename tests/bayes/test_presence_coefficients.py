"""Coefficients where modalities are missing: those of the experts that are left, fused alone."""

import numpy as np
import pytest
import torch

from consilience.bayes.kappa import Coefficients, coefficient_share, fit_coefficients
from consilience.bayes.presence_coefficients import (
    count_rows,
    dependence_terms,
    expert_weights,
    fit_table,
    interpolated,
    row_of,
)

LOG_PRIOR = torch.log(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))


def problem(n, modalities, seed=0):
    """Evidence that depends on what experts share, labels, and estimates that depend on what is present."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    own = np.eye(3)[y][:, None]
    evidence = own * rng.uniform(0.5, 2, (1, modalities, 1)) + rng.normal(size=(n, 1, 3))
    evidence = torch.from_numpy(evidence + 0.5 * rng.normal(size=(n, modalities, 3)))

    def estimate(present):
        shared = (evidence * present[:, :, None]).sum(1)
        return -0.3 * shared, 0.1 * shared.square()

    return evidence, torch.from_numpy(y), estimate


def test_every_set_of_few_modalities_has_the_coefficients_of_its_experts_alone():
    evidence, y, estimate = problem(300, 3)
    present = torch.ones(300, 3, dtype=torch.bool)
    table = fit_table(evidence, y, LOG_PRIOR, present, estimate, ridge=3.0)
    ridge = 3.0
    for seen in ([0, 1], [0, 2], [1, 2], [0, 1, 2]):
        mask = torch.zeros(1, 3, dtype=torch.bool)
        mask[0, seen] = True
        alone = fit_coefficients(
            evidence[:, seen], y, LOG_PRIOR, present[:, seen], estimate(mask.expand(300, 3)), ridge=ridge
        )
        row = row_of(mask)[0]
        np.testing.assert_allclose(table.weights[row, seen], alone.weights, atol=1e-5)
        np.testing.assert_allclose([table.alpha[row], table.beta[row]], [alone.alpha, alone.beta], atol=1e-5)
    for place in range(3):
        alone = torch.zeros(1, 3, dtype=torch.bool)
        alone[0, place] = True
        assert expert_weights(table.weights, alone)[0, place] == 1
        assert table.alpha[row_of(alone)] == 0


def test_sets_of_many_modalities_share_coefficients_by_their_number():
    evidence, y, estimate = problem(400, 5)
    present = torch.from_numpy(np.random.default_rng(1).random((400, 5)) < 0.9)
    ridge = 0.5
    table = fit_table(evidence, y, LOG_PRIOR, present, estimate, ridge=ridge)
    assert table.weights.shape == (6, 5)
    assert row_of(present).tolist() == present.sum(1).tolist()
    rows = present.all(1)
    whole = fit_coefficients(
        evidence[rows], y[rows], LOG_PRIOR, present[rows], [each[rows] for each in estimate(present)], ridge=ridge
    )
    np.testing.assert_allclose(table.weights[5], whole.weights, atol=1e-5)
    # Experts that share their errors count for more each, the fewer of them are present.
    totals = [float(table.weights[count].mean()) for count in range(2, 6)]
    assert totals == sorted(totals, reverse=True)


def test_rare_sets_are_interpolated():
    evidence, y, estimate = problem(120, 3)
    present = torch.ones(120, 3, dtype=torch.bool)
    present[:90, 0] = False  # 30 samples have the first modality
    table = fit_table(evidence, y, LOG_PRIOR, present, estimate, ridge=1.0)
    common = (evidence, y, LOG_PRIOR, present, estimate(present))
    pooled = interpolated(fit_coefficients(*common, ridge=1.0), 3)
    for seen, own in (([True, True, False], False), ([True, True, True], False), ([False, True, True], True)):
        row = row_of(torch.tensor([seen]))[0]
        assert torch.equal(table.weights[row], pooled.weights[row]) != own


@pytest.mark.parametrize("modalities", [1, 2, 3, 4, 6])
def test_interpolation_goes_from_one_opinion_to_the_whole_recipe(modalities):
    rng = np.random.default_rng(0)
    fitted = Coefficients(rng.normal(size=modalities), 0.3, 0.1)
    table = interpolated(fitted, modalities)
    assert table.weights.shape == (count_rows(modalities), modalities)
    present = torch.from_numpy(rng.random((50, modalities)) < 0.6)
    share = coefficient_share(present)[:, None]
    expected = ((1 - share) + share * torch.from_numpy(fitted.weights)) * present
    torch.testing.assert_close(expert_weights(table.weights, present), expected)
    log_kappa, log_density = torch.randn(50, 2).double(), torch.randn(50, 2).double()
    full = 0.3 * log_kappa + 0.1 * log_density
    terms = dependence_terms(table.alpha, table.beta, present, (log_kappa, log_density))
    torch.testing.assert_close(terms, share * (full - full.mean(1, keepdim=True)))
