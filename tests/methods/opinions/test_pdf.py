"""`pdf`: beliefs and weights by hand, and who learns from what."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.methods import Spec, Step
from consilience.methods.opinions.pdf import Pdf, belief_weights, co_belief, relative_calibration
from toy_batches import CLASSES, VECTORS, batch_of

MISSING = torch.tensor([[True, True], [True, False], [False, True], [False, False]])


def by_hand(confidence, probability, present):
    """Calibrated co-belief and weights of one sample, one modality at a time."""
    there = [m for m, flag in enumerate(present) if flag]
    belief = [0.0] * len(present)
    for m in there:
        others = [n for n in there if n != m]
        doubt = {n: -math.log(confidence[n]) for n in there}
        holo = sum(doubt[n] for n in others) / sum(doubt.values())
        uniformity = {n: np.mean(np.abs(probability[n] - 1 / len(probability[n]))) for n in there}
        ratio = uniformity[m] / np.mean([uniformity[n] for n in others]) if others else 1.0
        belief[m] = (confidence[m] + holo) * min(1.0, ratio)
    total = sum(math.exp(belief[m]) for m in there)
    return [math.exp(value) / total if m in there else 0.0 for m, value in enumerate(belief)]


@given(st.integers(0, 10_000), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_weights_by_hand(seed, views):
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.02, 0.98, size=(4, views))
    probability = random.dirichlet(np.ones(3), size=(4, views))
    present = random.random((4, views)) < 0.7
    there = torch.tensor(present)
    belief = co_belief(torch.tensor(confidence).logit(), there)
    belief = belief * relative_calibration(torch.tensor(probability), there)
    weights = belief_weights(belief, there)
    for row in range(4):
        np.testing.assert_allclose(weights[row], by_hand(confidence[row], probability[row], present[row]), atol=1e-9)


def test_two_views_worked_out():
    # p̂ = .8, .4; ℓ = .2231, .9163, sum 1.1394; holo = .8042, .1958; co-belief = 1.6042, .5958.
    # DU of (.7, .2, .1) is (.3667 + .1333 + .2333) / 3 = .2444, of (.4, .3, .3) it is .0444: RC = 1, .1818.
    both = torch.tensor([True, True])
    belief = co_belief(torch.tensor([0.8, 0.4]).logit(), both)
    torch.testing.assert_close(belief, torch.tensor([1.6042, 0.5958]), atol=1e-4, rtol=0)
    ratio = relative_calibration(torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3]]), both)
    torch.testing.assert_close(ratio, torch.tensor([1.0, 0.1818]), atol=1e-4, rtol=0)
    weights = belief_weights(belief * ratio, both)
    torch.testing.assert_close(weights, torch.tensor([0.8169, 0.1831]), atol=1e-4, rtol=0)


def test_saturated_confidence_is_no_nothing_over_nothing():
    both = torch.tensor([True, True])
    torch.testing.assert_close(co_belief(torch.tensor([1e4, 1e4]), both), torch.tensor([1.5, 1.5]))
    torch.testing.assert_close(co_belief(torch.tensor([1e4, -1e4]), both), torch.tensor([2.0, 0.0]))
    undecided = torch.full((2, 4), 0.25)
    torch.testing.assert_close(relative_calibration(undecided, both), torch.ones(2))


def test_the_output_is_the_weighted_sum_and_calibration_is_for_tests():
    batch = batch_of(4, MISSING)
    method = Pdf(Spec(VECTORS, CLASSES))
    for part in method.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for calibrated in (False, True):
        prediction = method.train(not calibrated)(batch)
        confidence = prediction.extra["confidence"].sigmoid().tolist()
        probability = prediction.opinions.softmax(2).detach().numpy()
        if not calibrated:  # all equally decided: every ratio is 1
            probability = np.broadcast_to([1.0, 0.0, 0.0], (4, 2, 3))
        for row in range(4):
            expected = by_hand(confidence[row], probability[row], MISSING[row].tolist())
            np.testing.assert_allclose(prediction.weights[row], expected, atol=1e-6)
        total = (prediction.weights[:, :, None] * prediction.opinions).sum(1)
        torch.testing.assert_close(prediction.output, total)
    assert (prediction.output[3] == 0).all()
    plain = Pdf(Spec(VECTORS, CLASSES), calibrate=False)
    plain.load_state_dict(method.state_dict())
    assert not torch.allclose(plain.eval()(batch).weights[0], prediction.weights[0])


def test_confidence_learns_the_probability_of_the_true_class_and_nothing_else_does():
    batch = batch_of(4, MISSING, weight=[1.0, 2.0, 0.5, 3.0])
    method = Pdf(Spec(VECTORS, CLASSES)).eval()
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step())
    assert list(losses) == ["task", "experts", "confidence"]
    predicted, probability = prediction.extra["confidence"].sigmoid(), prediction.opinions.softmax(2)
    miss = [
        sum(abs(predicted[i, m] - probability[i, m, batch.y[i]]).item() for m in range(2) if MISSING[i, m])
        for i in range(4)
    ]
    assert losses["confidence"].item() == pytest.approx(np.average(miss, weights=batch.weight), rel=1e-5)
    losses["confidence"].backward(retain_graph=True)
    moved = {name.split(".")[0] for name, parameter in method.named_parameters() if parameter.grad is not None}
    assert moved == {"confidence_heads"}
    method.zero_grad()
    (losses["task"] + losses["experts"]).backward()
    moved = {name.split(".")[0] for name, parameter in method.named_parameters() if parameter.grad is not None}
    assert moved == {"encoders", "heads"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_finite_at_extreme_logits(dtype):
    batch = batch_of(4, MISSING)
    method = Pdf(Spec(VECTORS, CLASSES))
    with torch.no_grad():
        for head, confidence in zip(method.heads.values(), method.confidence_heads.values()):
            head.bias.copy_(torch.tensor([1e4, -1e4, 0.0]))
            confidence[-1].bias.fill_(1e4)
    method.to(dtype)
    batch.values = {name: value.to(dtype) for name, value in batch.values.items()}
    prediction = method(batch)
    assert prediction.output.dtype == prediction.weights.dtype == torch.float32
    losses = method.objective(prediction, batch, Step())
    sum(losses.values()).backward()
    assert all(torch.isfinite(values).all() for values in (prediction.output, prediction.weights, *losses.values()))
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"calibrate": "yes"}, "calibrate must be True or False, got 'yes'"),
        ({"confidence_width": 0}, "confidence_width must be a whole number ≥ 1, got 0"),
    ],
)
def test_settings_are_checked(given, words):
    with pytest.raises(InputError, match=words):
        Pdf(Spec(VECTORS, CLASSES), **given)
