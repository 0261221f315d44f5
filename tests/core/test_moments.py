"""Moments by pieces against numpy on the whole, and of bytes against the same numbers as floats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.moments import Moments


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 40), st.sampled_from([0.0, 1e6]))
@settings(max_examples=25, deadline=None)
def test_pieces_give_what_numpy_gives_of_the_whole(seed, features, n, offset):
    random = np.random.default_rng(seed)
    values, weight = offset + random.normal(size=(n, features)), random.integers(0, 3, size=n).astype(float)
    weight[0] = 1.0
    found = Moments()
    for start in range(0, n, 7):
        found.add(values[start : start + 7], weight[start : start + 7])
    mean, std = found.mean_and_std()
    expected = np.average(values, axis=0, weights=weight)
    np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(std, np.sqrt(np.average((values - expected) ** 2, axis=0, weights=weight)), atol=1e-8)
    assert (found.low == values[weight > 0].min(axis=0)).all()
    assert (found.high == values[weight > 0].max(axis=0)).all()


@pytest.mark.parametrize("pixels", [6, 40_000])  # the latter's squares do not fit 32 bits
def test_bytes_count_as_the_numbers_they_are(pixels):
    random = np.random.default_rng(pixels)
    images, weight = random.integers(0, 256, size=(5, 2, pixels), dtype=np.uint8), np.array([1.0, 0.3, 0.0, 2.0, 1.0])
    images[:, 1] = 77  # a constant has no spread at all
    fast, slow = Moments(), Moments()
    for part in (slice(0, 3), slice(3, 5)):
        fast.add_bytes(images[part], weight[part])
        slow.add(images[part].swapaxes(1, 2).reshape(-1, 2), np.repeat(weight[part], pixels))
    for one, other in zip(fast.mean_and_std(), slow.mean_and_std()):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert fast.mean_and_std()[1][1] == 0
    assert (fast.low == slow.low).all()
    assert (fast.high == slow.high).all()


def test_what_counts_nothing_leaves_no_trace():
    found = Moments()
    found.add(np.full((3, 1), np.nan), np.zeros(3))
    found.add_bytes(np.zeros((2, 1, 4), dtype=np.uint8), np.zeros(2))
    assert found.shift is None
    assert found.total == 0
