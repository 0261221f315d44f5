import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.covariance import LedoitWolf

from consilience.bayes.score_density import ScoreDensity, bounded, excess, log_distance, soundness


def test_distance_by_hand():
    precision = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    t = log_distance(torch.tensor([[3.0, 5.0]]), torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), precision)
    assert t.exp().item() == pytest.approx(2 + 2 + 3)  # u = (1, 1)


def test_only_what_is_farther_out_counts():
    assert excess(torch.tensor([0.0, 3.0, 6.0]), 3.0, 1.5).tolist() == [0, 0, 2]


@given(st.floats(0, 12))
def test_soundness_is_a_likelihood_ratio(zeta):
    q = norm.pdf(zeta) / norm.pdf(zeta, scale=10)
    assert soundness(torch.tensor(zeta, dtype=torch.float64)).item() == pytest.approx(1.1 * q / (1 + q))


def test_soundness_by_hand():
    # q = 10·exp(−.495·4) = 1.3807
    assert soundness(torch.tensor(2.0)).item() == pytest.approx(1.1 * 1.38069 / 2.38069, rel=1e-4)
    assert soundness(torch.tensor(0.0)).item() == pytest.approx(1.0)


def test_floor_and_cap():
    assert bounded(torch.tensor([0.0, 0.25, 1.0])).tolist() == pytest.approx([0.1, 0.3, 0.9])


def test_before_fitting_everything_is_sound():
    assert ScoreDensity(3)(1e3 * torch.randn(4, 3)).tolist() == [1] * 4


def test_a_fit_by_hand():
    scores = np.random.default_rng(0).gamma(2.0, size=(400, 3)) * [1, 5, 25]
    u = (scores - np.median(scores, axis=0)) / scores.std(axis=0)
    precision = LedoitWolf().fit(u).precision_
    t = np.log(np.einsum("ns,st,nt->n", u, precision, u))
    spread = max(1.4826 * np.median(np.abs(t - np.median(t))), 0.5 * t.std())
    zeta = np.maximum(0, (t - np.median(t)) / spread)
    q = 10 * np.exp(-0.495 * zeta**2)
    density = ScoreDensity(3).double().fit(scores)
    assert density(torch.from_numpy(scores)).numpy() == pytest.approx(1.1 * q / (1 + q), rel=1e-4)


def test_what_lies_far_out_is_broken():
    random = np.random.default_rng(1)
    density = ScoreDensity(2).fit(random.normal(size=(500, 2)))
    sound = density(torch.from_numpy(random.normal(size=(500, 2))).float())
    assert sound.mean() > 0.85
    assert density(torch.tensor([[12.0, 0.0], [0.0, -40.0]])).max() < 0.2


def test_a_score_that_never_varies_does_no_harm():
    random = np.random.default_rng(2)
    scores = np.stack([random.normal(size=300), np.full(300, 7.0)], axis=1)
    density = ScoreDensity(2).double().fit(scores)
    assert density(torch.from_numpy(scores)).mean() > 0.85
