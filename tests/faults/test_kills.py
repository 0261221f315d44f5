"""Comparisons that are killed at random moments end as undisturbed ones; `make faults` kills a hundred times."""

import pytest

from faults.kill_runs import KINDS, disturb


@pytest.mark.slow
def test_killed_comparisons_end_as_undisturbed_ones(tmp_path):
    account = disturb(tmp_path, kills=len(KINDS))
    assert account.problems == []
    assert set(account.kills) == set(KINDS)
    assert account.slowest_end < 3
