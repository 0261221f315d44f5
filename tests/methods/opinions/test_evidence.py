"""Evidence and the rules that join it: Dempster's against a sum over focal sets, and two opinions at a time."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from consilience.methods.opinions.evidence import average_evidence, certainty, dempster, log_dirichlet, scale_evidence

few = settings(deadline=None, max_examples=25)


def random_evidence(seed, views, classes, scale=5.0):
    random = np.random.default_rng(seed)
    return random.exponential(scale, size=(views, classes)) * (random.random((views, classes)) < 0.8)


def belief_of(evidence):
    total = evidence.sum(-1, keepdims=True) + evidence.shape[-1]
    return evidence / total, evidence.shape[-1] / total[..., 0]


def over_focal_sets(beliefs, uncertainties):
    """Dempster's rule as defined: the mass of each intersection, normalised by all that are not empty."""
    classes = beliefs.shape[1]
    everything = frozenset(range(classes))
    sets = [*(frozenset([k]) for k in range(classes)), everything]
    masses = np.column_stack([beliefs, uncertainties])
    mass = dict.fromkeys(sets, 0.0)
    for choice in product(range(classes + 1), repeat=len(beliefs)):
        meeting = frozenset.intersection(*(sets[index] for index in choice))
        if meeting:
            mass[meeting] += np.prod([masses[view, index] for view, index in enumerate(choice)])
    total = sum(mass.values())
    return np.array([mass[frozenset([k])] for k in range(classes)]) / total, mass[everything] / total


def two_at_a_time(beliefs, uncertainties):
    """b = (b₁b₂ + b₁u₂ + b₂u₁) / (1 − C), u = u₁u₂ / (1 − C), one view after the other."""
    b, u = beliefs[0], uncertainties[0]
    for other, doubt in zip(beliefs[1:], uncertainties[1:]):
        conflict = b.sum() * other.sum() - (b * other).sum()
        b, u = (b * other + b * doubt + other * u) / (1 - conflict), u * doubt / (1 - conflict)
    return b, u


def joined_by(rule, evidence):
    return belief_of(np.expm1(rule(torch.tensor(evidence).log1p()).numpy()))


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 4))
@few
def test_dempster_is_the_sum_over_focal_sets_in_any_order(seed, views, classes):
    evidence = random_evidence(seed, views, classes)
    belief, uncertainty = joined_by(dempster, evidence)
    for expected in (over_focal_sets(*belief_of(evidence)), two_at_a_time(*belief_of(evidence))):
        np.testing.assert_allclose(belief, expected[0], atol=1e-10)
        np.testing.assert_allclose(uncertainty, expected[1], atol=1e-10)
    order = np.random.default_rng(seed).permutation(views)
    again, doubt = joined_by(dempster, evidence[order])
    np.testing.assert_allclose(again, belief, atol=1e-10)
    np.testing.assert_allclose(doubt, uncertainty, atol=1e-10)


def test_dempster_is_associative_and_the_vacuous_opinion_is_neutral():
    log_alpha = torch.tensor(random_evidence(0, 5, 3)).log1p()
    whole = dempster(log_alpha)
    parts = torch.stack([dempster(log_alpha[:2]), dempster(log_alpha[2:])])
    torch.testing.assert_close(dempster(parts), whole)
    with_nothing = torch.cat([torch.zeros(3, 3, dtype=torch.float64), log_alpha])
    torch.testing.assert_close(dempster(with_nothing), whole, rtol=1e-14, atol=0)
    assert torch.equal(dempster(torch.zeros(4, 7)), torch.zeros(7))


def test_a_hundred_confident_modalities_stay_finite_and_right():
    log_alpha = torch.full((100, 10), 0.01).log1p()
    log_alpha[:, 3] = np.log1p(1e6)
    joined = dempster(log_alpha)
    assert torch.isfinite(joined).all()  # (1 + 1e6 / 10)^100 is not
    assert joined[3].item() == pytest.approx(np.log(10) + 100 * np.log1p(1e5), rel=1e-5)
    assert joined[0].item() == pytest.approx(np.log1p(10 * np.expm1(100 * np.log1p(1e-3))), rel=1e-5)


@given(st.floats(0, 200), st.sampled_from([0.001, 0.1, 1.0, 10.0, 1000.0]))
@few
def test_scaling_evidence_has_an_inverse(log_alpha, factor):
    there = scale_evidence(torch.tensor(log_alpha, dtype=torch.float64), factor)
    assert scale_evidence(there, 1 / factor).item() == pytest.approx(log_alpha, rel=1e-9, abs=1e-9)


@given(st.integers(0, 10_000))
@few
def test_the_average_counts_what_is_present(seed):
    evidence = np.stack([random_evidence(seed + row, 3, 4) for row in range(4)])
    present = np.random.default_rng(seed).random((4, 3)) < 0.6
    got = average_evidence(torch.tensor(evidence).log1p(), torch.tensor(present)).expm1().numpy()
    for row in range(4):
        there = evidence[row][present[row]]
        np.testing.assert_allclose(got[row], there.mean(0) if len(there) else np.zeros(4), atol=1e-9)


def test_certainty_and_probability_are_those_of_the_opinion():
    evidence = random_evidence(1, 6, 5)
    log_alpha = torch.tensor(evidence).log1p()
    belief, uncertainty = belief_of(evidence)
    np.testing.assert_allclose(certainty(log_alpha), 1 - uncertainty, atol=1e-12)
    np.testing.assert_allclose(softmax(log_alpha.numpy(), axis=1), belief + uncertainty[:, None] / 5, atol=1e-12)
    assert (certainty(torch.zeros(3, 10)) == 0).all()


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [("softplus", lambda z: np.log1p(np.exp(z))), ("exp", np.exp), ("relu", lambda z: np.maximum(z, 0))],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_logits_become_evidence(name, by_hand, dtype):
    logits = torch.linspace(-6, 6, 25, dtype=dtype)
    got = log_dirichlet(logits, name)
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    np.testing.assert_allclose(got, np.log1p(by_hand(logits.double().numpy())), rtol=1e-5, atol=1e-6)
