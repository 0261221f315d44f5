import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.methods import Spec, Step
from consilience.methods.fusion.align import Align, cosine_distance
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


def by_loops(representations, present):
    """Mean of 1 − cos over pairs of present modalities, one number at a time."""
    found = []
    for vectors, there in zip(representations.tolist(), present.tolist()):
        distances = []
        for i in range(len(vectors)):
            for j in range(i):
                if there[i] and there[j]:
                    dot = sum(a * b for a, b in zip(vectors[i], vectors[j]))
                    norms = math.hypot(*vectors[i]) * math.hypot(*vectors[j])
                    distances.append(1 - dot / norms)
        found.append(sum(distances) / len(distances) if distances else 0.0)
    return found


@given(st.integers(0, 1000), st.integers(1, 5))
@settings(deadline=None)
def test_cosine_distance_by_loops(seed, modalities):
    random = np.random.default_rng(seed)
    representations = torch.tensor(random.normal(size=(4, modalities, 3)))
    present = torch.tensor(random.random((4, modalities)) < 0.7)
    np.testing.assert_allclose(cosine_distance(representations, present), by_loops(representations, present), atol=1e-9)


def test_it_knows_angles_and_no_lengths():
    x = torch.tensor([[[2.0, 0.0], [5.0, 0.0]], [[1.0, 0.0], [-3.0, 0.0]], [[1.0, 0.0], [0.0, 9.0]]])
    assert cosine_distance(x, torch.ones(3, 2, dtype=torch.bool)).tolist() == pytest.approx([0.0, 2.0, 1.0], abs=1e-6)


def test_the_objective_adds_what_is_present():
    present = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    batch = batch_of(4, present, weight=[1.0, 2.0, 0.5, 3.0])
    method = Align(Spec(VECTORS, CLASSES), shared=5, strength=0.7).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())
    shared = torch.stack([encoded.pooled for encoded in prediction.features.values()], dim=1).detach()
    assert shared.shape == (4, 2, 5)
    assert not shared[~present].any()
    expected = 0.7 * np.average(by_loops(shared, present), weights=batch.weight.numpy())
    assert losses["align"].item() == pytest.approx(expected, rel=1e-4)
    assert list(losses) == ["task", "align"]
    torch.testing.assert_close(prediction.joint, method.fusion.mix(torch.cat([*shared.unbind(1)], dim=1)))


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_gradients_are_finite_when_everything_is_missing(task):
    batch = batch_of(4, torch.zeros(4, 2, dtype=torch.bool), task)
    method = Align(Spec(VECTORS, task))
    losses = method.objective(method(batch), batch, Step())
    assert losses["align"] == 0
    sum(losses.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters() if parameter.grad is not None)


def test_aligning_brings_representations_together():
    torch.manual_seed(0)
    batch = batch_of(32)
    method = Align(Spec(VECTORS, CLASSES), strength=10.0, dropout=0.0).eval()
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    distances = []
    for _ in range(30):
        losses = method.objective(method(batch), batch, Step())
        distances.append(losses["align"].item())
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    assert distances[-1] < 0.3 * distances[0]
