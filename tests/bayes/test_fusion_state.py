"""One observation at a time, in any order, withdrawn and merged: always what `fuse` says of what is left."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.bayes.fuse import fuse
from consilience.bayes.fusion_state import FusionState
from consilience.core.errors import InputError

PRIOR, TARGET = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


def draw(seed, rows=12, experts=6, holes=0.05):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, experts, 4)) * 4
    z[rng.random(z.shape) < holes] = -np.inf
    return {
        "opinions": z,
        "prior": rng.dirichlet(np.ones(4), size=experts),
        "present": rng.random((rows, experts)) < 0.7,
        "weights": rng.normal(1, 1, size=(rows, experts)),
        "reliability": rng.random((rows, experts)),
        "log_kappa": rng.normal(size=(rows, 4)),
    }


def arguments(case, expert):
    """One expert's part of a case, as `update` takes it."""
    named = {"prior": case["prior"][expert]}
    for ours, theirs in (("present", "present"), ("weight", "weights"), ("reliability", "reliability")):
        named[ours] = case[theirs][:, expert]
    return case["opinions"][:, expert], named


def batch(case, experts, **more):
    chosen = {key: value[:, experts] for key, value in case.items() if key not in ("prior", "log_kappa")}
    return fuse(prior=case["prior"][experts], log_kappa=case["log_kappa"], return_conflict=True, **chosen, **more)


def agrees(state, case, experts):
    ours = state.log_posterior(case["log_kappa"], return_conflict=True)
    theirs = batch(case, list(experts), target_prior=TARGET)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12, atol=1e-12)
    assert np.array_equal(ours[1], theirs[1])


@given(st.integers(0, 2**32 - 1), st.permutations(range(6)), st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=60, deadline=None)
def test_streaming_is_the_batch_in_any_order(seed, order, holes):
    case = draw(seed, holes=holes)
    state = FusionState(PRIOR, TARGET)
    for number, expert in enumerate(order):
        opinion, named = arguments(case, expert)
        state.update(opinion, **named)
        agrees(state, case, order[: number + 1])
    assert state.count == 6


@given(st.integers(0, 2**32 - 1), st.permutations(range(6)), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_what_is_withdrawn_was_never_said(seed, order, kept, holes):
    case = draw(seed, holes=holes)
    state = FusionState(PRIOR, TARGET)
    for expert in range(6):
        opinion, named = arguments(case, expert)
        state.update(opinion, **named)
    for expert in order[kept:]:
        opinion, named = arguments(case, expert)
        state.retract(opinion, **named)
    agrees(state, case, order[:kept])


@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.sampled_from([0.0, 0.3]))
@settings(max_examples=40, deadline=None)
def test_merging_is_having_heard_both(seed, cut, holes):
    case = draw(seed, holes=holes)
    halves = [FusionState(PRIOR, TARGET), FusionState(PRIOR, TARGET)]
    for expert in range(6):
        opinion, named = arguments(case, expert)
        halves[expert >= cut].update(opinion, **named)
    other = halves[1].log_posterior()
    merged = halves[0].merge(halves[1])
    assert merged is halves[0]
    agrees(merged, case, range(6))
    np.testing.assert_array_equal(halves[1].log_posterior(), other)


def test_a_huge_opinion_leaves_nothing_behind():
    rng = np.random.default_rng(0)
    small, huge = rng.normal(size=(5, 4)), rng.normal(size=(5, 4)) * 1e12
    state = FusionState(PRIOR).update(huge).update(small).retract(huge)
    np.testing.assert_allclose(state.log_posterior(), FusionState(PRIOR).update(small).log_posterior(), atol=1e-12)
    assert state.count == 1


def test_a_contradiction_can_be_withdrawn():
    state = FusionState([0.3, 0.7]).update([0.0, -np.inf]).update([-np.inf, 0.0])
    posterior, conflict = state.log_posterior(return_conflict=True)
    assert conflict
    np.testing.assert_allclose(np.exp(posterior), [0.3, 0.7])
    posterior, conflict = state.retract([0.0, -np.inf]).log_posterior(return_conflict=True)
    assert not conflict
    np.testing.assert_allclose(np.exp(posterior), [0.0, 1.0])


