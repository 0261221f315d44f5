"""Dependence given the class: by its dial, measured by scipy, and nothing else changes."""

import numpy as np
import pytest
from scipy import stats

from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.data.sets.shared_nuisances import correlated, share_style


@pytest.fixture(scope="module")
def pairs():
    """2 000 samples of four classes, partners of the same class (400 in all), and styles that depend on the class."""
    random = np.random.default_rng(0)
    classes = random.integers(0, 4, 2000)
    partner_class = np.arange(400) % 4
    rows = np.array([random.choice(np.flatnonzero(partner_class == one)) for one in classes])
    return rows, classes, random.gamma(2 + classes), random.normal(size=400) + 3 * partner_class, partner_class


def correlation(rows, classes, style, other):
    """Of the normal scores of both styles: the mean over classes."""
    within = []
    for one in np.unique(classes):
        here = classes == one
        scores = [stats.norm.ppf((stats.rankdata(values[here]) - 0.5) / here.sum()) for values in (style, other[rows])]
        within.append(np.corrcoef(*scores)[0, 1])
    return np.mean(within)


@pytest.mark.parametrize(("dependence", "tolerance"), [(0.0, 0.06), (0.4, 0.06), (0.8, 0.04), (1.0, 0.01)])
def test_styles_correlate_within_classes_as_the_dial_says(pairs, dependence, tolerance):
    rows, classes, style, other, _ = pairs
    dealt = share_style(rows, classes, style, other, dependence, seed=1)
    assert correlation(dealt, classes, style, other) == pytest.approx(dependence, abs=tolerance)


@pytest.mark.parametrize("dependence", [0.0, 0.5, 1.0])
def test_partners_stay_in_their_class_and_are_used_as_often_as_before(pairs, dependence):
    rows, classes, style, other, partner_class = pairs
    before = rows.copy()
    dealt = share_style(rows, classes, style, other, dependence, seed=1)
    assert (partner_class[dealt] == classes).all()
    assert (np.sort(dealt) == np.sort(rows)).all()
    assert (rows == before).all()


def test_at_zero_nothing_changes_and_the_seed_matters_between_the_ends(pairs):
    rows, classes, style, other, _ = pairs
    assert share_style(rows, classes, style, other, 0.0, seed=1) is rows
    first, again, second = (share_style(rows, classes, style, other, 0.5, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != second).mean() > 0.5


def test_mixed_noise_has_the_variance_of_both_and_the_correlation_asked_for():
    own, shared = np.random.default_rng(0).normal(size=(2, 50_000))
    assert correlated(own, shared, 0.0) is own
    assert np.allclose(correlated(own, shared, 1.0), shared)
    mixed = correlated(own, shared, 0.7)
    assert mixed.std() == pytest.approx(1, abs=0.01)
    assert np.corrcoef(mixed, shared)[0, 1] == pytest.approx(0.7, abs=0.01)
    assert np.corrcoef(mixed, own)[0, 1] == pytest.approx(np.sqrt(1 - 0.49), abs=0.01)


@pytest.mark.parametrize("options", [{}, {"n": 300, "d": 3, "eta": 0.5, "sigma2": 0.7, "seed": 5}])
def test_without_dependence_the_synthetic_set_has_the_noises_it_had(options):
    """The numbers are drawn in the order Z, W₁, W₂, W_y, ε₁, ε₂, ε_y, as before the dial."""
    n, d, eta, sigma2, seed = ({"n": 2000, "d": 4, "eta": 1.0, "sigma2": 0.1, "seed": 0} | options).values()
    random = np.random.default_rng(seed)
    z = random.uniform(-2.5, 2.5, size=(n, d))
    w_1, w_2, w_y = random.normal(size=(d, d)), random.normal(size=(d, d)), random.normal(size=d)
    signal, sine = z @ w_1.T, np.sin(z @ w_2.T)
    x1 = np.maximum(signal, 0.01 * signal) + 2 * eta * sine + random.normal(size=(n, d))
    x2 = sine + sigma2 * random.normal(size=(n, d))
    data = load_data("progressive-synthetic", **options)
    assert (data.samples["x1"] == x1.astype(np.float32)).all()
    assert (data.samples["x2"] == x2.astype(np.float32)).all()
    assert (data.y == z @ w_y + random.normal(size=n)).all()


@pytest.mark.parametrize("dependence", [0.0, 0.5, 1.0])
def test_noises_of_the_synthetic_set_correlate_given_the_latent(dependence):
    """Without η and the leak, what is left of x1 where W₁Z is far below zero is ε₁, and x2 − sin is σ₂ε₂."""
    options = {"n": 20_000, "d": 1, "eta": 0, "seed": 3, "dependence": dependence}
    quiet, loud = (load_data("progressive-synthetic", **options, sigma2=sigma2) for sigma2 in (0, 2))
    assert (quiet.samples["x1"] == loud.samples["x1"]).all()
    second = (loud.samples["x2"] - quiet.samples["x2"]).ravel()
    assert second.std() == pytest.approx(2, abs=0.05)
    z = loud.extra["z"].ravel()
    near = np.digitize(z, np.quantile(z, np.linspace(0, 1, 201)[1:-1]))
    residual = loud.samples["x1"].ravel().astype(float)
    means = np.bincount(near, residual) / np.bincount(near)
    assert np.corrcoef(residual - means[near], second)[0, 1] == pytest.approx(dependence, abs=0.03)


@pytest.mark.parametrize("dependence", [-0.1, 1.1])
def test_a_dial_beyond_its_ends_is_refused(dependence):
    with pytest.raises(InputError, match="dependence must be a number ≥ 0 and ≤ 1"):
        load_data("progressive-synthetic", dependence=dependence)
