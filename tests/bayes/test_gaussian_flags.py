"""The sum over which experts are sound, compared with brute force."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from consilience.bayes import gaussian_flags
from consilience.bayes.gaussian_flags import Temper, all_sound_log_odds, flag_posterior, mixture_moments, set_evidence
from consilience.bayes.gaussian_fusion import Measurements, gaussian_posterior


def measurements(n=4, modalities=3, targets=1, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(targets, modalities, 2 * modalities))
    covariance = root @ root.transpose(0, 2, 1)
    size = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    measured = Measurements(
        torch.from_numpy(rng.normal(size=(n, targets, modalities))),
        torch.from_numpy(rng.uniform(0.5, 2, size=(n, targets, modalities))),
        torch.from_numpy(covariance / size[:, :, None] / size[:, None]),
        torch.from_numpy(rng.normal(size=targets)),
        torch.from_numpy(rng.uniform(0.5, 2, size=targets)),
    )
    rho = torch.from_numpy(rng.uniform(0.1, 0.9, size=(n, modalities)))
    return measured, rho, torch.from_numpy(rng.random((n, modalities)) < 0.8)


def brute_force(measured, rho, present, i):
    """The weights, means and variances of every set of sound modalities of one sample, and the sets."""
    u, h, correlation = measured.u[i, 0].numpy(), measured.h[i, 0].numpy(), measured.correlation[0].numpy()
    mean, variance = measured.mean[0].item(), measured.variance[0].item()
    there = [m for m in range(len(u)) if present[i, m]]
    found = []
    for flags in product((False, True), repeat=len(there)):
        sound = [m for m, flag in zip(there, flags) if flag]
        weight = 1.0
        for m, flag in zip(there, flags):
            weight *= rho[i, m].item() if flag else 1 - rho[i, m].item()
            if not flag:
                weight *= norm.pdf(u[m], scale=3 * np.sqrt(1 + variance * h[m] ** 2))
        centre, width = mean, variance
        if sound:
            joint = correlation[np.ix_(sound, sound)] + variance * np.outer(h[sound], h[sound])
            weight *= multivariate_normal(np.zeros(len(sound)), joint).pdf(u[sound])
            gain = variance * h[sound] @ np.linalg.inv(joint)
            centre, width = mean + gain @ u[sound], variance - variance * gain @ h[sound]
        found.append((weight, centre, width, sound))
    return found


def test_it_is_the_sum_over_all_sets():
    measured, rho, present = measurements(n=6)
    evidence = set_evidence(measured, present, rho)
    mean, variance, sound = flag_posterior(evidence, present, rho)
    log_odds = all_sound_log_odds(evidence, present, rho)
    for i in range(6):
        found = brute_force(measured, rho, present, i)
        weights = np.array([weight for weight, *_ in found])
        weights /= weights.sum()
        centres, widths = (np.array([one[k] for one in found]) for k in (1, 2))
        assert mean[i, 0].item() == pytest.approx(weights @ centres)
        assert variance[i, 0].item() == pytest.approx(weights @ (widths + centres**2) - (weights @ centres) ** 2)
        for m in range(3):
            expected = sum(weight for weight, (*_, chosen) in zip(weights, found) if m in chosen)
            assert sound[i, m].item() == pytest.approx(expected)
        if len(found) > 1:  # the last set is that of all that are present
            assert log_odds[i].item() == pytest.approx(np.log(weights[-1] / weights[:-1].sum()))


def test_without_modalities_it_is_the_prior_and_nothing_is_broken():
    measured, rho, _ = measurements()
    nothing = torch.zeros(4, 3, dtype=torch.bool)
    evidence = set_evidence(measured, nothing, rho)
    mean, variance, sound = flag_posterior(evidence, nothing, rho)
    torch.testing.assert_close(mean, measured.mean.expand(4, 1))
    torch.testing.assert_close(variance, measured.variance.expand(4, 1))
    assert (sound == 0).all()
    assert (all_sound_log_odds(evidence, nothing, rho) > 10).all()


def test_modalities_that_are_surely_sound_are_fused_as_usual():
    measured, rho, present = measurements(targets=2)
    surely = torch.full_like(rho, 1 - 1e-12)
    mean, variance, _ = flag_posterior(set_evidence(measured, present, surely), present, surely)
    expected = gaussian_posterior(measured, present)
    torch.testing.assert_close(mean, expected[0])
    torch.testing.assert_close(variance, expected[1])


def test_a_number_far_from_everything_is_ignored():
    measured, rho, _ = measurements()
    present = torch.ones(4, 3, dtype=torch.bool)
    measured.u[:, 0, 1] = 1e4
    mean, _, sound = flag_posterior(set_evidence(measured, present, rho), present, rho)
    assert (sound[:, 1] < 1e-6).all()
    present[:, 1] = False
    torch.testing.assert_close(mean, flag_posterior(set_evidence(measured, present, rho), present, rho)[0])


def test_samples_do_not_mix_and_many_modalities_are_served():
    for modalities in (3, 12):
        measured, rho, present = measurements(n=5, modalities=modalities, targets=2)
        whole = flag_posterior(set_evidence(measured, present, rho), present, rho)
        for i in range(5):
            one = measured._replace(u=measured.u[i : i + 1], h=measured.h[i : i + 1])
            there, own = present[i : i + 1], rho[i : i + 1]
            for found, expected in zip(flag_posterior(set_evidence(one, there, own), there, own), whole):
                torch.testing.assert_close(found[0], expected[i])


def test_of_many_modalities_the_broken_ones_are_found():
    rng = np.random.default_rng(0)
    y, broken = rng.normal(size=300), rng.random((300, 12)) < 0.3
    u = y[:, None] + rng.normal(size=(300, 12))
    u[broken] = rng.normal(0, 5, size=broken.sum())
    rho = torch.from_numpy(np.where(broken, 0.2, 0.9) + rng.uniform(-0.1, 0.05, size=broken.shape))
    ones = torch.ones(300, 1, 12).double()
    measured = Measurements(
        torch.from_numpy(u)[:, None],
        ones,
        torch.eye(12)[None].double(),
        torch.zeros(1).double(),
        torch.ones(1).double(),
    )
    present = torch.ones(300, 12, dtype=torch.bool)
    mean = flag_posterior(set_evidence(measured, present, rho), present, rho)[0][:, 0].numpy()
    known = np.where(broken, 0, u).sum(axis=1) / (1 + (~broken).sum(axis=1))
    assert np.mean((mean - y) ** 2) < 1.2 * np.mean((known - y) ** 2)
    assert len(set_evidence(measured, present, rho).sets[0]) == 13


def test_nested_sets_agree_with_all_sets_where_the_order_is_clear(monkeypatch):
    measured, rho, present = measurements(modalities=4)
    rho = torch.tensor([0.999999, 0.999, 0.5, 0.001]).double().expand(4, 4)
    expected = flag_posterior(set_evidence(measured, present, rho), present, rho)
    monkeypatch.setattr(gaussian_flags, "MAX_MODALITIES", 3)
    for found, exact in zip(flag_posterior(set_evidence(measured, present, rho), present, rho), expected):
        torch.testing.assert_close(found, exact, rtol=0.05, atol=0.05)


def test_moments_of_a_mixture():
    rng = np.random.default_rng(0)
    mean, variance = mixture_moments(
        torch.tensor([[0.2, 0.8]]), torch.tensor([[[1.0], [-2.0]]]), torch.tensor([[[4.0], [0.25]]])
    )
    first = rng.random(200000) < 0.2
    drawn = np.where(first, rng.normal(1, 2, 200000), rng.normal(-2, 0.5, 200000))
    assert (mean.item(), variance.item()) == pytest.approx((drawn.mean(), drawn.var()), rel=0.02)


def test_heavy_tails_of_sound_samples_are_tempered():
    rng = np.random.default_rng(0)
    present, rho = torch.ones(4000, 3, dtype=torch.bool), torch.full((4000, 3), 0.99).double()
    y = rng.normal(size=(4000, 1, 1))
    powers = []
    for errors in (rng.normal(size=(4000, 1, 3)), rng.standard_t(2, size=(4000, 1, 3))):
        measured = Measurements(
            torch.from_numpy(y + errors),
            torch.ones(4000, 1, 3).double(),
            torch.eye(3)[None].double(),
            torch.zeros(1).double(),
            torch.ones(1).double(),
        )
        evidence = set_evidence(measured, present, rho)
        temper = Temper().double().fit(evidence, present)
        powers.append(temper.eta.item())
        tempered = temper(evidence).log_density
        assert ((tempered.amax(dim=1) - tempered[:, -1]) > 2).double().mean().item() == pytest.approx(0.005, abs=0.001)
    assert powers[1] < 0.3 < 0.5 < powers[0] <= 1