def test_before_anything_is_heard_the_target_prior_answers():
    np.testing.assert_allclose(np.exp(FusionState(PRIOR).log_posterior()), PRIOR)
    np.testing.assert_allclose(np.exp(FusionState(PRIOR, TARGET).log_posterior()), TARGET)
    both = FusionState(PRIOR).merge(FusionState(PRIOR))
    np.testing.assert_allclose(np.exp(both.log_posterior()), PRIOR)
    assert repr(both) == "FusionState: 4 classes, 0 opinions"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_stay_tensors_and_pass_gradients(dtype):
    z = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    one, other = z.clone().requires_grad_(), z.clone().requires_grad_()
    state = FusionState(PRIOR)
    for expert in range(3):
        state.update(one[:, expert], present=torch.tensor([True, False, True, True, False]))
    posterior = state.log_posterior()
    assert posterior.dtype == dtype
    expected = fuse(other, PRIOR, present=torch.tensor([True, False, True, True, False])[:, None])
    torch.testing.assert_close(posterior, expected)
    posterior[:, 0].sum().backward()
    expected[:, 0].sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_probabilities_and_single_samples():
    state = FusionState(PRIOR).update([0.1, 0.2, 0.3, 0.4], from_probabilities=True, weight=0.5, reliability=0.9)
    expected = fuse([[0.1, 0.2, 0.3, 0.4]], PRIOR, from_probabilities=True, weights=[0.5], reliability=[0.9])
    np.testing.assert_allclose(state.log_posterior(), expected)
    assert state.log_posterior().shape == (4,)


def test_a_refused_opinion_changes_nothing():
    state = FusionState(PRIOR)
    with pytest.raises(InputError, match="NaN"):
        state.update(np.full((3, 4), np.nan))
    assert state.update(np.zeros((2, 4))).log_posterior().shape == (2, 4)
    assert state.count == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FusionState(0.5), r"prior must have shape \[class\], got \[\]"),
        (lambda: FusionState([0.5, 0.6]), "prior must sum to one"),
        (lambda: FusionState([]), "prior must sum to one, it sums to 0"),
        (lambda: FusionState([0.5, 0.5], [1.0]), "target_prior must be one probability for each of 2"),
        (lambda: FusionState(PRIOR).update([0.0, 1.0]), "the state's 4 classes, got 2"),
        (lambda: FusionState(PRIOR).update(1.0), r"shape \[..., class\], got \[\]"),
        (lambda: FusionState(PRIOR).update(np.zeros((3, 4))).update(np.zeros((2, 4))), r"rows, shape \[3, 4\], got"),
        (lambda: FusionState(PRIOR).update(np.zeros(4)).update(torch.zeros(4)), "either arrays or tensors"),
        (lambda: FusionState(PRIOR).update(np.zeros(4), reliability=2), "reliability must be probabilities"),
        (lambda: FusionState(PRIOR).update(np.zeros((3, 4)), weight=[1, 2]), "weights must have shape"),
        (lambda: FusionState(PRIOR).merge(FusionState(TARGET)), "different target priors cannot be merged"),
        (lambda: FusionState(PRIOR).merge(np.zeros(4)), "other must be a FusionState, got array"),
        (lambda: FusionState(PRIOR).update(np.zeros((3, 4))).log_posterior(np.zeros((2, 4))), "log_kappa must have"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("method", [FusionState.update, FusionState.retract])
def test_the_arguments_are_spelt_out(method):
    names = ["self", "opinion", "prior", "present", "weight", "reliability", "from_probabilities"]
    assert list(inspect.signature(method).parameters) == names


def test_kappa_counts_only_where_two_experts_are_active():
    opinions = np.log(np.array([[[0.7, 0.3], [0.4, 0.6]]] * 4))
    present = np.array([[False, False], [True, False], [False, True], [True, True]])
    kappa = np.array([[2.0, 0.0]] * 4)
    np.testing.assert_allclose(np.exp(FusionState([0.5, 0.5]).log_posterior([2.0, 0.0])), [0.5, 0.5])
    state, other = FusionState([0.5, 0.5]), FusionState([0.5, 0.5])
    state.update(opinions[:, 0], present=present[:, 0])
    np.testing.assert_allclose(np.exp(state.log_posterior(kappa))[3], [0.7, 0.3])
    state.merge(other.update(opinions[:, 1], present=present[:, 1]))
    expected = fuse(opinions, [0.5, 0.5], present=present, log_kappa=kappa)
    np.testing.assert_allclose(state.log_posterior(kappa), expected)
    np.testing.assert_allclose(np.exp(expected)[:3], [[0.5, 0.5], [0.7, 0.3], [0.4, 0.6]])
    state.retract(opinions[:, 1], present=present[:, 1])
    np.testing.assert_allclose(np.exp(state.log_posterior(kappa))[3], [0.7, 0.3])


def test_priors_of_their_own_give_the_target_of_fuse():
    opinions = np.log(np.array([[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]]]))
    priors = np.array([[0.6, 0.2, 0.2], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
    state, other = FusionState(priors[0]), FusionState(priors[0])
    state.update(opinions[:, 0]).update(opinions[:, 1], prior=priors[1])
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions[:, :2], priors[:2]))
    state.merge(other.update(opinions[:, 2], prior=priors[2]))
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions, priors))
    state.retract(opinions[:, 1], prior=priors[1])
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions[:, [0, 2]], priors[[0, 2]]))
    state.retract(opinions[:, 2], prior=priors[2])
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions[:, :1], priors[:1]))
    assert np.array_equal(state.target_prior, priors[0])


