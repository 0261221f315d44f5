import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.core.samples import MappedRows, Samples
from consilience.methods.opinions.late import Late
from consilience.training import batch_loader as loader_module
from consilience.training.batch_loader import BatchLoader, fits, free_memory
from consilience.training.batch_plans import cut, plan_epoch
from consilience.training.training_settings import steps_per_epoch
from training.toys import Straight, make, make_samples, prepare, same, trainer, weights

CPU = torch.device("cpu")
WEIGHT = st.floats(0, 10, allow_subnormal=False)


def on_disk(folder, n=50, seed=0):
    """A vector, a sequence of different lengths and an image, the vector missing for some; in memory and mapped."""
    random = np.random.default_rng(seed)
    arrays = {
        "vector": random.normal(size=(n, 3)),
        "sequence": random.normal(size=(n, 6, 2)).astype(np.float32),
        "image": random.integers(0, 255, size=(n, 1, 8, 8), dtype=np.uint8),
    }
    arrays["vector"][::5] = np.nan
    lengths = {"sequence": random.integers(0, 7, size=n)}
    y = random.integers(0, 3, size=n)
    weight = random.random(n)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in arrays}
    return tuple(Samples.of(values, y, lengths=lengths, weight=weight) for values in (arrays, mapped))


class Counted(MappedRows):
    """A memory-mapped modality that notes how many rows are read at a time, and may fail."""

    def __init__(self, base, rows, fail_at=None):
        super().__init__(base, rows)
        self.reads, self.fail_at = [], fail_at

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.reads.append(len(found))
        if len(self.reads) == self.fail_at:
            raise OSError("disk unplugged")
        return found

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("the whole array was asked for")


def counted(samples, **settings):
    values = {name: Counted(np.asarray(samples[name]), np.arange(len(samples)), **settings) for name in samples.names}
    return samples.replaced(values)


def equal(first, second):
    assert first.names == second.names
    for name in first.names:
        assert torch.equal(first[name], second[name])
    for name in ("present", "index", "weight", "y"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert first.lengths.keys() == second.lengths.keys()
    assert all(torch.equal(first.lengths[name], second.lengths[name]) for name in first.lengths)


@pytest.mark.parametrize("whole_set", [False, True], ids=["batch by batch", "shuffled in one go"])
def test_streamed_and_resident_batches_are_the_same(tmp_path, monkeypatch, whole_set):
    monkeypatch.setattr(loader_module, "shuffles_whole", lambda *_: whole_set)
    memory, mapped = on_disk(tmp_path)
    preparation = prepare(memory)
    resident, streamed = BatchLoader(memory, preparation, CPU, True), BatchLoader(mapped, preparation, CPU)
    assert (resident.resident, streamed.resident) == (True, False)
    rows = torch.randperm(50).split(7)
    whole = preparation.batch(memory)
    found = 0
    for chosen, first, second in zip(rows, resident.batches(rows), streamed.batches(rows), strict=True):
        equal(first, second)
        assert torch.equal(first.index, chosen)
        assert torch.equal(first["vector"], whole["vector"][chosen])
        assert torch.equal(first.y, whole.y[chosen])
        found += len(first)
    assert found == 50
    for first, second in zip(resident.in_order(16), streamed.in_order(16), strict=True):
        equal(first, second)


def test_only_a_gpu_shuffles_a_set_whole_and_only_one_that_is_not_too_large(monkeypatch):
    samples, cuda = make_samples(60), torch.device("cuda")
    assert loader_module.shuffles_whole(samples, cuda)
    assert not loader_module.shuffles_whole(samples, CPU)
    monkeypatch.setattr(loader_module, "SHUFFLED_BYTES", samples.nbytes - 1)
    assert not loader_module.shuffles_whole(samples, cuda)


@pytest.mark.parametrize("resident", [True, False])
def test_the_index_counts_within_the_set(resident):
    some = make_samples(60)[[40, 7, 23, 59]]  # a loss history has a row for each of these, not for all 60
    loader = BatchLoader(some, prepare(make_samples(60)), CPU, resident)
    assert [batch.index.tolist() for batch in loader.batches(torch.tensor([3, 0, 1]).split(2))] == [[3, 0], [1]]
    assert [batch.index.tolist() for batch in loader.in_order(3)] == [[0, 1, 2], [3]]


def test_training_streamed_equals_resident_bit_for_bit(tmp_path):
    memory, mapped = on_disk(tmp_path)
    preparation = prepare(memory)
    states = []
    for samples, resident in ((memory, True), (memory, False), (mapped, None), (mapped, True), (mapped[::1], None)):
        module = make_any(preparation)
        log = trainer(preparation, resident=resident).run(module, samples, samples[:20])
        states.append((weights(module), [row["validation_loss"] for row in log.rows]))
    for state, losses in states[1:]:
        assert same(state, states[0][0])
        assert losses == states[0][1]


def make_any(preparation):
    from consilience.methods import Spec

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return Late(Spec(preparation.modalities, preparation.task))


def test_a_streamed_set_is_never_read_whole():
    samples = counted(make_samples(64))
    preparation = prepare(make_samples(64))
    assert not fits(samples, CPU)
    module = make(Straight, preparation)
    trainer(preparation, batch_size=8, epochs=2).run(module, samples)
    for name in samples.names:
        assert samples[name].reads == [8] * 16
    run = trainer(preparation, batch_size=8)
    run.predict(module, samples)
    assert max(samples["a"].reads) == 64 <= run.evaluation_batch


def test_reading_is_one_batch_ahead_and_no_more():
    samples = counted(make_samples(64))
    batches = BatchLoader(samples, prepare(make_samples(64)), CPU).batches(torch.arange(64).split(8))
    for number in range(1, 4):
        next(batches)
        assert number <= len(samples["a"].reads) <= number + 1
    batches.close()
    assert not readers()


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("consilience-loader")]


