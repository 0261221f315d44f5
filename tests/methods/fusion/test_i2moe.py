"""`i2moe`: experts one by one, and the interaction losses by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.methods import Spec, Step
from consilience.methods.fusion.i2moe import I2moe, InteractionExperts, interaction_losses
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of

SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def by_hand(outputs, there, by_angle):
    """The mean over experts of one sample's losses: outputs `[1 + modality, expert, output]`."""
    present = [m for m, flag in enumerate(there) if flag]
    count = len(there)
    full = outputs[0]

    def distance(expert, replaced):
        return np.linalg.norm(full[expert] - outputs[1 + replaced, expert])

    def cosine(expert, replaced):
        other = outputs[1 + replaced, expert]
        return full[expert] @ other / (np.linalg.norm(full[expert]) * np.linalg.norm(other))

    total = 0.0
    for m in present:
        others = [n for n in present if n != m]
        triplets = [max(0, distance(m, n) - distance(m, m) + 1) for n in others]
        total += np.mean(triplets) if others else 0
    if present:
        synergy, redundancy = count, count + 1
        if by_angle:
            total += np.mean([cosine(synergy, n) for n in present])
            total += np.mean([1 - cosine(redundancy, n) for n in present])
        else:
            total += np.mean([max(0, 1 - distance(synergy, n)) for n in present])
            total += np.mean([distance(redundancy, n) for n in present])
    return total / (count + 2)


@given(st.integers(0, 10_000), st.integers(2, 4), st.booleans())
@settings(deadline=None, max_examples=30)
def test_interaction_losses_by_hand(seed, modalities, by_angle):
    random = np.random.default_rng(seed)
    outputs = random.normal(size=(3, 1 + modalities, modalities + 2, 3))
    present = random.random((3, modalities)) < 0.7
    found = interaction_losses(torch.tensor(outputs), torch.tensor(present), by_angle)
    expected = [by_hand(one, there, by_angle) for one, there in zip(outputs, present)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_experts_at_once_equal_experts_one_by_one():
    widths = {"a": 3, "b": 2}
    experts = InteractionExperts(widths, 5, 4, 0.0).eval()
    joint, noise = torch.randn(6, 5), {"a": torch.randn(1, 3), "b": torch.randn(1, 2)}

    def expert(number, a, b):
        rows = slice(5 * number, 5 * number + 5)
        enter = {name: experts.enter[name] for name in widths}
        hidden = sum(x @ enter[name].weight[rows].T + enter[name].bias[rows] for name, x in (("a", a), ("b", b)))
        return hidden.relu() @ experts.leave[number] + experts.bias[number]

    a, b = joint.split((3, 2), dim=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda _: torch.cat([noise["a"], noise["b"]], dim=1))
        found = experts(joint, replaced=True)
    versions = [(a, b), (noise["a"], b), (a, noise["b"])]
    expected = torch.stack([torch.stack([expert(k, *one) for k in range(4)], dim=1) for one in versions], dim=1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(experts(joint, replaced=False), expected[:, :1])


@pytest.mark.parametrize("task", [CLASSES, NUMBERS], ids=["classes", "numbers"])
def test_the_objective_and_the_weighted_sum(task):
    batch = batch_of(4, SOME, task, weight=[1.0, 2.0, 0.5, 3.0])
    method = I2moe(Spec(VECTORS, task), interaction=0.7, dropout=0.0)
    prediction = method(batch)
    weights, outputs = prediction.extra["interactions"], prediction.extra["replaced"]
    assert weights.shape == (4, 4)
    assert weights.sum(1).tolist() == pytest.approx([1] * 4)
    torch.testing.assert_close(prediction.output, (weights[:, :, None] * outputs[:, 0]).sum(1))
    losses = method.objective(prediction, batch, Step())
    each = [by_hand(one, there, task is CLASSES) for one, there in zip(outputs.detach().numpy(), SOME)]
    expected = 0.7 * np.average(each, weights=batch.weight.numpy())
    assert losses["interaction"].item() == pytest.approx(expected, rel=1e-3)
    sum(losses.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())


def test_nothing_is_replaced_at_test_time():
    method = I2moe(Spec(VECTORS, CLASSES)).eval()
    prediction = method(batch_of())
    assert set(prediction.extra) == {"interactions"}
    assert list(method.objective(prediction, batch_of(), Step())) == ["task"]


def test_experts_come_to_differ_as_they_shall():
    """After training, redundancy turns less by a replacement than synergy, and uniqueness hears its modality most."""
    torch.manual_seed(0)
    batch = batch_of(128)
    method = I2moe(Spec(VECTORS, CLASSES), interaction=2.0, dropout=0.0)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    for _ in range(80):
        losses = method.objective(method(batch), batch, Step())
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
    outputs = method(batch).extra["replaced"].detach()
    apart = (outputs[:, :1] - outputs[:, 1:]).norm(dim=3).mean(0)  # [replaced, expert]
    assert apart[0, 0] > apart[1, 0]
    assert apart[1, 1] > apart[0, 1]
    alike = torch.cosine_similarity(outputs[:, :1, 2:], outputs[:, 1:, 2:], dim=3).mean((0, 1))  # [synergy, redundancy]
    assert alike[0] < 0 < 0.5 < alike[1]
