"""The order of an epoch of a set in chunks, and its batches for several processes."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from consilience.core.chunked_rows import Chunks, Column
from consilience.core.errors import InputError
from consilience.core.modalities import MappedRows
from consilience.core.samples import Samples
from consilience.training.batch_plans import plan_epoch, plan_parts
from consilience.training.epoch_order import base_rows, chunked_orders, plan_samples

N = 200


class Numbers:
    """Rows that hold their own number, in chunks of eight."""

    columns: ClassVar = {"a": Column((1,), np.dtype(np.float64))}
    starts = np.arange(0, N + 1, 8)

    def read(self, chunk, names):
        return {"a": np.arange(self.starts[chunk], self.starts[chunk + 1], dtype=np.float64)[:, None]}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def samples_of(buffer, rows=None):
    samples = Samples.of(Chunks(Numbers(), buffer).samples(), np.arange(N) % 2)
    return samples if rows is None else samples[rows]


def test_with_a_buffer_that_holds_all_the_order_is_that_of_samples_in_memory():
    resident = Samples.of({"a": np.arange(N * 1.0)[:, None]}, np.arange(N) % 2)
    weight = torch.rand(N, generator=seeded(5))
    for processes, rank in ((1, 0), (3, 1)):
        plans = [
            plan_samples(samples, weight, seeded(), 12, 2, processes, rank) for samples in (resident, samples_of(N))
        ]
        for one, two in zip(*plans, strict=True):
            assert torch.equal(one.rows, two.rows)
            assert (one.share, one.of_epoch, one.ends_step) == (two.share, two.of_epoch, two.ends_step)


@pytest.mark.parametrize("processes", [1, 3])
def test_every_sample_is_drawn_once_and_no_process_reads_a_chunk_of_another(processes):
    rows = np.flatnonzero(np.random.default_rng(2).random(N) < 0.7)  # as a train part
    samples = samples_of(64, rows)
    chunks = samples["a"].base.chunks
    orders = chunked_orders(chunks, rows, seeded(), processes)
    assert sorted(torch.cat(orders).tolist()) == list(range(len(rows)))
    read = [set(chunks.chunk_of(rows[order.numpy()]).tolist()) for order in orders]
    assert sum(map(len, read)) == len(set.union(*read))
    assert max(map(len, orders)) - min(map(len, orders)) <= 8
    again = chunked_orders(chunks, rows, seeded(), processes)
    assert all(torch.equal(one, two) for one, two in zip(orders, again))
    other = chunked_orders(chunks, rows, seeded(1), processes)
    assert not all(torch.equal(one, two) for one, two in zip(orders, other))


def test_samples_that_are_near_in_the_order_lie_in_chunks_that_fit_into_half_of_the_buffer():
    samples = samples_of(64)
    chunks = samples["a"].base.chunks
    order = chunked_orders(chunks, np.arange(N), seeded())[0].numpy()
    for start in range(0, N, 32):  # four chunks of eight
        assert len(np.unique(chunks.chunk_of(order[start : start + 32]))) == min(4, (N - start) // 8)
    assert np.abs(np.diff(chunks.chunk_of(order))).mean() > 2, "chunks are not in the order of the files"


def test_plans_of_parts_weigh_every_sample_as_plans_of_one_process_do():
    weight = torch.rand(N, generator=seeded(3), dtype=torch.float64).float()
    orders = list(torch.randperm(N, generator=seeded(4)).split([70, 64, 66]))
    by_rank = [plan_parts(orders, weight, 16, 2, rank) for rank in range(3)]
    assert len({len(plans) for plans in by_rank}) == 1
    values = torch.rand(N, generator=seeded(6), dtype=torch.float64)

    def mean(rows):
        return (weight[rows] * values[rows]).sum() / weight[rows].sum()

    of_epoch = 0.0
    step, rows = torch.tensor(0.0, dtype=torch.float64), []
    for plans in zip(*by_rank):
        assert len({plan.ends_step for plan in plans}) == 1
        step += sum(plan.share * mean(plan.rows) for plan in plans) / 3  # as gradients are averaged
        rows += [plan.rows for plan in plans]
        of_epoch += sum(plan.of_epoch * mean(plan.rows) for plan in plans)
        if plans[0].ends_step:
            torch.testing.assert_close(step, mean(torch.cat(rows)), rtol=1e-6, atol=0)
            step, rows = torch.tensor(0.0, dtype=torch.float64), []
    assert float(of_epoch) == pytest.approx(float(mean(torch.arange(N))), rel=1e-6)


def test_one_process_has_the_plans_of_plan_epoch():
    order, weight = torch.randperm(N, generator=seeded()), torch.ones(N)
    for one, two in zip(plan_parts([order], weight, 16, 3), plan_epoch(order, weight, 16, 3), strict=True):
        assert torch.equal(one.rows, two.rows)
        assert one.share == two.share


def test_too_few_chunks_or_samples_for_the_processes():
    samples = samples_of(64, np.arange(16))
    with pytest.raises(InputError, match="2 chunks of shards cannot be shared among 3 processes: give more or"):
        plan_samples(samples, torch.ones(16), seeded(), 4, 1, 3, 0)
    with pytest.raises(InputError, match="a process has 2 samples for 6 batches; use a larger batch_size"):
        plan_parts([torch.arange(10), torch.arange(10, 12)], torch.ones(12), batch_size=2)


def test_rows_are_those_of_the_chunks_beside_an_array_on_disk_with_rows_of_its_own():
    on_disk = MappedRows(np.zeros((2 * N, 3), dtype=np.float32), np.arange(N) + 7)
    samples = Samples.of({"before": on_disk, **Chunks(Numbers(), 16).samples()})
    np.testing.assert_array_equal(base_rows(samples), np.arange(N))
