import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from consilience.methods import Spec, Step
from consilience.methods.opinions.late import Late, LateProbabilities, equal_weights
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


def opinions_and_mask(seed, spread=3.0):
    random = np.random.default_rng(seed)
    return random.normal(scale=spread, size=(5, 2, 3)), random.random((5, 2)) < 0.6


def with_mask(present):
    return batch_of(len(present), torch.tensor(present))


@given(st.integers(0, 500))
@settings(deadline=None)
def test_late_is_the_mean_of_the_present_logits(seed):
    opinions, present = opinions_and_mask(seed)
    output, weights = Late(Spec(VECTORS, CLASSES)).combine(torch.tensor(opinions), with_mask(present))
    for row in range(5):
        there = opinions[row][present[row]]
        expected = there.mean(axis=0) if len(there) else np.zeros(3)
        np.testing.assert_allclose(output[row], expected, atol=1e-9)
        np.testing.assert_allclose(weights[row], present[row] / max(1, present[row].sum()))


@given(st.integers(0, 500), st.sampled_from([1.0, 30.0, 300.0]))
@settings(deadline=None)
def test_late_probs_is_the_mean_of_the_present_probabilities(seed, spread):
    opinions, present = opinions_and_mask(seed, spread)
    output, _ = LateProbabilities(Spec(VECTORS, CLASSES)).combine(torch.tensor(opinions), with_mask(present))
    assert torch.isfinite(output).all()
    for row in range(5):
        there = softmax(opinions[row][present[row]], axis=1)
        expected = there.mean(axis=0) if len(there) else np.full(3, 1 / 3)
        np.testing.assert_allclose(softmax(output[row].numpy()), expected, atol=1e-9)
        if len(there):  # already normalised: log probabilities
            np.testing.assert_allclose(np.exp(output[row].numpy()), expected, atol=1e-9)


def test_a_loud_expert_outvotes_the_others_in_one_of_them_only():
    opinions = torch.tensor([[[90.0, 0.0, 0.0], [0.0, 2.0, 0.0]]])
    batch = with_mask([[True, True]])
    spec = Spec(VECTORS, CLASSES)
    by_logits = Late(spec).combine(opinions, batch)[0].softmax(1)[0]
    by_probabilities = LateProbabilities(spec).combine(opinions, batch)[0].softmax(1)[0]
    assert by_logits[1] < 1e-6
    assert by_probabilities[1] > 0.3


def test_regression_averages_numbers():
    present = [[True, True], [False, True]]
    batch = batch_of(2, torch.tensor(present), NUMBERS)
    method = Late(Spec(VECTORS, NUMBERS)).eval()
    prediction = method(batch)
    opinions = prediction.opinions.detach().numpy()
    np.testing.assert_allclose(prediction.output[0].detach(), opinions[0].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(prediction.output[1].detach(), opinions[1, 1], rtol=1e-6)


@pytest.mark.parametrize("cls", [Late, LateProbabilities])
@pytest.mark.parametrize("everything", [True, False])
def test_gradients_are_finite_whatever_is_missing(cls, everything):
    present = np.zeros((4, 2), dtype=bool) if everything else np.eye(4, 2, dtype=bool)
    batch = with_mask(present)
    method = cls(Spec(VECTORS, CLASSES))
    prediction = method(batch)
    assert torch.isfinite(prediction.output).all()
    assert (prediction.weights[~batch.present] == 0).all()
    sum(method.objective(prediction, batch, Step()).values()).backward()
    grads = [parameter.grad for parameter in method.parameters() if parameter.grad is not None]
    assert grads
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_double_precision_stays():
    opinions, present = opinions_and_mask(0)
    output, _ = LateProbabilities(Spec(VECTORS, CLASSES)).combine(torch.tensor(opinions), with_mask(present))
    assert output.dtype == torch.float64


def test_equal_weights_sum_to_one_over_what_is_present():
    present = torch.tensor([[True, True, False], [False, False, False], [False, True, False]])
    weights = equal_weights(present)
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
