"""What early stopping goes by, against numpy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.samples import Samples
from consilience.training import Model, Trainer
from consilience.training.training_log import EarlyStopping, mean_without_worst, validate
from consilience.training.training_settings import WORTHWHILE, TrainingSettings, resolve
from training.toys import Straight, make, make_samples, prepare, trainer


class Forgiving(Straight):
    """Its worst tenth does not count."""

    ignored_worst = 0.1


class Hopeless(Forgiving):
    """One loss of the worst tenth is not a number."""

    def validation_losses(self, prediction, batch):
        losses = super().validation_losses(prediction, batch)
        return torch.where(losses == losses.max(), float("nan"), losses)


@pytest.mark.parametrize("batch_size", [7, 1000])
@pytest.mark.parametrize("method", [Straight, Forgiving])
def test_the_loss_is_a_weighted_mean_and_the_accuracy_counts_all(method, batch_size):
    samples = make_samples(90, weight=np.random.default_rng(0).random(90) + 0.1)
    preparation = prepare(samples)
    module = make(method, preparation)
    found = validate(module, module, trainer(preparation).loader(samples, torch.device("cpu")), batch_size)
    batch = preparation.batch(samples)
    with torch.no_grad():
        output = module(batch).output.double().numpy()
    y, weight = batch.y.numpy(), samples.weight.astype(float)
    log_sum = np.log(np.exp(output).sum(axis=1))
    losses = log_sum - output[np.arange(90), y]
    kept = np.argsort(losses)[: 90 - (4 if method.ignored_worst else 0)]  # a tenth, but no more than one in twenty
    assert found["validation_loss"] == pytest.approx(np.average(losses[kept], weights=weight[kept]), rel=1e-5)
    assert found["validation_accuracy"] == pytest.approx(np.average(output.argmax(axis=1) == y, weights=weight))


@pytest.mark.parametrize(("n", "share", "ignored"), [(19, 0.01, 0), (20, 0.01, 1), (101, 0.01, 2), (1000, 0.5, 50)])
def test_how_many_are_ignored(n, share, ignored):
    losses = torch.randperm(n).double()
    assert mean_without_worst(losses, torch.ones(n), share) == pytest.approx((n - ignored - 1) / 2)


def test_samples_that_do_not_count_are_not_among_the_worst():
    losses, weight = torch.arange(40.0), torch.ones(40)
    weight[20:] = 0
    assert mean_without_worst(losses, weight, 0.01) == pytest.approx(np.arange(19).mean())
    weight[2:] = 0  # two that count are too few to leave one out
    assert mean_without_worst(losses, weight, 0.01) == 0.5


def test_an_infinite_loss_is_ignored_like_others():
    losses = torch.arange(40.0)
    losses[7] = torch.inf
    assert mean_without_worst(losses, torch.ones(40), 0.01) == pytest.approx(np.delete(np.arange(40), 7).mean())
    assert mean_without_worst(losses, torch.ones(40), 0.0) == np.inf
    losses[8] = torch.inf  # one more than may be
    assert mean_without_worst(losses, torch.ones(40), 0.01) == np.inf


def test_a_loss_that_is_not_a_number_is_not_ignored():
    samples = make_samples(90)
    preparation = prepare(samples)
    module = make(Hopeless, preparation)
    feed = trainer(preparation).loader(samples, torch.device("cpu"))
    assert np.isnan(validate(module, module, feed, 1000)["validation_loss"])


LOSS = st.one_of(st.floats(-5, 5), st.just(math.inf), st.just(math.nan))


@given(st.lists(st.tuples(LOSS, LOSS), min_size=1, max_size=12), st.integers(1, 4))
def test_models_at_once_stop_as_each_alone(losses, patience):
    together = EarlyStopping(patience, models=2)
    for epoch, pair in enumerate(losses):
        for model, loss in enumerate(pair):
            together.improves(loss, epoch, model)
    for model in range(2):
        own = np.array([pair[model] for pair in losses])
        known = np.where(np.isnan(own), math.inf, own)
        best = int(known.argmin()) if np.isfinite(known.min()) else None
        assert together.best_epoch[model] == best
        assert together.stale[model] == (len(own) if best is None else len(own) - 1 - best)
        assert together.ended(model) == (together.stale[model] >= patience)


def test_without_patience_nothing_ends():
    stopping = EarlyStopping(None)
    assert [stopping.improves(loss, epoch) for epoch, loss in enumerate([1.0, 2.0, 2.0])] == [True, False, False]
    assert not stopping.ended()


def test_a_fall_that_is_not_worthwhile_is_the_best_and_ends_the_patience():
    stopping = EarlyStopping(3, worthwhile=0.1)
    losses = [1.0, 0.95, 0.89, 0.85, 0.8, 0.795]  # 0.89 is worthwhile, and 0.795 nearly
    assert [stopping.improves(loss, epoch) for epoch, loss in enumerate(losses)] == [True] * 6
    assert (stopping.best, stopping.best_epoch, stopping.stale, stopping.ended()) == ([0.795], [5], [3], True)


def test_only_the_automatic_patience_of_a_classification_asks_what_is_worthwhile():
    automatic, given = (resolve(TrainingSettings(patience=patience), samples=600) for patience in ("auto", 5))
    assert EarlyStopping.of(automatic, 10).worthwhile == WORTHWHILE > 0
    assert EarlyStopping.of(automatic, 10, classification=False).worthwhile == 0
    assert EarlyStopping.of(given, 10).worthwhile == 0


def test_separable_classes_are_not_learned_for_ever():
    rng = np.random.default_rng(0)
    y = np.arange(260) % 2
    samples = Samples.of({name: rng.normal(size=(260, 3)) + 4.0 * y[:, None] for name in "ab"}, y)
    log = Model.fit("late", samples[:200], samples[200:], trainer=Trainer(device="cpu")).logs[0]
    losses = [row["validation_loss"] for row in log.rows]
    assert losses[-1] == min(losses) < 0.01, "it falls all the time"
    assert len(losses) < 0.5 * resolve(TrainingSettings(), samples=200).epochs


def test_the_state_of_an_older_version_goes_on():
    stopping = EarlyStopping(3, worthwhile=0.1)
    stopping.restore({"best": [0.5, 0.4], "best_epoch": [4, None], "stale": [2, 7]})
    assert (stopping.waiting_from, stopping.passed) == ([0.5, 0.4], [7, 7])
    assert stopping.improves(0.45, 7)
    assert stopping.ended()


def test_state_goes_on():
    first, second = EarlyStopping(2), EarlyStopping(2)
    first.improves(1.0, 0)
    first.improves(3.0, 1)
    second.restore(first.state())
    assert second.improves(2.0, 2) is False
    assert (second.best, second.best_epoch, second.ended()) == ([1.0], [0], True)
