import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.training.batch_plan import cut, plan_epoch, steps_per_epoch

WEIGHT = st.floats(0, 10, allow_subnormal=False)


@given(
    weight=st.lists(WEIGHT, min_size=8, max_size=60),
    batch_size=st.integers(5, 20),
    accumulate=st.integers(1, 4),
    processes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_everyone_is_seen_once_and_counts_by_weight(weight, batch_size, accumulate, processes, seed):
    n, w = len(weight), np.array(weight)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    ranks = [
        plan_epoch(order, torch.tensor(weight), batch_size, accumulate, processes, rank) for rank in range(processes)
    ]
    rows = torch.cat([plan.rows for plans in zip(*ranks) for plan in plans])
    assert torch.equal(rows, order)
    assert all(len({plan.ends_step for plan in plans}) == 1 for plans in zip(*ranks))
    assert sum(plan.ends_step for plan in ranks[0]) == steps_per_epoch(n, batch_size, accumulate)
    values = np.random.default_rng(seed).normal(size=n)

    def mean(rows):
        return values[rows] @ w[rows] / w[rows].sum() if w[rows].sum() > 1e-9 else 0.0

    step, combined = [], 0.0
    for plans in zip(*ranks):
        assert sum(len(plan.rows) for plan in plans) <= batch_size
        for plan in plans:
            step += plan.rows.tolist()
            combined += plan.share * mean(plan.rows.numpy()) / processes  # as DDP averages over processes
        if plans[0].ends_step:
            assert combined == pytest.approx(mean(step), abs=1e-6)
            step, combined = [], 0.0
    everything = sum(plan.of_epoch * mean(plan.rows.numpy()) for plans in ranks for plan in plans)
    assert everything == pytest.approx(mean(np.arange(n)), abs=1e-6)


@pytest.mark.parametrize("n", [5, 16, 37, 70, 129])
def test_the_samples_of_a_step_depend_on_the_effective_batch_alone(n):
    def steps(batch_size, accumulate):
        found, rows = [], []
        for plan in plan_epoch(torch.arange(n), torch.ones(n), batch_size, accumulate):
            rows += plan.rows.tolist()
            if plan.ends_step:
                found.append(rows)
                rows = []
        return found

    assert steps(4, 4) == steps(8, 2) == steps(16, 1)


def test_parts_are_nearly_equal():
    for n, parts in [(10, 3), (9, 3), (2, 5), (0, 2)]:
        sizes = [stop - start for start, stop in cut(7, 7 + n, parts)]
        assert sizes == [len(part) for part in np.array_split(np.arange(n), parts)]


def test_a_batch_too_small_to_share_is_an_error():
    with pytest.raises(InputError, match=r"a batch of 1 samples cannot be shared among 2 processes.*at least 4"):
        plan_epoch(torch.arange(3), torch.ones(3), batch_size=2, processes=2)
