"""Intervals of means over samples in groups, against repetition and the bootstrap of groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.evaluation.mean_interval import half_width


def test_without_units_it_is_that_of_the_standard_error():
    values = np.random.default_rng(0).normal(size=(50, 3, 2))
    expected = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(half_width(values), expected)
    np.testing.assert_allclose(half_width(values, np.arange(50)[::-1]), expected)


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 100))
def test_repeated_samples_say_nothing_new(n, times, seed):
    values = np.random.default_rng(seed).normal(size=n)
    repeated = half_width(np.repeat(values, times), np.repeat(np.arange(n), times))
    assert repeated == pytest.approx(half_width(values))


def test_of_unequal_groups_it_is_that_of_the_bootstrap():
    rng = np.random.default_rng(0)
    units = np.repeat(np.arange(60), rng.integers(1, 9, size=60))
    values = rng.normal(size=60)[units] + rng.normal(scale=0.5, size=len(units))
    sums, sizes = np.bincount(units, values), np.bincount(units)
    drawn = rng.integers(60, size=(20_000, 60))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    assert half_width(values, units) == pytest.approx(1.96 * means.std(), rel=0.05)
    assert half_width(values, units) > 1.5 * half_width(values)


def test_a_single_unit_says_nothing():
    assert half_width(np.ones(1)) == np.inf
    assert (half_width(np.ones((4, 2)), np.zeros(4)) == np.inf).all()
