"""The bound on the loss of a weighted sum: it holds for every weight ≥ 0, and only there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.evaluation.trust import losses_of
from consilience.evaluation.weighted_sum import bound_sum, is_weighted_sum, mean_weights, why_unbounded


def draw(seed, scale, classes=3, n=8, modalities=3):
    random = np.random.default_rng(seed)
    opinions = random.normal(scale=4, size=(n, modalities, classes))
    present = random.random((n, modalities)) < 0.7
    weights = np.where(present, random.exponential(scale, size=(n, modalities)), 0.0)
    return opinions, present, weights, random.integers(0, classes, size=n)


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.3, 1.0, 5.0]))
@settings(deadline=None, max_examples=80)
def test_no_loss_of_a_sum_exceeds_its_bound(seed, scale):
    opinions, present, weights, y = draw(seed, scale)
    some = present.any(axis=1)
    if not some.any():
        return
    own = np.where(present, losses_of(opinions, y[:, None], True), 0.0)
    bound = bound_sum(weights, own, present, np.log(3))
    assert why_unbounded(weights, present, summed=True) is None
    fused = losses_of(np.einsum("nm,nmc->nc", weights, opinions), y, True)[some].mean()
    assert fused <= bound.total + 1e-9
    static = losses_of(np.einsum("nm,nmc->nc", mean_weights(weights, present), opinions), y, True)[some].mean()
    assert static <= bound.static + 1e-9


def test_the_bound_of_weights_below_one_needs_the_loss_of_guessing():
    """A sure expert with weight ½: Σ w·l is nearly 0, and the loss of the sum is not."""
    own, weights, there = np.array([[1e-3]]), np.array([[0.1]]), np.array([[True]])
    logits = np.array([[[np.log(np.expm1(1e-3)), 0.0]]])  # the loss of class 1 is 1e-3
    fused = losses_of(0.1 * logits[:, 0], np.array([1]), True)[0]
    assert losses_of(logits, np.array([[1]]), True)[0, 0] == pytest.approx(1e-3)
    assert fused > 100 * float((weights * own).sum())
    assert fused <= bound_sum(weights, own, there, np.log(2)).total


def test_of_whole_samples_the_gap_is_the_covariance():
    random = np.random.default_rng(0)
    weights, own = 0.5 + random.random((50, 3)), random.exponential(size=(50, 3))
    bound = bound_sum(weights, own, np.ones((50, 3), dtype=bool), np.log(4))
    assert bound.shortfall == bound.static_shortfall == 0
    wanted = sum(np.cov(weights[:, m], own[:, m], ddof=0)[0, 1] for m in range(3))
    assert bound.gap == pytest.approx(wanted)
    assert bound.total == pytest.approx((weights * own).sum(axis=1).mean())


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_a_sum_is_told_from_other_outputs(seed):
    opinions, _, weights, _ = draw(seed, 1.0)
    summed = np.einsum("nm,nmc->nc", weights, opinions)
    shift = np.random.default_rng(seed).normal(size=(8, 1))
    assert is_weighted_sum(np.float32(summed + shift).astype(float), weights, opinions)
    assert not is_weighted_sum(summed + shift, weights, opinions, classification=False)
    other = summed.copy()
    other[3, 1] += 0.1 * (1 + np.abs(opinions).max() * weights.max())
    assert not is_weighted_sum(other, weights, opinions)


def test_the_reasons_against_a_bound():
    there = np.ones((2, 2), dtype=bool)
    half, more = np.full((2, 2), 0.5), np.ones((2, 2))
    assert why_unbounded(half, there, summed=True, classification=False) is None
    assert "do not sum to one" in why_unbounded(more, there, summed=True, classification=False)
    assert why_unbounded(more, there, summed=True) is None
    assert "not the weighted sum" in why_unbounded(half, there, summed=False)
    assert why_unbounded(np.array([[1.0, -0.1], [0.5, 0.5]]), there, summed=True).startswith(
        "a weight is below 0 in 1 of 2 samples"
    )
