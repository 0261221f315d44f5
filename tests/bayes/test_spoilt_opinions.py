"""Opinions spoilt at random: what each fault does, what it leaves alone, and that the seed decides."""

import numpy as np
import pytest

from consilience.bayes import spoilt_opinions
from consilience.bayes.spoilt_opinions import OPINION_FAULTS, spoil_opinions


def drawn(n=400, seed=0):
    """Logits of two experts on three classes, correlated between classes, labels and what is present."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=n)
    noise = random.normal(size=(n, 2, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 2.0]])
    return 3.0 * np.eye(3)[y][:, None] + noise + np.array([1.0, 0.0, -2.0]), y, random.random((n, 2)) < 0.8


def only(monkeypatch, name, level):
    monkeypatch.setattr(spoilt_opinions, "OPINION_FAULTS", {name: (level, level)})


def hit(before, after):
    return (before != after).any(axis=2)


def test_the_seed_decides_and_nothing_is_changed_in_place():
    logits, _, present = drawn()
    before = logits.copy()
    first, again, other = (spoil_opinions(logits, present, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(logits, before)


def test_missing_opinions_stay_and_some_of_the_others_are_sound():
    logits, _, present = drawn()
    changed = hit(logits, spoil_opinions(logits, present))
    assert not changed[~present].any()
    # A quarter of the samples is hit in every expert, the others with a probability of .6 in the mean.
    assert changed[present].mean() == pytest.approx(0.25 + 0.75 * 0.6, abs=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_few_opinions_can_be_spoilt(seed):
    for n in (1, 2):
        logits, _, present = drawn(n, seed)
        assert np.isfinite(spoil_opinions(logits, present, seed)).all()


def test_swapped_opinions_are_those_on_other_samples(monkeypatch):
    only(monkeypatch, "swapped", 1.0)
    logits, _, present = drawn()
    spoilt = spoil_opinions(logits, present)
    for m in range(2):
        rows = hit(logits, spoilt)[:, m]
        assert rows.any()
        given = {tuple(one) for one in logits[present[:, m], m]}
        assert {tuple(one) for one in spoilt[rows, m]} <= given


def test_stuck_opinions_are_all_the_same(monkeypatch):
    only(monkeypatch, "stuck", 1.0)
    logits, _, present = drawn()
    spoilt = spoil_opinions(logits, present)
    for m in range(2):
        assert len(np.unique(spoilt[hit(logits, spoilt)[:, m], m], axis=0)) == 1


def test_noise_has_the_covariance_of_the_logits(monkeypatch):
    only(monkeypatch, "noisy", 2.0)
    logits, _, _ = drawn(40_000)
    spoilt = spoil_opinions(logits, np.ones((40_000, 2), dtype=bool))
    for m in range(2):
        noise = (spoilt - logits)[hit(logits, spoilt)[:, m], m]
        np.testing.assert_allclose(np.cov(noise.T), 4 * np.cov(logits[:, m].T), atol=0.6)


def test_blurred_opinions_are_near_the_mean_and_overconfident_ones_far_from_it(monkeypatch):
    logits, y, present = drawn()
    distances, right = {}, {}
    for name, level in (("blurred", 1000.0), ("overconfident", 5.0)):
        only(monkeypatch, name, level)
        spoilt = spoil_opinions(logits, present)
        rows = hit(logits, spoilt)[:, 0]
        distances[name] = np.abs(spoilt[rows, 0] - logits[present[:, 0], 0].mean(axis=0)).max(axis=1)
        right[name] = (spoilt[rows, 0].argmax(axis=1) == y[rows]).mean()
    assert distances["blurred"].max() < 0.1
    assert np.median(distances["overconfident"]) > 20
    assert right["overconfident"] < 0.6 < (logits[:, 0].argmax(axis=1) == y).mean()


def test_log_probabilities_remain_so():
    logits, _, present = drawn()
    log_p = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    assert np.abs(np.logaddexp.reduce(spoil_opinions(log_p, present), axis=2)).max() < 1e-9
    assert np.abs(np.logaddexp.reduce(spoil_opinions(logits, present), axis=2)).max() > 10


def test_every_fault_has_levels_in_order():
    assert all(0 < low <= high for low, high in OPINION_FAULTS.values())
