"""Pearson's r and Fisher's interval, against SciPy and against how often the interval is right."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import bootstrap, pearsonr

from consilience.core.correlation import correlation, fisher_interval, static_weights
from consilience.core.errors import InputError


def correlated(rng, n, r):
    x = rng.normal(size=n)
    return x, r * x + math.sqrt(1 - r**2) * rng.normal(size=n)


@pytest.mark.parametrize("confidence", [0.95, 0.8])
@pytest.mark.parametrize(("n", "r"), [(5, 0.3), (40, -0.9), (1000, 0.02)])
def test_r_and_its_interval_are_scipys(n, r, confidence):
    x, y = correlated(np.random.default_rng(n), n, r)
    ours, theirs = correlation(x, y, confidence=confidence), pearsonr(x, y)
    interval = theirs.confidence_interval(confidence)
    assert ours == pytest.approx((theirs.statistic, interval.low, interval.high, n), abs=1e-10)
    assert ours.positive == (interval.low > 0)


def test_the_interval_is_near_a_bootstraps():
    x, y = correlated(np.random.default_rng(1), 400, -0.5)
    resampled = bootstrap(
        (x, y), lambda a, b: pearsonr(a, b).statistic, paired=True, vectorized=False, n_resamples=400, rng=2
    ).confidence_interval
    ours = correlation(x, y)
    assert (ours.low, ours.high) == pytest.approx((resampled.low, resampled.high), abs=0.03)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = [low <= 0.4 <= high for low, high in (correlation(*correlated(rng, 30, 0.4))[1:3] for _ in range(1000))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


@settings(max_examples=40)
@given(arrays(np.float64, (7, 2), elements=st.floats(-1e150, 1e150)), arrays(np.bool_, 7))
def test_what_is_outside_the_mask_does_not_count(values, mask):
    hidden = np.where(mask[:, None], values, np.nan)
    assert correlation(*hidden.T, mask) == pytest.approx(tuple(correlation(*values[mask].T)), nan_ok=True)
    low, high = correlation(*values[mask].T)[1:3]
    assert math.isnan(low) or -1 <= low <= high <= 1


@pytest.mark.parametrize(
    "weights",
    [[0.25] * 4, np.float32([1 / 3, 1 / 3, np.nextafter(np.float32(1 / 3), 1), 1 / 3]), [0.0] * 4],
    ids=["constant", "constant but for rounding", "zero"],
)
def test_a_constant_has_no_correlation(weights):
    found = correlation(weights, [0.1, 0.5, 2.0, 1.0])
    assert not found.defined
    assert not found.positive
    assert found.n == 4
    assert not correlation([0.1, 0.5, 2.0, 1.0], weights).defined


def test_few_samples_say_little():
    assert not correlation([1.0], [2.0]).defined
    assert correlation([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])[1:] == (-1.0, 1.0, 3)
    assert correlation(np.arange(9.0), 2 * np.arange(9.0)) == pytest.approx((1.0, 1.0, 1.0, 9))
    assert math.isnan(fisher_interval(math.nan, 10)[0])


def test_tensors_of_any_precision_are_read():
    x, y = correlated(np.random.default_rng(0), 50, 0.7)
    half = torch.tensor(x, dtype=torch.bfloat16), torch.tensor(y, dtype=torch.bfloat16, requires_grad=True)
    assert correlation(*half, torch.ones(50, dtype=torch.bool)).r == pytest.approx(pearsonr(x, y).statistic, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([[1.0]], [[2.0]]), r"one number per sample \[n\], got shapes \[1, 1\]"),
        (([1.0, 2.0], [1.0]), r"got shapes \[2\], \[1\] and \[2\]"),
        (([1.0, np.nan], [1.0, 2.0]), "must be finite, unlike row 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, said):
    with pytest.raises(InputError, match=said):
        correlation(*arguments)
    with pytest.raises(InputError, match="confidence must be between 0 and 1, got 1"):
        correlation([1.0, 2.0], [1.0, 2.0], confidence=1)


def test_weights_that_only_who_is_present_moves_are_static():
    rng = np.random.default_rng(0)
    present = rng.random((50, 3)) < 0.6
    equal = present / np.maximum(present.sum(axis=1, keepdims=True), 1)
    assert static_weights(equal, present).tolist() == [True] * 3
    moved = equal.copy()
    moved[np.flatnonzero(present.all(axis=1))[0], 1] += 0.01
    assert static_weights(moved, present).tolist() == [True, False, True]
    # Nobody is seen twice: nothing shows that the weights do not move.
    assert not static_weights(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[True, True], [True, False]])).any()
