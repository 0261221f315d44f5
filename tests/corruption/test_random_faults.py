"""Faults drawn at random for every sample."""

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.corruption.random_faults import FAULTS, faults_for, spoil


@pytest.fixture(scope="module")
def samples():
    random = np.random.default_rng(0)
    text = np.array([" ".join(random.choice(list("abcdefgh"), 6)) for _ in range(400)], dtype=object)
    sequences = [random.normal(size=(length, 2)) for length in random.integers(3, 9, 400)]
    X = {"sensor": random.normal(size=(400, 5)), "note": text, "motion": sequences}
    present = np.ones((400, 3), dtype=bool)
    present[::7, 0] = False
    return Samples.of(X, present=present)


def changed(before, after, name):
    pairs = zip(before.values[name], after.values[name])
    return np.array([not np.array_equal(one, other) for one, other in pairs])


def test_about_two_thirds_of_what_is_there_is_hit(samples):
    spoilt = spoil(samples, Corruptor(samples), ["gaussian"], seed=1)
    there = samples.present_in("sensor")
    # A quarter of the samples is hit everywhere, the others with a mean probability of .6.
    assert changed(samples, spoilt, "sensor")[there].mean() == pytest.approx(0.25 + 0.75 * 0.6, abs=0.08)
    assert not changed(samples, spoilt, "sensor")[~there].any()
    assert (spoilt.present == samples.present).all()
    assert np.isfinite(spoilt.values["sensor"][there]).all()


def test_every_kind_gets_the_faults_that_fit_it(samples):
    kinds = {name: faults_for(modality, list(FAULTS)) for name, modality in samples.modalities.items()}
    assert kinds["sensor"] == list(FAULTS)
    assert kinds["note"] == ["blank", "drop", "structured-drop", "swapped"]
    alone = spoil(samples, Corruptor(samples), ["gaussian"], seed=1)
    assert not changed(samples, alone, "note").any()
    assert changed(samples, alone, "motion").any()


def test_the_seed_decides(samples):
    corruptor = Corruptor(samples)
    first, same, other = (spoil(samples, corruptor, ["gaussian", "swapped"], seed=seed) for seed in (1, 1, 2))
    assert not changed(first, same, "sensor").any()
    assert changed(first, other, "sensor").any()


def test_the_given_samples_are_not_changed(samples):
    before = samples.values["sensor"].copy()
    spoil(samples, Corruptor(samples), list(FAULTS))
    assert np.array_equal(before, samples.values["sensor"])
