"""The fusion of a few rows in plain NumPy: the same numbers as the general way, and its errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from consilience.bayes.fuse import fuse
from consilience.bayes.small_fuse import MOST_LOGITS, fuse_small
from consilience.core.errors import InputError


def general(opinions, prior=None, target_prior=None, present=None):
    """The same by the general way, which weights take."""
    first = next(iter(opinions.values())) if isinstance(opinions, dict) else opinions[..., 0, :]
    weights = {} if isinstance(opinions, dict) else np.ones(opinions.shape[:-1])
    out = np.empty(first.shape, first.dtype)
    return fuse(
        opinions, prior, target_prior=target_prior, present=present, weights=weights, out=out, return_conflict=True
    )


@settings(max_examples=100, deadline=None)
@given(
    leading=st.sampled_from([(), (1,), (7,), (3, 2)]),
    experts=st.integers(1, 4),
    classes=st.integers(2, 6),
    dtype=st.sampled_from(["float32", "float64"]),
    priors=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    named=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_it_is_the_general_way(leading, experts, classes, dtype, priors, named, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=5.0, size=(*leading, experts, classes)).astype(dtype)
    prior, target = (rng.dirichlet(np.full(classes, 3.0)) if given else None for given in priors[:2])
    present = rng.random((*leading, experts)) < 0.6 if priors[2] else None
    if present is not None:
        logits[~present] = np.nan
    if named:
        logits = {f"e{place}": np.array(logits[..., place, :]) for place in range(experts)}
        present = None if present is None else {f"e{place}": np.array(present[..., place]) for place in range(experts)}
    found = fuse_small(logits, prior, target, present)
    assert found is not None
    expected, conflict = general(logits, prior, target, present)
    assert found[0].dtype == expected.dtype
    assert found[0].shape == expected.shape
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 if dtype == "float32" else 1e-12)
    np.testing.assert_array_equal(found[1], conflict)
    assert not np.any(found[1])
    tensors = fuse_small(as_tensors(logits), prior, target, as_tensors(present))
    np.testing.assert_array_equal(tensors[0].numpy(), found[0])


def as_tensors(value):
    if isinstance(value, dict):
        return {name: torch.from_numpy(np.asarray(item)) for name, item in value.items()}
    return None if value is None else torch.from_numpy(value)


def test_tensors_of_other_kinds_go_the_general_way():
    logits = torch.randn(5, 3, 4)
    assert fuse_small(logits.clone().requires_grad_(), None, None, None) is None
    assert fuse_small(logits.bfloat16(), None, None, None) is None
    inside = []
    torch.func.vmap(lambda z: inside.append(fuse_small(z, None, None, None)) or z)(logits[:, None])
    assert inside == [None]


def test_the_theorem():
    rng = np.random.default_rng(0)
    logits, prior = rng.normal(size=(5, 3, 4)), rng.dirichlet(np.ones(4))
    expected = log_softmax(logits.sum(axis=1) - 2 * np.log(prior), axis=1)
    np.testing.assert_allclose(fuse(logits, prior), expected, atol=1e-12)
    np.testing.assert_allclose(fuse(logits, prior.tolist()), expected, atol=1e-12)


def test_without_any_expert_the_answer_is_the_target_prior():
    logits, target = np.full((2, 3, 2), np.nan), np.array([0.25, 0.75])
    found = fuse(logits, target_prior=target, present=np.zeros((2, 3), bool))
    np.testing.assert_allclose(np.exp(found), [target, target])


@pytest.mark.parametrize(
    ("logits", "given"),
    [
        (np.array([[0.0, -np.inf], [0.0, 1.0]]), {}),
        (np.array([[0.0, 1e9], [1.0, 2.0]]), {}),
        (np.zeros((2, 2), int), {}),
        ([[0.0, 1.0], [1.0, 0.0]], {}),
        (np.zeros((MOST_LOGITS, 2, 2)), {}),
        (np.zeros((2, 2)).astype(">f8"), {}),
        (np.zeros((2, 2)), {"prior": np.array([1.0, 0.0])}),
        (np.zeros((2, 2)), {"prior": np.array([[0.5, 0.5], [0.25, 0.75]])}),
        (np.zeros((2, 2)), {"present": np.array([1, 0])}),
        ({"a": np.zeros(2), "b": np.zeros(2, "float32")}, {}),
    ],
)
def test_what_is_unusual_goes_the_general_way(logits, given):
    arguments = {"prior": None, "target_prior": None, "present": None} | given
    assert fuse_small(logits, **arguments) is None
    assert np.isfinite(np.exp(fuse(logits, **given))).all()


@pytest.mark.parametrize(
    ("logits", "given", "message"),
    [
        (np.array([[0.0, np.nan], [0.0, 1.0]]), {}, "hold NaN or"),
        (np.array([[0.0, np.inf], [0.0, 1.0]]), {}, "hold NaN or"),
        (np.zeros((2, 1)), {}, "at least two classes"),
        (np.zeros(2), {}, r"\[..., expert, class\]"),
        (np.zeros((2, 2)), {"prior": np.array([0.5, 0.7])}, "must sum to one"),
        (np.zeros((2, 2)), {"prior": np.array([1.5, -0.5])}, "must be finite and ≥ 0"),
        (np.zeros((2, 2)), {"prior": np.array([0.5, np.nan])}, "must be finite"),
        (np.zeros((2, 2)), {"prior": np.array([0.5, 0.25, 0.25])}, "one probability for each of 2 classes"),
        (np.zeros((2, 2)), {"target_prior": np.array([0.5, 0.7])}, "must sum to one"),
        (np.zeros((2, 2)), {"present": np.array([True])[:0]}, "must have shape"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, {}, "must agree on rows and classes"),
        ({"a": np.zeros(2)}, {"present": {"b": np.array(True)}}, "unknown expert 'b'"),
        ({}, {}, "at least one expert"),
    ],
)
def test_errors_are_those_of_the_general_way(logits, given, message):
    with pytest.raises(InputError, match=message):
        fuse(logits, **given)
