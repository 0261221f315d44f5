"""The data of many trainings at once: what each trial sees is what it would have alone."""

import numpy as np
import torch

from consilience.core.samples import MappedRows, Samples
from consilience.core.targets import Task
from consilience.preparation import Preparation
from consilience.training.batch_plan import plan_epoch
from consilience.training.seeding import epoch_seed
from consilience.training.stacked_data import Trials, own_orders

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
    prepared = [prepare(one) for one in sets]
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
    batches = own_orders(23, 5, seeds=[3, 8], epoch=2)
    for trial, seed in enumerate((3, 8)):
        order = torch.randperm(23, generator=torch.Generator().manual_seed(epoch_seed(seed, 0, 2)))
        plans = plan_epoch(order, torch.ones(23), 5)
        assert [batch[trial].tolist() for batch in batches] == [plan.rows.tolist() for plan in plans]
