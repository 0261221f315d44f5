import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from consilience.training import LossHistory
from consilience.training.devices import epoch_seed
from training.toys import Witness, make, make_samples, prepare, trainer


@given(
    epochs=st.integers(1, 6),
    start=st.integers(1, 4),
    window=st.one_of(st.none(), st.integers(1, 3)),
    seed=st.integers(0, 50),
)
def test_average_sum_and_scale_against_a_table(epochs, start, window, seed):
    random = np.random.default_rng(seed)
    n, m = 7, 3
    losses = random.random((epochs, n, m)).astype(np.float32)
    present = random.random((n, m)) < 0.6
    history = LossHistory(n, m, start=start, window=window)
    for epoch in range(epochs):
        for rows in np.array_split(random.permutation(n), 3):
            history.record(
                torch.from_numpy(rows),
                torch.from_numpy(losses[epoch][rows]),
                torch.from_numpy(present[rows]),
                epoch=epoch,
            )
        history.gather()
    counted = [t for t in range(1, epochs + 1) if t >= start and (window is None or t < start + window)]
    total = np.zeros((n, m))
    for t in counted:
        total += losses[t - 1] * present
    average = total / max(1, len(counted))
    np.testing.assert_allclose(history.sum(), total, atol=1e-6)
    np.testing.assert_allclose(history.average(), average, atol=1e-6)
    for cumulative, values in ((True, total), (False, average)):
        scaled = np.zeros((n, m))
        for column in range(m):
            rows = np.flatnonzero(present[:, column]) if counted else []
            if len(rows):
                low, high = values[rows, column].min(), values[rows, column].max()
                if high > low:
                    scaled[rows, column] = (values[rows, column] - low) / (high - low)
        found = history.past(torch.arange(n), cumulative=cumulative, normalised=True).numpy()
        np.testing.assert_allclose(found, scaled, atol=1e-5)
        picked = history.past(torch.tensor([4, 0, 4]), cumulative=cumulative, normalised=True)
        np.testing.assert_allclose(picked, scaled[[4, 0, 4]], atol=1e-5)


def test_a_sample_twice_in_a_batch_counts_twice():
    history = LossHistory(2, 1)
    history.record(torch.tensor([1, 1]), torch.tensor([[1.0], [3.0]]), epoch=0)
    assert history.average().tolist() == [[0.0], [2.0]]
    assert history.sum().tolist() == [[0.0], [4.0]]


def test_the_past_is_what_ended_with_the_last_epoch():
    history, both = LossHistory(3, 2), torch.tensor([0, 1])
    present = torch.tensor([[True, False], [True, True]])
    assert history.past(both).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    for epoch, losses in enumerate([[[1.0, 9.0], [3.0, 5.0]], [[2.0, 9.0], [6.0, 7.0]]]):
        history.record(both, torch.tensor(losses), present, epoch=epoch)
        assert history.seen(both).any() == (epoch == 1)  # the epoch under way is not yet past
        history.gather()
    assert history.seen(torch.arange(3)).tolist() == [[True, False], [True, True], [False, False]]
    assert history.past(both).tolist() == [[1.5, 0.0], [4.5, 6.0]]
    assert history.past(both, cumulative=True).tolist() == [[3.0, 0.0], [9.0, 12.0]]
    assert history.past(both, normalised=True).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    other = LossHistory(3, 2)
    other.past(both)
    other.restore(history.state())
    assert torch.equal(other.past(both), history.past(both))


def test_recording_keeps_no_graph():
    history = LossHistory(2, 1)
    history.record(torch.tensor([0]), torch.tensor([[2.0]], requires_grad=True) * 1, epoch=0)
    history.gather()
    assert not history.average().requires_grad


def test_state_goes_on():
    first, second = LossHistory(3, 2), LossHistory(3, 2)
    first.record(torch.tensor([0, 2]), torch.rand(2, 2), epoch=0)
    first.gather()
    second.restore(first.state())
    more = torch.rand(3, 2)
    for history in (first, second):
        history.record(torch.arange(3), more, epoch=1)
    assert torch.equal(first.average(), second.average())


@pytest.mark.parametrize("missing", [False, True])
def test_three_epochs_of_training_by_hand(missing):
    present = np.random.default_rng(0).random((30, 2)) < (0.7 if missing else 2)
    samples = make_samples(30).replaced({}, present=present)
    preparation = prepare(make_samples(30))
    module, twin = make(Witness, preparation, 30), make(Witness, preparation, 30)
    trainer(preparation, batch_size=8, optimizer="sgd").run(module, samples)
    # By hand: the losses of each expert on each sample at the moment it was trained on, over the first two epochs.
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05)
    table = np.full((2, 30, 2), np.nan)
    history = LossHistory(30, 2)
    from consilience.methods import Step

    for epoch in range(2):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(epoch_seed(0, 0, epoch)))
        for rows in order.tensor_split(4):
            batch = preparation.batch(samples, rows.numpy())
            prediction = twin(batch)
            for column in range(2):
                own = functional.cross_entropy(prediction.opinions[:, column], batch.y, reduction="none").detach()
                table[epoch, rows, column] = np.where(present[rows, column], own.numpy(), np.nan)
            losses = twin.objective(prediction, batch, Step(epoch, 3, history=history))
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            own = torch.from_numpy(np.nan_to_num(table[epoch, rows]))
            history.record(rows, own, torch.from_numpy(present[rows]), epoch=epoch)
        history.gather()
    expected = np.where(present, np.nan_to_num(table).sum(axis=0) / 2, 0.0)
    np.testing.assert_allclose(module.seen, expected, atol=1e-5)
