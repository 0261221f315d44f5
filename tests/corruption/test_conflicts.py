"""Conflicting modalities: who is hit, by which donor, and how strong the noise is."""

import numpy as np
import pytest

from consilience import corrupt
from consilience.core.errors import InputError
from consilience.core.samples import Samples

N, VIEWS, CLASSES = 4000, 5, 4


def made(n=N, seed=0):
    """Values that tell the sample, the view and the class: every view of a sample holds its number."""
    rng = np.random.default_rng(seed)
    number = np.arange(n, dtype=np.float64)[:, None]
    views = {f"v{view}": np.hstack([number, rng.random((n, 1)) * 10 * (view + 1)]) for view in range(VIEWS)}
    return Samples.of(views, rng.integers(CLASSES, size=n))


SAMPLES = made()


def shown(damaged):
    """Whose values each view shows `[n, view]`."""
    return np.stack([damaged[name][:, 0] for name in SAMPLES.names], axis=1)


@pytest.mark.parametrize(("level", "share"), [(4, 0.4), (10, 1.0)])
def test_one_view_is_of_another_class(level, share):
    whose = shown(corrupt(SAMPLES, "conflicting", level, probability=1.0)).astype(int)
    away = whose != np.arange(N)[:, None]
    assert (away.sum(1) <= 1).all()
    assert away.any(1).mean() == pytest.approx(share, abs=0.02)
    assert away.mean(0) == pytest.approx([share / VIEWS] * VIEWS, abs=0.02)
    rows, columns = np.nonzero(away)
    assert (SAMPLES.y[whose[rows, columns]] != SAMPLES.y[rows]).all()
    assert len(set(whose[rows, columns])) > 0.5 * len(rows)  # donors are drawn anew


def test_the_published_protocol():
    damaged = corrupt(SAMPLES, "rcml-conflict", 10.0, probability=1.0)
    first = {label: np.flatnonzero(SAMPLES.y == label)[0] for label in range(CLASSES)}
    change = np.stack([damaged[name] - SAMPLES[name] for name in SAMPLES.names], axis=1)  # [n, view, feature]
    donor = np.array([first[(label + 1) % CLASSES] for label in SAMPLES.y])
    swapped = np.isclose(shown(damaged), donor[:, None])
    assert (swapped.sum(1) <= 1).all()
    assert swapped.any(1).mean() == pytest.approx(0.4, abs=0.02)
    noisy = (change != 0).any(2) & ~swapped
    # Of five views 0 to 4 are noisy, each count as often: 4/5 of a tenth has some, less what was swapped afterwards.
    assert noisy.any(1).mean() == pytest.approx(0.1 * 0.8, abs=0.015)
    assert noisy.sum(1).max() <= VIEWS - 1
    for view, name in enumerate(SAMPLES.names):
        spread = np.ptp(SAMPLES[name], axis=0)
        found = change[noisy[:, view], view] / spread
        assert found.std(axis=0) == pytest.approx([0.5, 0.5], rel=0.2)


def test_lower_levels_hit_some_of_the_same_samples():
    for corruption in ("conflicting", "rcml-conflict"):
        low, high = (shown(corrupt(SAMPLES, corruption, level, probability=1.0)) for level in (3.0, 9.0))
        hit = (low != np.arange(N)[:, None]) & np.isin(low, np.arange(N))  # not where there is noise
        assert hit.sum() > 300
        assert (low[hit] == high[hit]).all()


def test_a_batch_gets_what_the_whole_set_gets():
    whole = corrupt(SAMPLES, "rcml-conflict", 10.0, probability=1.0)
    rows = np.arange(100, 140)
    part = corrupt(SAMPLES[rows], "rcml-conflict", 10.0, probability=1.0, reference=SAMPLES)
    for name in SAMPLES.names:
        np.testing.assert_array_equal(part[name], whole[name][rows])


def test_sequences_take_over_the_length_of_the_donor():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    values = {"s": [np.full((3 if label else 7, 1), label + 1.0) for label in y], "v": rng.normal(size=(60, 2))}
    samples = Samples.of(values, y)
    damaged = corrupt(samples, "conflicting", 10.0, probability=1.0)
    changed = damaged.lengths["s"] != samples.lengths["s"]
    assert 0.3 < changed.mean() < 0.7
    for row in np.flatnonzero(changed):
        length = damaged.lengths["s"][row]
        assert length == (7 if y[row] else 3)
        assert (damaged["s"][row, :length] == (1 if y[row] else 2)).all()


@pytest.mark.parametrize("corruption", ["conflicting", "rcml-conflict"])
def test_the_class_must_be_known(corruption):
    without = {name: SAMPLES[name][:20] for name in SAMPLES.names}
    with pytest.raises(InputError, match="give Samples with y"):
        corrupt(without, corruption, 10.0, probability=1.0, reference=SAMPLES)
    with pytest.raises(InputError, match="reference with y"):
        corrupt(SAMPLES[:20], corruption, 10.0, probability=1.0, reference=without)


def test_a_single_class_has_no_other():
    alone = Samples.of({"v": np.zeros((20, 1)), "w": np.zeros((20, 1))}, np.zeros(20))
    with pytest.raises(InputError, match="another class"):
        corrupt(alone, "conflicting", 10.0, probability=1.0)
