"""The Gaussian copula: exact where margins are bent Gaussians, and blind to how they are bent."""

import numpy as np
import torch
from scipy.stats import norm, rankdata

from consilience.bayes.class_gaussians import ClassGaussian
from consilience.bayes.copula import KNOTS, fit_copula, fit_margins, normal_scores


def draw(n=6000, seed=0):
    """Two classes, two modalities of two features, correlated within a class; and the Gaussian they come from."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    correlation = np.eye(4)
    correlation[0, 2] = correlation[2, 0] = 0.8
    correlation[1, 3] = correlation[3, 1] = -0.5
    covariance = np.stack([correlation, np.eye(4)])
    noise = np.einsum("nf,ngf->ng", rng.normal(size=(n, 4)), np.linalg.cholesky(covariance)[y])
    mean = np.array([[0.0, 0, 0, 0], [1.0, -1, 0, 1]])
    truth = ClassGaussian(torch.from_numpy(mean), torch.from_numpy(covariance), (2, 2))
    return torch.from_numpy(mean[y] + noise), torch.from_numpy(y), truth


def test_kappa_of_bent_gaussians_is_that_of_the_gaussians_before():
    x, y, truth = draw()
    bent = torch.stack([x[:, 0].exp(), x[:, 1] ** 3, x[:, 2], x[:, 3].sinh()], dim=1)
    present = torch.ones(len(x), 2, dtype=torch.bool)
    found = fit_copula(bent, y, 2, [2, 2], present, covariance="class").log_kappa(bent)
    expected = truth.log_kappa(x)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.95
    own = torch.arange(len(x)), y  # of the other class most lies beyond what was seen, and is cut off there
    assert (found - expected)[own].abs().mean() < 0.1
    # A Gaussian on the bent numbers themselves is far off.
    straight = fit_copula(x, y, 2, [2, 2], covariance="class").log_kappa(x)
    torch.testing.assert_close(found, straight, atol=0.1, rtol=0.1)


def test_scores_are_those_of_ranks():
    x, y, _ = draw(500)
    scores = normal_scores(x, fit_margins(x, y, 2, [2, 2]))
    for c in range(2):
        rows = (y == c).numpy()
        own = x[rows].numpy()
        share = (rankdata(own, axis=0) - 0.5) / len(own)
        inner = (share > 1 / KNOTS) & (share < 1 - 1 / KNOTS)
        assert np.abs(scores[rows, c].numpy() - norm.ppf(share))[inner].max() < 0.2


def test_scores_rise_with_what_they_score_and_stop_at_what_was_seen():
    x, y, _ = draw(300)
    knots = fit_margins(x, y, 2, [2, 2])
    line = torch.linspace(-50, 50, 2001, dtype=torch.float64)[:, None].expand(-1, 4)
    scores = normal_scores(line, knots)
    assert (scores.diff(dim=0) >= 0).all()
    torch.testing.assert_close(scores[0], scores[0, 0, 0].expand(2, 4))
    assert scores.abs().max() < 2.2


def test_what_is_missing_is_left_out_and_a_class_never_seen_does_no_harm():
    x, y, _ = draw(400)
    present = torch.ones(400, 2, dtype=torch.bool)
    present[::3, 1] = False
    hidden = torch.where(present.repeat_interleave(2, dim=1), x, torch.nan)
    knots = fit_margins(hidden, y, 3, [2, 2], present)
    rows = (y == 1) & present[:, 1]
    share = (np.arange(KNOTS) + 0.5) / KNOTS
    np.testing.assert_allclose(knots[1, 2], np.quantile(x[rows, 2], share, method="hazen"))
    assert torch.isfinite(knots).all()
    found = fit_copula(hidden, y, 3, [2, 2], present).log_kappa(hidden, present)
    assert torch.isfinite(found).all()
    assert (found[::3] == 0).all()
