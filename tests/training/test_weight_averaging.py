"""Averaged weights against means taken by hand, alone and as a setting of training."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from consilience.training import Phase
from consilience.training.weight_averaging import WeightAveraging
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
    average = WeightAveraging(rule)
    average.start(line, line.parameters())
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


def test_what_is_saved_beside_weights_is_averaged_where_it_has_a_mean():
    norm = nn.BatchNorm1d(1)
    norm.register_buffer("mask", torch.tensor([-math.inf, 2.0]))
    norm.register_buffer("least", torch.tensor(math.inf))
    norm.register_buffer("passing", torch.tensor([0.0]), persistent=False)
    average = WeightAveraging("mean")
    average.start(norm, norm.parameters())
    for value in (1.0, 3.0):
        norm.running_mean = torch.tensor([value])  # in the place of the one before
        norm.least.fill_(value if value > 1 else math.inf)
        norm.passing.fill_(value)
        norm.num_batches_tracked.add_(1)
        average.update()
    average.apply()
    assert norm.running_mean.item() == 2
    assert norm.mask.tolist() == [-math.inf, 2]
    assert norm.least.item() == 3
    assert norm.num_batches_tracked.item() == 2
    assert norm.passing.item() == 3  # no part of what is saved


def test_many_small_steps_are_not_lost_in_16_bits():
    line = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    average = WeightAveraging("mean")
    average.start(line, line.parameters())
    for number in range(1000):
        line.weight.data.fill_(number / 1000)
        average.update()
    average.apply()
    assert line.weight.item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("rule", ["mean", 0.9])
def test_without_validation_training_ends_with_the_average_of_all_steps(rule, accumulate):
    settings = {"batch_size": 8, "epochs": 3, "accumulate": accumulate}
    raw, averaged = make(Recorded, PREPARATION), make(Recorded, PREPARATION)
    plain = trainer(PREPARATION, **settings).run(raw, SAMPLES)
    log = trainer(PREPARATION, average=rule, **settings).run(averaged, SAMPLES)
    assert [row["task"] for row in log.rows] == [row["task"] for row in plain.rows]  # it takes no part in learning
    met = [*averaged.seen, weights(raw)]
    steps = [after for before, after in pairwise(met) if not same(before, after)]
    assert len(steps) == 3 * math.ceil(7 / accumulate)
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


def test_every_phase_begins_an_average_of_its_own():
    phases = [Phase("first", epochs=2), Phase("second", epochs=1)]
    module = make(Recorded, PREPARATION)
    trainer(PREPARATION, average="mean", batch_size=50).run(module, SAMPLES, phases=phases)
    first, second = module.seen[1]["map.weight"], module.seen[2]["map.weight"]
    assert not torch.equal(second, first)  # it went on from the average of two steps, of which one was `first`
    once = make(Recorded, PREPARATION)
    once.load_state_dict(module.seen[2])
    step_again = trainer(PREPARATION, batch_size=50)
    step_again.run(once, SAMPLES, phases=[phases[1]])
    torch.testing.assert_close(module.map.weight, once.map.weight)  # one step, and so its own average


def test_ctrl_c_without_validation_leaves_the_average(caplog):
    module = make(Recorded, PREPARATION)
    module.trap = At(KeyboardInterrupt(), epoch=1, batch=2)
    log = trainer(PREPARATION, average="mean", batch_size=8).run(module, SAMPLES)
    assert log.interrupted
    assert "keeping the average of its steps so far" in caplog.text
    steps = torch.stack([step["map.weight"] for step in module.seen[1:]])
    torch.testing.assert_close(module.map.weight.detach(), steps.mean(dim=0))
