"""Averaged weights against means taken by hand, alone and as a setting of training."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from consilience.training import Phase
from consilience.training.averaging import WeightAverage
from training.toys import At, Straight, make, make_samples, prepare, same, trainer, weights

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


class Recorded(Straight):
    """Notes its weights before every step of training."""

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        self.seen = []

    def objective(self, prediction, batch, step):
        self.seen.append(weights(self))
        return super().objective(prediction, batch, step)


def walked(rule, values):
    """The average that is left after a weight took these values."""
    line = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    average = WeightAverage(line, line.parameters(), rule)
    for value in values:
        line.weight.data.fill_(value)
        average.update()
    average.apply()
    return line.weight.item()


numbers = st.lists(st.floats(-100, 100), min_size=1, max_size=40)


@given(numbers)
def test_the_mean_is_the_mean(values):
    assert walked("mean", values) == pytest.approx(np.mean(values), abs=1e-9)


@given(numbers, st.floats(0.01, 0.99))
def test_a_moving_average_begins_as_the_mean(values, decay):
    expected = 0.0
    for number, value in enumerate(values, start=1):
        share = max(1 - decay, 1 / number)
        expected = (1 - share) * expected + share * value
    assert walked(decay, values) == pytest.approx(expected, abs=1e-9)


def test_before_the_first_step_nothing_changes():
    line = nn.Linear(2, 2)
    before = weights(line)
    average = WeightAverage(line, line.parameters(), "mean")
    average.apply()
    assert same(weights(line), before)


def test_running_statistics_are_averaged_and_constants_left_alone():
    norm = nn.BatchNorm1d(1)
    norm.register_buffer("mask", torch.tensor([-math.inf]))
    norm.register_buffer("passing", torch.tensor([0.0]), persistent=False)
    average = WeightAverage(norm, norm.parameters(), "mean")
    for value in (1.0, 3.0):
        norm.running_mean.fill_(value)
        norm.passing.fill_(value)
        norm.num_batches_tracked.add_(1)
        average.update()
    average.apply()
    assert norm.running_mean.item() == 2
    assert norm.mask.item() == -math.inf
    assert norm.num_batches_tracked.item() == 2
    assert norm.passing.item() == 3  # no part of what is saved


def test_many_small_steps_are_not_lost_in_16_bits():
    line = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    average = WeightAverage(line, line.parameters(), "mean")
    for number in range(1000):
        line.weight.data.fill_(number % 2)
        average.update()
    assert average.means[0].item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("rule", ["mean", 0.9])
def test_without_validation_training_ends_with_the_average_of_all_steps(rule):
    settings = {"batch_size": 8, "epochs": 3}
    raw, averaged = make(Recorded, PREPARATION), make(Recorded, PREPARATION)
    plain = trainer(PREPARATION, **settings).run(raw, SAMPLES)
    log = trainer(PREPARATION, average=rule, **settings).run(averaged, SAMPLES)
    assert [row["task"] for row in log.rows] == [row["task"] for row in plain.rows]  # it takes no part in learning
    steps = [*averaged.seen[1:], weights(raw)]
    assert len(steps) == 3 * 7
    for name, value in weights(averaged).items():
        expected = torch.zeros_like(value, dtype=torch.float64)
        for number, one in enumerate(steps, start=1):
            share = 1 / number if rule == "mean" else max(1 - rule, 1 / number)
            expected = expected + share * (one[name] - expected)
        torch.testing.assert_close(value.double(), expected, atol=1e-6, rtol=1e-5)


def test_the_average_is_what_is_validated_and_kept():
    settings = {"batch_size": 8, "epochs": 6, "patience": None, "lr": 0.5}
    averaged = make(Recorded, PREPARATION)
    log = trainer(PREPARATION, average="mean", **settings).run(averaged, SAMPLES, VALIDATION)
    until = trainer(PREPARATION, average="mean", **settings | {"epochs": log.best_epoch + 1})
    shorter = make(Recorded, PREPARATION)
    until.run(shorter, SAMPLES)  # no validation: the average of as many epochs, whatever it is worth
    assert same(weights(averaged), weights(shorter))
    plain = trainer(PREPARATION, **settings).run(make(Straight, PREPARATION), SAMPLES, VALIDATION)
    assert [row["validation_loss"] for row in log.rows] != [row["validation_loss"] for row in plain.rows]


def test_what_a_phase_does_not_train_stays():
    module = make(Straight, PREPARATION)
    before = weights(module)
    only = [Phase("map", parameters=lambda one: [one.map.weight])]
    trainer(PREPARATION, average="mean").run(module, SAMPLES, VALIDATION, only)
    after = weights(module)
    assert torch.equal(after["map.bias"], before["map.bias"])
    assert not torch.equal(after["map.weight"], before["map.weight"])


def test_ctrl_c_without_validation_leaves_the_average():
    module = make(Recorded, PREPARATION)
    module.trap = At(KeyboardInterrupt(), epoch=1, batch=2)
    log = trainer(PREPARATION, average="mean", batch_size=8).run(module, SAMPLES)
    assert log.interrupted
    steps = torch.stack([one["map.weight"] for one in module.seen[1:]])
    torch.testing.assert_close(module.map.weight.detach(), steps.mean(dim=0))
