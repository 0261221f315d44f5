"""Opinions in files: lots that do not depend on batches, and a target prior from a part of many rows."""

from __future__ import annotations

import numpy as np
import pytest

from consilience.bayes.priors import estimate_target_prior
from consilience.data.files.opinion_files import open_opinions
from consilience.data.files.opinion_labels import match_labels, open_labels
from consilience.estimators import fuse_files as opinion_files
from consilience.estimators.fuse_files import Evidence, Theorem, estimate_target, fit, fuse_files

SHARES = np.array([0.7, 0.2, 0.1])


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """Calibrated experts on unit Gaussians around three corners, learned where the classes were equally frequent."""
    rng = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("opinions")
    y = rng.choice(3, size=4000, p=SHARES)
    for name in ("a", "b"):
        x = rng.normal(size=(len(y), 3)) + np.eye(3)[y]
        x[::9] = np.nan
        np.save(place / f"{name}.npy", x)  # ln p(x | c) = x_c + what is the same for all classes
    np.save(place / "y.npy", y)
    labels = open_labels(place / "y.npy")
    opinions = open_opinions([place / "a.npy", place / "b.npy"])
    return Evidence(opinions, labels=labels, place_of=match_labels(labels.count(), 3, None))


def test_draws_do_not_depend_on_the_batches(evidence, monkeypatch):
    lots = []
    for cells in (1 << 21, 6 * 100, 6 * 7):
        monkeypatch.setattr(opinion_files, "CELLS", cells)
        lots.append(np.concatenate([batch.draw for batch in evidence.batches()]))
    np.testing.assert_array_equal(lots[0], lots[1])
    np.testing.assert_array_equal(lots[0], lots[2])


def test_target_prior_from_all_rows_or_from_a_part(evidence, monkeypatch):
    monkeypatch.setattr(opinion_files, "CELLS", 6 * 300)
    rule = Theorem(np.full((1, 3), 1 / 3))
    posterior = np.concatenate([rule.log_posterior(batch, None) for batch in evidence.batches()])
    spoken = np.concatenate([batch.present["a"] | batch.present["b"] for batch in evidence.batches()])
    found, rows = estimate_target(evidence, rule)
    assert rows == spoken.sum() < len(spoken)
    np.testing.assert_allclose(found, estimate_target_prior(posterior[spoken], rule.prior), atol=1e-6)
    part, fewer = estimate_target(evidence, rule, limit=2000)
    assert 500 < fewer <= 2000
    np.testing.assert_allclose(part, SHARES, atol=0.06)


def test_the_right_target_prior_is_better_under_folds_too(evidence):
    fitted = fit(evidence, folds=2, kappa="none", calibration=None, prior=np.full(3, 1 / 3))
    np.testing.assert_allclose(fitted.prior, 1 / 3)
    target, _ = estimate_target(evidence, fitted)
    np.testing.assert_allclose(target, SHARES, atol=0.05)
    _, before, rows, _ = fuse_files(evidence, fitted, None)
    after = fuse_files(evidence, fitted, target).fused
    assert rows == before.samples == 4000
    assert after.nll < before.nll - 0.05


def test_experts_are_scored_where_they_speak(evidence):
    experts, fused, _, _ = fuse_files(evidence, Theorem(np.full((1, 3), 1 / 3)), None)
    assert experts["a"].samples < fused.samples == 4000
    assert fused.nll < min(one.nll for one in experts.values())
