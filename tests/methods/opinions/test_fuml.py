"""`fuml`: memberships, credibilities, weights and losses by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.methods import Spec, Step
from consilience.methods.opinions.fuml import Fuml, credibility_losses, membership, reliability_weights
from toy_batches import CLASSES, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def credibility_by_hand(degrees, y=None):
    """(possibility + necessity) / 2 of each class; in training wrong classes are compared with the true one."""
    found = []
    for k, degree in enumerate(degrees):
        rivals = [other for j, other in enumerate(degrees) if j != k]
        strongest = max(rivals) if y is None or k == y else degrees[y]
        found.append((degree + 1 - strongest) / 2)
    return found


def weights_by_hand(degrees, present):
    there = [m for m, flag in enumerate(present) if flag]
    certain = {}
    for m in there:
        entropy = sum(-p * math.log2(p) for c in credibility_by_hand(degrees[m]) for p in (c, 1 - c) if 0 < p < 1)
        apart = []
        for n in there:
            if n != m:
                lengths = math.hypot(*degrees[m]) * math.hypot(*degrees[n])
                apart.append(1 - (np.dot(degrees[m], degrees[n]) / lengths if lengths else 0))
        certain[m] = (1 - entropy / len(degrees[m])) * (1 - (np.mean(apart) if apart else 0))
    total = sum(math.exp(value) for value in certain.values())
    return [math.exp(certain[m]) / total if m in certain else 0.0 for m in range(len(degrees))]


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 5))
@settings(deadline=None, max_examples=30)
def test_weights_by_hand(seed, modalities, classes):
    random = np.random.default_rng(seed)
    degrees = np.maximum(random.normal(size=(5, modalities, classes)), 0).clip(0, 1)
    present = random.random((5, modalities)) < 0.7
    degrees[~present] = 0
    degrees[degrees < 0.01] = 0  # the direction of vectors that are shorter still is not computed
    found = reliability_weights(torch.tensor(degrees), torch.tensor(present))
    expected = [weights_by_hand(one, there) for one, there in zip(degrees, present)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(deadline=None, max_examples=30)
def test_losses_by_hand(seed, classes):
    random = np.random.default_rng(seed)
    degrees, y = random.random((4, classes)), random.integers(classes, size=4)
    expected = []
    for one, label in zip(degrees, y):
        credible = credibility_by_hand(one, label)
        expected.append(-sum(math.log(c if k == label else 1 - c) for k, c in enumerate(credible)))
    np.testing.assert_allclose(credibility_losses(torch.tensor(degrees), torch.tensor(y)), expected, rtol=1e-6)


def test_memberships_have_length_one_before_negative_ones_are_cut():
    z = torch.tensor([[1.0, -2.0, 3.0], [1e20, 2e20, 0.0], [0.0, 0.0, 0.0]])
    found = membership(z).numpy()
    length = (1 + 8 + 27) ** (1 / 3)
    np.testing.assert_allclose(found[0], [1 / length, 0, 3 / length], rtol=1e-5)
    np.testing.assert_allclose(found[1], np.array([1, 2, 0]) / 9 ** (1 / 3), rtol=1e-5)
    assert not found[2].any()


def test_the_prediction_follows_the_joint_membership():
    batch = batch_of(4, SOME)
    method = Fuml(Spec(VECTORS, CLASSES)).eval()
    prediction = method(batch)
    every = prediction.extra["membership"].detach().numpy()
    own, joint = every[:, :2], every[:, 2]
    np.testing.assert_allclose(
        prediction.weights.detach(), [weights_by_hand(*one) for one in zip(own, SOME)], atol=1e-5
    )
    np.testing.assert_allclose(joint, (prediction.weights.detach().numpy()[:, :, None] * own).sum(1), atol=1e-6)
    credible = np.array([credibility_by_hand(one) for one in joint])
    expected = credible / credible.sum(1, keepdims=True)
    np.testing.assert_allclose(prediction.output.softmax(1).detach(), expected, atol=1e-5)
    np.testing.assert_allclose(expected[3], 1 / 3)  # nothing is present
    assert not own[~SOME.numpy()].any()


def test_conflict_lowers_a_weight_and_agreement_does_not():
    sure, other = [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    there = torch.ones(1, 3, dtype=torch.bool)
    agreeing = reliability_weights(torch.tensor([[sure, sure, sure]]), there)[0].tolist()
    assert agreeing == pytest.approx([1 / 3] * 3)
    first, second, odd = reliability_weights(torch.tensor([[sure, sure, other]]), there)[0].tolist()
    assert first == second > odd
    assert first / odd == pytest.approx(math.exp(0.5), rel=1e-4)  # o = ½ and 1


def test_the_objective_counts_present_experts_and_weights():
    batch = batch_of(4, SOME, weight=[1.0, 2.0, 0.5, 3.0])
    method = Fuml(Spec(VECTORS, CLASSES), expert_loss=0.7).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())
    each = credibility_losses(prediction.extra["membership"], batch.y).detach().numpy()
    weight = batch.weight.numpy()
    assert losses["task"].item() == pytest.approx(np.average(each[:, 2], weights=weight), rel=1e-5)
    own = (each[:, :2] * SOME.numpy()).sum(1)
    assert losses["experts"].item() == pytest.approx(0.7 * np.average(own, weights=weight), rel=1e-5)
    sum(losses.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())
