"""The terms of eq. 2 against their definitions, and the inequality they stand for."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from consilience.core.errors import InputError
from consilience.evaluation import trust_from_weights
from consilience.evaluation.rademacher import Bound, confidence_term
from consilience.evaluation.weighted_sum import bound_terms


def drawn(seed, n=40, modalities=3, missing=True):
    rng = np.random.default_rng(seed)
    present = rng.random((n, modalities)) < (0.7 if missing else 2)
    trust = trust_from_weights(rng.normal(size=(n, modalities)), present)
    return trust, rng.exponential(size=(n, modalities)), present


def test_without_gaps_the_terms_are_means_and_covariances():
    trust, losses, _ = drawn(0, missing=False)
    terms = bound_terms(trust, losses)
    for m in range(3):
        assert terms.weight[m] == pytest.approx(trust[:, m].mean())
        assert terms.loss[m] == pytest.approx(losses[:, m].mean())
        assert terms.covariance[m] == pytest.approx(np.cov(trust[:, m], losses[:, m], ddof=0)[0, 1])
        assert terms.term_loss[m] == pytest.approx(trust[:, m].mean() * losses[:, m].mean())
    assert terms.share.tolist() == [1, 1, 1]


def test_with_gaps_they_are_over_who_is_present():
    trust, losses, present = drawn(1)
    terms = bound_terms(trust, np.where(present, losses, np.nan), present)
    some = present.any(axis=1)
    for m in range(3):
        rows = present[:, m]
        assert terms.share[m] == pytest.approx(rows.sum() / some.sum())
        assert terms.covariance[m] == pytest.approx(np.cov(trust[rows, m], losses[rows, m], ddof=0)[0, 1])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_term_l_and_term_cov_bound_the_loss_of_the_fused_logits(seed):
    trust, _, present = drawn(seed)
    rng = np.random.default_rng(seed)
    logits, y = torch.tensor(rng.normal(size=(40, 3, 4)) * 3), torch.tensor(rng.integers(0, 4, size=40))
    own = cross_entropy(logits.flatten(0, 1), y.repeat_interleave(3), reduction="none").reshape(40, 3).numpy()
    terms = bound_terms(trust, own, present)
    some = present.any(axis=1)
    right = (trust * own * present).sum(axis=1)[some].mean()
    assert terms.term_loss.sum() + terms.term_covariance.sum() == pytest.approx(right)
    fused = cross_entropy(torch.einsum("nm,nmc->nc", torch.tensor(trust), logits)[some], y[some]).item()
    assert fused <= right + 1e-9  # eq. 20, by Jensen


@pytest.mark.parametrize("trust", [[[1.2, -0.2]], [[0.6, 0.6]], [[0.0, 0.0]]], ids=["negative", "too much", "nothing"])
def test_weights_for_which_jensen_does_not_hold_are_refused(trust):
    with pytest.raises(InputError, match="≥ 0 and sum to one over what is present, unlike row 0"):
        bound_terms(trust, [[1.0, 1.0]])


def test_shapes_must_agree():
    with pytest.raises(InputError, match=r"one shape \[n, modality\], got \[1, 2\], \[1, 3\]"):
        bound_terms([[0.5, 0.5]], [[1.0, 1.0, 1.0]])


def test_the_confidence_term_is_the_papers():
    assert confidence_term(3, 200, 0.1) == pytest.approx(3 * math.sqrt(math.log(10) / 400))
    with pytest.raises(InputError, match="delta, the probability that the bound fails, must be between 0 and 1, got 0"):
        confidence_term(3, 200, 0)
    with pytest.raises(InputError, match="at least one modality and one sample, got 3 and 0"):
        confidence_term(3, 0)


def test_a_bound_says_whether_it_promises_anything():
    tight = Bound(0.2, 0.3, -0.05, 0.1, n=1000, delta=0.05, guessing=math.log(10))
    assert tight.total == pytest.approx(0.55)
    assert not tight.vacuous
    assert (
        "bounds the loss of Σ w·f, its output, by 0.550 (Term-L 0.200, Term-C 0.300, Term-Cov −0.050, confidence 0.100)"
        in tight.words
    )
    loose = Bound(0.2, 9.0, 0.05, 0.1, n=1000, delta=0.05, guessing=math.log(10))
    assert loose.vacuous
    assert "Term-Cov −1.500," in replace(tight, covariance=-1.5).words
    assert loose.words.endswith("which is vacuous: to answer at random costs 2.303")
