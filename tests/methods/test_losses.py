import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.methods import expert_losses, task_losses, weighted_mean
from toy_batches import CLASSES, NUMBERS, batch_of


def test_task_losses_by_hand():
    batch = batch_of(5)
    logits = torch.randn(5, 3)
    expected = [
        math.log(sum(math.exp(one) for one in row)) - row[label]
        for row, label in zip(logits.tolist(), batch.y.tolist())
    ]
    np.testing.assert_allclose(task_losses(CLASSES, logits, batch), expected, rtol=1e-5)
    batch = batch_of(5, task=NUMBERS)
    output = torch.randn(5, 2)
    expected = [
        sum((o - t) ** 2 for o, t in zip(row, target)) / 2 for row, target in zip(output.tolist(), batch.y.tolist())
    ]
    np.testing.assert_allclose(task_losses(NUMBERS, output, batch), expected, rtol=1e-5)


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_expert_losses_are_task_losses_of_each(task):
    batch = batch_of(5, task=task)
    opinions = torch.randn(5, 4, task.outputs)
    found = expert_losses(task, opinions, batch)
    assert found.shape == (5, 4)
    for expert in range(4):
        torch.testing.assert_close(found[:, expert], task_losses(task, opinions[:, expert], batch))


@given(st.integers(0, 100), st.sampled_from([1e-20, 1.0, 1e15]))
@settings(deadline=None)
def test_weighted_means_are_numpys_and_know_no_scale(seed, scale):
    random = np.random.default_rng(seed)
    values, weight = random.normal(size=(6, 3)), random.random((6, 3)) * (random.random((6, 3)) < 0.7)
    weight[0] += 0.1
    v, w = torch.tensor(values), torch.tensor(weight * scale)
    np.testing.assert_allclose(weighted_mean(v, w), np.average(values, weights=weight), rtol=1e-9)
    np.testing.assert_allclose(weighted_mean(v, w, dim=0), np.average(values, weights=weight, axis=0), rtol=1e-9)


def test_a_mean_of_nothing_is_zero_with_a_gradient():
    values = torch.randn(4, 2, requires_grad=True)
    weight = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    found = weighted_mean(values, weight, dim=0)
    assert found[1] == 0
    (found.sum() + weighted_mean(values, torch.zeros(4, 2))).backward()
    assert torch.equal(values.grad, torch.tensor([[0.25, 0.0]]).expand(4, 2))
    assert weighted_mean(torch.ones(2), torch.tensor([True, False])) == 1