def test_what_was_never_added_cannot_be_withdrawn():
    opinion, certain = np.log([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.0, 0.0], [0.0, -np.inf]])
    state = FusionState([0.5, 0.5])
    with pytest.raises(InputError, match="never added: the state has none"):
        state.retract(opinion)
    state.update(opinion, present=[True, False])
    with pytest.raises(InputError, match=r"no expert was active there \(row 1\)"):
        state.retract(opinion)
    with pytest.raises(InputError, match="none was added with a prior of its own"):
        state.retract(opinion, present=[True, False], prior=[0.2, 0.8])
    state.update(opinion)
    with pytest.raises(InputError, match=r"excludes classes that none excluded \(row 1\)"):
        state.retract(certain)
    before = state.log_posterior()
    assert state.count == 2
    state.update(certain).retract(certain)
    np.testing.assert_allclose(state.log_posterior(), before)
    state.retract(opinion).retract(opinion, present=[True, False])
    assert state.count == 0
    with pytest.raises(InputError, match="the state has none"):
        state.retract(opinion)


def test_states_of_different_priors_are_merged_as_if_every_opinion_came_with_its_prior():
    opinions, priors, target = np.log([[0.7, 0.3], [0.6, 0.4]]), np.array([[0.5, 0.5], [0.2, 0.8]]), [0.3, 0.7]
    state = FusionState(priors[0], target).update(opinions[0])
    state.merge(FusionState(priors[1], target).update(opinions[1]))
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions, priors, target_prior=target))
    with pytest.raises(InputError, match="different target priors"):
        state.merge(FusionState([0.2, 0.3, 0.5], target_prior=[0.2, 0.3, 0.5]))
    state.retract(opinions[1], prior=priors[1])
    np.testing.assert_allclose(state.log_posterior(), fuse(opinions[:1], priors[0], target_prior=target))


def test_an_opinion_with_its_own_prior_is_withdrawn_with_it():
    opinion = np.log([0.7, 0.3])
    state = FusionState([0.5, 0.5]).update(opinion, prior=[0.9, 0.1])
    with pytest.raises(InputError, match="all were added with a prior of their own"):
        state.retract(opinion)
    assert np.isfinite(state.retract(opinion, prior=[0.9, 0.1]).log_posterior()).all()
    # A prior equal to that of the state may be named or left out.
    again = FusionState([0.5, 0.5]).update(opinion, prior=[0.5, 0.5]).retract(opinion)
    np.testing.assert_allclose(np.exp(again.log_posterior()), [0.5, 0.5])
