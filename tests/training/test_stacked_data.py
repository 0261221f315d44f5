"""The data of many trainings at once: what each trial sees is what it would have alone."""

import numpy as np
import torch

from consilience.core.samples import MappedRows, Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation
from consilience.training.batch_plans import plan_epoch
from consilience.training.devices import epoch_seed
from consilience.training.stacked_data import Trials, plan_own_orders

BASE = np.random.default_rng(0).integers(0, 256, size=(6, 1, 4, 4), dtype=np.uint8)


def drawn(seed, n=20):
    """A vector, and an image of which there are only six, each shared by several samples."""
    random = np.random.default_rng(seed)
    shared = MappedRows(BASE, random.integers(0, 6 - seed % 2, size=n))  # of which some trials use fewer
    return Samples.of({"vector": random.normal(seed, 2, size=(n, 3)), "image": shared}, random.integers(0, 3, size=n))


def prepare(samples):
    return Preparation.fit(samples, Task.of_labels(np.arange(3)))


def assert_trial(trials, trial, samples, preparation, rows=slice(None)):
    """A trial holds what its samples' own batch holds."""
    whole = preparation.batch(samples)
    for name in samples.names:
        torch.testing.assert_close(trials.values[name][trial], whole[name][rows])
    assert torch.equal(trials.y[trial], whole.y[rows])


def test_every_trial_has_its_own_samples_in_its_own_preparation():
    sets = [drawn(seed) for seed in range(3)]
    prepared = [prepare(samples) for samples in sets]
    trials = Trials.of(sets, prepared)
    assert (len(trials), trials.samples) == (3, 20)
    assert trials.values["image"].shape == (3, 6, 1, 4, 4)  # each of the six once, however many share it
    own = torch.stack([torch.randperm(20)[:5] for _ in range(3)])
    some, same = trials.rows(own), trials.rows(torch.tensor([4, 1, 1]))
    for trial, (samples, preparation) in enumerate(zip(sets, prepared)):
        assert_trial(trials.rows(slice(None)), trial, samples, preparation)
        assert_trial(some, trial, samples, preparation, own[trial])
        assert_trial(same, trial, samples, preparation, torch.tensor([4, 1, 1]))
    left = trials.only(torch.tensor([False, True, True])).rows(own[1:])
    assert_trial(left, 1, sets[2], prepared[2], own[2])


def test_what_all_trials_share_is_there_once():
    samples = drawn(0)
    preparation = prepare(samples)
    trials = Trials.of([samples] * 4, [preparation] * 4)
    for one in (trials, trials.only(torch.tensor([True, False, True, True]))):
        for values in (*one.values.values(), *one.places.values(), one.y):
            assert values.stride(0) == 0
    own = torch.stack([torch.randperm(20)[:5] for _ in range(4)])
    for trial in range(4):
        assert_trial(trials.rows(own), trial, samples, preparation, own[trial])


def test_samples_come_as_a_trainer_orders_them():
    weight = np.random.default_rng(0).random(23)
    for weighted in (None, weight):
        samples = Samples.of(drawn(0, 23), weight=weighted)
        trials = Trials.of([samples] * 2, [prepare(samples)] * 2)
        batches = list(plan_own_orders(trials, 5, 2, seeds=[3, 8], epoch=2))
        for trial, seed in enumerate((3, 8)):
            order = torch.randperm(23, generator=torch.Generator().manual_seed(epoch_seed(seed, 0, 2)))
            plans = plan_epoch(order, torch.ones(23) if weighted is None else torch.tensor(weight), 5, 2)
            assert [batch.rows[trial].tolist() for batch in batches] == [plan.rows.tolist() for plan in plans]
            assert [batch.ends_step for batch in batches] == [plan.ends_step for plan in plans]
            for name in ("share", "of_epoch"):
                values = [getattr(batch, name) for batch in batches]
                values = values if weighted is None else torch.stack(values)[:, trial]
                np.testing.assert_allclose(values, [getattr(plan, name) for plan in plans], rtol=1e-5)


def test_missing_modalities_and_weights_are_each_trials_own():
    random = np.random.default_rng(5)
    masks = [random.random((20, 2)) < 0.7, np.ones((20, 2), dtype=bool)]
    masks[0][:, 1] = True  # no sample of either trial lacks the image
    sets = [drawn(0).replaced({}, present=masks[0]), Samples.of(drawn(2), weight=random.random(20))]
    prepared = [prepare(samples) for samples in sets]
    trials = Trials.of(sets, prepared)
    assert trials.complete == {"image"}
    rows = torch.tensor([4, 1, 1])
    some = trials.rows(rows)
    for trial, (samples, preparation) in enumerate(zip(sets, prepared)):
        whole = preparation.batch(samples)
        assert_trial(some, trial, samples, preparation, rows)
        assert torch.equal(some.present[trial], whole.present[rows])
        torch.testing.assert_close(some.weight[trial], whole.weight[rows])
    hidden = torch.rand(2, 3, 2) < 0.5
    fewer = some.hiding(lambda present: hidden)
    assert torch.equal(fewer.present, some.present & ~hidden)
    assert not fewer.complete
    assert (fewer.values["image"][hidden[..., 1]] == 0).all()
    torch.testing.assert_close(fewer.values["vector"][~hidden[..., 0]], some.values["vector"][~hidden[..., 0]])
    assert Trials.of([sets[1]] * 2, [prepared[1]] * 2).present is None


def test_a_modality_that_only_some_trials_share_rows_of():
    alone = Samples.of({"vector": drawn(1)["vector"], "image": drawn(1).read("image", slice(None))}, drawn(1).y)
    sets = [drawn(0), alone]
    prepared = [prepare(samples) for samples in sets]
    trials = Trials.of(sets, prepared)
    for trial, (samples, preparation) in enumerate(zip(sets, prepared)):
        assert_trial(trials.rows(slice(None)), trial, samples, preparation)
