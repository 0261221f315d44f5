import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from scipy.stats import entropy as scipy_entropy

from consilience.methods.opinions.uncertainty import UNCERTAINTIES, energy, entropy, lack_of_confidence, vacuity

TEMPERATURES = np.array([0.5, 1.0, 4.0])


def opinions(seed, spread=5.0):
    return np.random.default_rng(seed).normal(scale=spread, size=(4, 3, 6))


@given(st.integers(0, 1000), st.sampled_from([0.1, 5.0, 300.0]))
@settings(deadline=None, max_examples=30)
def test_every_estimator_against_scipy(seed, spread):
    z = opinions(seed, spread)
    scaled = z / TEMPERATURES[:, None]
    expected = {
        "energy": -TEMPERATURES * logsumexp(scaled, axis=2),
        "msp": 1 - softmax(scaled, axis=2).max(axis=2),
        "entropy": scipy_entropy(softmax(scaled, axis=2), axis=2) / np.log(6),
        "evidence": 6 / (np.logaddexp(0, scaled) + 1).sum(axis=2),
    }
    for name, estimate in UNCERTAINTIES.items():
        found = estimate(torch.tensor(z), torch.tensor(TEMPERATURES))
        np.testing.assert_allclose(found, expected[name], atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", UNCERTAINTIES)
def test_one_temperature_for_all_modalities(name):
    z = torch.tensor(opinions(0))
    assert torch.equal(UNCERTAINTIES[name](z, 2.0), UNCERTAINTIES[name](z, torch.full((3,), 2.0)))


def test_a_constant_in_the_logits_moves_the_energy_and_no_probability():
    z = torch.tensor(opinions(1))
    torch.testing.assert_close(energy(z + 3), energy(z) - 3)
    torch.testing.assert_close(entropy(z + 3), entropy(z))
    torch.testing.assert_close(lack_of_confidence(z + 3), lack_of_confidence(z))


@pytest.mark.parametrize("estimate", [entropy, lack_of_confidence, vacuity])
def test_bounded_estimators_stay_in_their_bounds(estimate):
    found = estimate(torch.tensor(opinions(2, 1e4), dtype=torch.float32))
    assert torch.isfinite(found).all()
    assert ((found >= -1e-6) & (found <= 1 + 1e-6)).all()


@pytest.mark.parametrize("name", UNCERTAINTIES)
def test_gradients_are_finite_for_large_logits(name):
    z = torch.tensor(opinions(3, 1e4), dtype=torch.float32, requires_grad=True)
    UNCERTAINTIES[name](z, 1.0).sum().backward()
    assert torch.isfinite(z.grad).all()
