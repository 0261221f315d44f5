"""Rows that stand for all samples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.evenly_spread import evenly_spread


@given(st.integers(1, 400), st.integers(2, 500))
def test_both_ends_are_among_them_and_gaps_differ_by_one_at_most(n, most):
    rows = evenly_spread(n, most)
    assert len(rows) == min(n, most)
    assert (rows[0], rows[-1]) == (0, n - 1)
    assert np.ptp(np.diff(rows)) <= 1 if len(rows) > 1 else n == 1