@pytest.mark.parametrize("fail_at", [1, 3, 8])
def test_an_error_while_reading_surfaces(fail_at):
    samples = counted(make_samples(64), fail_at=fail_at)
    preparation = prepare(make_samples(64))
    with pytest.raises(OSError, match="disk unplugged"):
        trainer(preparation, batch_size=8).run(make(Straight, preparation), samples)
    assert not readers()


def test_an_error_in_a_step_leaves_no_thread_behind():
    samples = counted(make_samples(64))
    preparation = prepare(make_samples(64))
    module = make(Straight, preparation)

    def fail(step):
        raise RuntimeError("step")

    module.trap = fail
    with pytest.raises(RuntimeError, match="step"):
        trainer(preparation, batch_size=8).run(module, samples)
    assert not readers()


def test_what_does_not_fit_is_streamed(monkeypatch):
    samples = make_samples(64)  # 5 features of 4 bytes: 1280 bytes
    monkeypatch.setattr(loader_module, "free_memory", lambda device: 1280 / 0.4 + 1)
    assert fits(samples, CPU)
    monkeypatch.setattr(loader_module, "free_memory", lambda device: 1280 / 0.4 - 1)
    assert not fits(samples, CPU)
    assert not BatchLoader(samples, prepare(samples), CPU).resident


def test_free_memory(monkeypatch):
    assert 2**20 < free_memory(CPU) < 2**50
    monkeypatch.setattr(loader_module, "Path", lambda name: Missing())
    assert free_memory(CPU) == float("inf")


class Missing:
    def read_text(self, encoding):
        raise FileNotFoundError


def test_samples_of_another_shape_are_refused_before_training():
    preparation = prepare(make_samples())
    other = Samples.of({"a": np.zeros((4, 9))}, [0, 1, 0, 1])
    with pytest.raises(InputError, match="trained on"):
        BatchLoader(other, preparation, CPU)


def test_numbers_take_the_type_asked_for():
    samples = make_samples(8)
    batch = next(BatchLoader(samples, prepare(samples), CPU, dtype=torch.float64).in_order(8))
    assert (batch["a"].dtype, batch.y.dtype, batch.index.dtype) == (torch.float64, torch.int64, torch.int64)


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
