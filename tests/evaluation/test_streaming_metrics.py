"""Scores that accumulate equal those of all samples at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.evaluation import accuracy, ece, nll, reliability_bins
from consilience.evaluation.streaming_metrics import RunningScores


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_into_batches_gives_the_scores_of_the_whole(seed, cuts):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.full(4, 0.3), size=60), rng.integers(0, 4, 60)
    scores = RunningScores(bins=7)
    for rows in np.split(np.arange(60), sorted(cuts)):
        scores.update(y[rows], p[rows])
    assert scores.samples == 60
    assert scores.accuracy == pytest.approx(accuracy(y, p.argmax(axis=1)))
    assert scores.nll == pytest.approx(nll(y, p))
    assert scores.ece == pytest.approx(ece(y, p, bins=7))
    whole = reliability_bins(y, p, bins=7)
    for name in ("edges", "share", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(scores.bins, name), getattr(whole, name))


def test_nothing_seen_is_nothing_known():
    scores = RunningScores()
    assert scores.samples == 0
    assert all(math.isnan(score) for score in (scores.accuracy, scores.nll, scores.ece))
    assert not scores.bins.share.any()
