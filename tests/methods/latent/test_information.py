"""Entropies, mutual information and variation of information against closed forms."""

import math

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError
from consilience.methods.latent.information import entropy, mutual_information, variation_of_information
from methods.latent.linear_gaussian import LinearGaussian


def gaussian_entropy(covariance):
    """Of a Gaussian, in nats."""
    return 0.5 * np.linalg.slogdet(2 * math.pi * math.e * covariance)[1]


def test_gaussians_against_their_entropies():
    model = LinearGaussian()
    batch = model.samples(4000)
    names = list(model.names)
    weight = np.concatenate([model.weights[name] for name in names])
    noise = np.concatenate([np.full(len(model.bias[name]), model.noise[name] ** 2) for name in names])
    covariance, start = weight @ weight.T + np.diag(noise), np.cumsum([0, 3, 2, 1])
    rows = {name: np.arange(start[place], start[place + 1]) for place, name in enumerate(names)}

    def h(*group):
        chosen = np.concatenate([rows[name] for name in group])
        return gaussian_entropy(covariance[np.ix_(chosen, chosen)])

    def log_p(*group):
        return torch.from_numpy(model.exact(batch, list(group)))

    two = variation_of_information(log_p("a", "b"), torch.stack([log_p("b"), log_p("a")]))
    assert two.value == pytest.approx(2 * h("a", "b") - h("a") - h("b"), abs=4 * two.standard_error)
    three = variation_of_information(
        log_p("a", "b", "c"), torch.stack([log_p("b", "c"), log_p("a", "c"), log_p("a", "b")])
    )
    # Equation 94 as it ought to read.
    expected = 3 * h("a", "b", "c") - h("a", "b") - h("b", "c") - h("a", "c")
    assert three.value == pytest.approx(expected, abs=4 * three.standard_error)
    assert 0 < three.standard_error < 0.1

    def log_likelihood(names):
        return log_p(*names)

    found = {
        "H(A)": (entropy(log_likelihood, ["a"]), h("a")),
        "H(A, C | B)": (entropy(log_likelihood, ["a", "c"], ["b"]), h("a", "b", "c") - h("b")),
        "I(A; B)": (mutual_information(log_likelihood, ["a"], ["b"]), h("a") + h("b") - h("a", "b")),
        "I(A; B | C)": (
            mutual_information(log_likelihood, ["a"], ["b"], ["c"]),
            h("a", "c") + h("b", "c") - h("a", "b", "c") - h("c"),
        ),
        "I(A; B, C)": (mutual_information(log_likelihood, ["a"], ["b", "c"]), h("a") + h("b", "c") - h("a", "b", "c")),
    }
    for name, (information, expected) in found.items():
        assert information.value == pytest.approx(expected, abs=4 * information.standard_error), name
        assert 0 < information.standard_error < 0.1, name


def test_two_coins_that_always_agree_differ_in_nothing():
    joint = torch.full((50,), math.log(0.5))
    assert variation_of_information(joint, torch.stack([joint, joint])).value == 0


def test_independent_coins():
    joint, alone = torch.full((50,), math.log(0.25)), torch.full((50,), math.log(0.5))
    found = variation_of_information(joint, torch.stack([alone, alone]))
    assert found.value == pytest.approx(2 * math.log(2))
    assert found.standard_error < 1e-6


def test_shapes_are_checked():
    with pytest.raises(InputError, match="at least two modalities"):
        variation_of_information(torch.zeros(3), torch.zeros(1, 3))
