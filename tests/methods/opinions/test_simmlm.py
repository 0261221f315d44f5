"""`simmlm`: the gate over what is present, subsets, and the ranking loss, sample by sample."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.methods import Spec, Step
from consilience.methods.opinions import simmlm
from consilience.methods.opinions.simmlm import Simmlm, fewer
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False], [True, True]])


def mixture_by_hand(method, features, opinions, there):
    """One sample: softmax of the gate's scores over what is present."""
    h = torch.cat([one * flag for one, flag in zip(features, there)])
    scores = method.gate(h).exp() * there
    return (scores[:, None] * opinions).sum(0) / scores.sum() if there.any() else opinions[0] * 0


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_the_objective_by_hand(monkeypatch, task):
    batch = batch_of(5, SOME, task, weight=[1.0, 2.0, 0.5, 3.0, 1.0])
    less = torch.tensor([[True, False], [True, False], [False, True], [False, False], [False, True]])
    monkeypatch.setattr(simmlm, "fewer", lambda present: less)
    method = Simmlm(Spec(VECTORS, task), ranking=0.7, expert_loss=0.3).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())

    def loss(output, y):
        if task is CLASSES:
            return functional.cross_entropy(output[None], y[None]).item()
        return (output - y).square().mean().item()

    weight, parts = batch.weight.numpy(), []
    for i in range(5):
        features = [one.pooled[i] for one in prediction.features.values()]
        more, few = (
            loss(mixture_by_hand(method, features, prediction.opinions[i], there[i]), batch.y[i])
            for there in (SOME, less)
        )
        own = sum(loss(prediction.opinions[i, m], batch.y[i]) for m in range(2) if SOME[i, m])
        parts.append([(more + few) / 2, 0.7 * max(0, more - few), 0.3 * own])
    expected = np.average(parts, axis=0, weights=weight)
    found = [losses[name].item() for name in ("task", "ranking", "experts")]
    assert found == pytest.approx(expected.tolist(), rel=1e-4)


def test_weights_sum_to_one_over_what_is_present():
    prediction = Simmlm(Spec(VECTORS, CLASSES))(batch_of(5, SOME))
    assert torch.equal(prediction.weights > 0, SOME)
    assert prediction.weights.sum(1).tolist() == pytest.approx([1, 1, 1, 0, 1])


def test_fewer_keeps_some_and_hides_some():
    torch.manual_seed(0)
    present = torch.tensor([[True, True, True, False], [True, False, True, False], [False, False, True, False]])
    rows = present.repeat(2000, 1)
    kept = fewer(rows)
    assert not (kept & ~rows).any()
    count, there = kept.sum(1), rows.sum(1)
    assert (count >= 1).all()
    assert (count[there > 1] < there[there > 1]).all()
    assert (count[there == 1] == 1).all()
    three = kept[there == 3][:, :3].float()
    assert three.mean(0).tolist() == pytest.approx([0.5] * 3, abs=0.03)  # no modality is preferred
    assert not fewer(torch.zeros(2, 3, dtype=torch.bool)).any()


def test_the_ranking_loss_makes_more_no_worse_than_fewer():
    """A gate that prefers a modality of noise is worse than the other modality alone; the ranking loss sees it."""
    torch.manual_seed(0)
    method = Simmlm(Spec(VECTORS, CLASSES), ranking=5.0)
    batch = batch_of(64)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    found = []
    for _ in range(60):
        losses = method.objective(method(batch), batch, Step())
        found.append(losses["ranking"].item())
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    assert np.mean(found[-10:]) < np.mean(found[:10])
