"""Rademacher complexity of linear heads, against every labelling there is and against an optimiser."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from consilience.core.errors import InputError
from consilience.evaluation.rademacher import head_complexity, linear_complexity, linear_heads, seen_by
from consilience.methods import PerModality

X = np.random.default_rng(0).normal(size=(6, 2))


def every_labelling(x, outputs=1):
    """The exact expectation of ‖Σ_i σ_i x_iᵀ‖ over all labels."""
    found = [
        np.linalg.norm(np.reshape(labels, (outputs, len(x))) @ x)
        for labels in itertools.product((-1, 1), repeat=outputs * len(x))
    ]
    return np.mean(found)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_estimate_is_the_expectation_over_all_labels(outputs):
    exact = 3.0 / len(X) * every_labelling(X, outputs)
    found = linear_complexity(X, 3.0, outputs=outputs, draws=2000)
    assert abs(found.estimate - exact) < 4 * found.error
    assert found.error < 0.02 * exact
    assert exact <= found.ceiling == pytest.approx(3.0 * math.sqrt(outputs * (X**2).sum()) / len(X))


def test_no_weight_vector_fits_random_labels_better():
    labels = np.array([1, -1, 1, 1, -1, -1])
    # Over the ball of radius 3, written as a free vector put back onto the sphere.
    best = minimize(lambda w: -3 * (labels @ X) @ w / np.linalg.norm(w), np.ones(2), method="Nelder-Mead").fun
    assert -best == pytest.approx(3 * np.linalg.norm(labels @ X), rel=1e-4)


def test_it_falls_with_the_root_of_n():
    rng = np.random.default_rng(1)
    few, many = (linear_complexity(rng.normal(size=(n, 4)), 1.0).estimate for n in (100, 1600))
    assert few / many == pytest.approx(4, rel=0.15)


def test_two_classes_are_the_papers_case_and_what_softmax_does_not_see_does_not_count():
    rng = np.random.default_rng(2)
    weight, bias = rng.normal(size=(2, 2)), rng.normal(size=2)
    with_one = np.hstack([X, np.ones((6, 1))])
    radius = np.linalg.norm(np.hstack([weight, bias[:, None]])[1] - np.hstack([weight, bias[:, None]])[0])
    plain = linear_complexity(with_one, radius)
    assert head_complexity(X, weight, bias) == pytest.approx(tuple(2 * part for part in plain))
    assert head_complexity(X, weight + 5.0, bias - 3.0) == pytest.approx(head_complexity(X, weight, bias))


def test_more_classes_pay_for_the_vector_contraction():
    weight = np.random.default_rng(3).normal(size=(3, 2))
    radius = np.linalg.norm(weight - weight.mean(axis=0))
    plain = linear_complexity(X, radius, outputs=3)
    assert head_complexity(X, weight) == pytest.approx(tuple(4 * part for part in plain))
    assert head_complexity(X, weight + np.array([1.0, -2.0])) == pytest.approx(head_complexity(X, weight))


def test_heads_are_found_and_their_features_seen():
    experts = nn.Module()
    experts.heads = PerModality({"a": nn.Linear(2, 3), "b.c": nn.Linear(4, 3)})
    found = linear_heads(experts, ("a", "b.c"))
    assert found["b.c"] is experts.heads["b.c"]
    with seen_by(found) as features:
        for head in found.values():
            head(torch.ones(5, head.in_features))
            head(torch.zeros(2, head.in_features))
    found["a"](torch.ones(9, 2))
    assert torch.cat(features["a"]).shape == (7, 2)
    assert torch.cat(features["b.c"]).sum() == 20
    alone = nn.Module()
    alone.head = nn.Linear(2, 3)
    bayes = nn.Module()
    bayes.experts = PerModality({"a": alone})
    assert linear_heads(bayes, ("a",)) == {"a": alone.head}
    alone.head = nn.Sequential(nn.Linear(2, 3))
    for method, names in ((bayes, ("a",)), (experts, ("a", "z")), (nn.Module(), ("a",)), (None, ("a",))):
        assert linear_heads(method, names) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: linear_complexity([1.0, 2.0], 1.0), r"shape \[n, width\] with n ≥ 1, got shape \[2\]"),
        (lambda: linear_complexity(X, -1.0), "0 ≤ radius, outputs ≥ 1 and draws ≥ 2, got -1.0, 1 and 100"),
        (lambda: head_complexity(X, np.ones((1, 2))), r"at least two classes for features \[n, width\], got \[1, 2\]"),
    ],
)
def test_what_does_not_fit_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()
