import copy
import math
from typing import get_args

import pytest
import torch
from torch import nn

from consilience.training.optimizers import OPTIMIZERS, LearningRate, build_optimizer, restore_optimizer
from consilience.training.training_settings import Optimizer, TrainingSettings, resolve


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_takes_torchs_own_steps(name, fused, dtype):
    torch.manual_seed(0)
    start, momentum = torch.rand(37, dtype=dtype), 0.5 if name in ("sgd", "rmsprop") else 0.0
    mine, reference = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    settings = TrainingSettings(optimizer=name, lr=0.05, weight_decay=0.01, momentum=momentum)
    optimizer = build_optimizer(resolve(settings, samples=100), [mine], fused=fused)
    plain = OPTIMIZERS[name]([reference], lr=0.05, weight_decay=0.01, **({"momentum": momentum} if momentum else {}))
    for _ in range(4):
        gradient = torch.rand(37, dtype=dtype)
        mine.grad, reference.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        plain.step()
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(mine, reference, atol=tolerance, rtol=tolerance)
    assert not torch.equal(mine, start)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop"])
def test_a_state_saved_elsewhere_is_gone_on_from_in_this_ones_way(name):
    def stepped(optimizer, weight):
        weight.grad = torch.ones(3)
        optimizer.step()

    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    saving = build_optimizer(resolve(TrainingSettings(optimizer=name), 100), [first], 0.1)
    stepped(saving, first)
    state = copy.deepcopy(saving.state_dict())
    state["param_groups"][0]["capturable"] = True  # as steps recorded on a GPU would have left it
    going_on = build_optimizer(resolve(TrainingSettings(optimizer=name), 100), [second], 0.1)
    restore_optimizer(going_on, state)
    assert not going_on.param_groups[0]["capturable"]
    with torch.no_grad():
        second.copy_(first)
    stepped(saving, first)
    stepped(going_on, second)
    assert torch.equal(first, second)


def test_every_declared_optimizer_exists():
    assert set(OPTIMIZERS) == set(get_args(Optimizer))


def factors(schedule, steps):
    found = []
    for _ in range(steps):
        found.append(schedule.factor())
        schedule.step += 1
    return found


def test_warm_up_is_linear_and_ends_at_one():
    assert factors(LearningRate(0.1, "constant", 4, 10, 1), 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(LearningRate(0.1, "constant", 0, 10, 1), 2) == [1.0, 1.0]


def test_cosine_comes_down_after_the_warm_up():
    found = factors(LearningRate(0.1, "cosine", 2, 6, 1), 7)
    expected = [0.5, 1.0, *(0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(4)), 0.0]
    assert found == pytest.approx(expected)


def test_plateau_halves_whenever_the_score_stood_still():
    schedule = LearningRate(0.1, "plateau", 0, 100, patience=2)
    reductions = []
    for score in [5, 4, 4, 6, 4, 4, 3, 3, 3]:
        schedule.end_epoch(score)
        reductions.append(schedule.factor())
    assert reductions == [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]


def test_a_constant_rate_ignores_scores():
    schedule = LearningRate(0.1, "constant", 0, 100, patience=1)
    for score in (1, 2, 3):
        schedule.end_epoch(score)
    assert schedule.factor() == 1


def test_the_rate_moves_within_an_epoch_only_where_it_must():
    warm = LearningRate(0.1, "plateau", 2, 10, 1)
    moves, factors = [], []
    for _ in range(5):
        moves.append(warm.moves)
        factors.append(warm.factor())
        warm.step += 1
    assert factors == [0.5, 1, 1, 1, 1]
    assert moves == [True, True, False, False, False]
    assert not LearningRate(0.1, "constant", 0, 10, 1).moves
    assert LearningRate(0.1, "cosine", 0, 10, 1).moves


def test_the_rate_is_set_in_every_group():
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(2))]}])
    LearningRate.of(resolve(TrainingSettings(lr=0.2, warmup=1), samples=4), epochs=3, steps=4).set(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.05]


def test_state_goes_on():
    first, second = (LearningRate(0.1, "plateau", 3, 20, patience=2) for _ in range(2))
    first.step = 2
    for score in (3.0, 4.0, 5.0, 6.0):
        first.end_epoch(score)
    second.restore(first.state())
    for schedule in (first, second):
        schedule.end_epoch(7.0)
    assert first.state() == second.state()
    assert first.factor() == second.factor() == 0.25
