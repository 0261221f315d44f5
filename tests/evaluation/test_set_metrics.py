"""Coverage and size of sets and intervals."""

import numpy as np
import pytest

from consilience.core.errors import InputError
from consilience.evaluation import (
    interval_coverage,
    mean_interval_width,
    mean_set_size,
    set_coverage,
    set_labels,
)

RNG = np.random.default_rng(0)
SETS = RNG.random((40, 3)) < 0.5
Y = RNG.integers(0, 3, 40)
NAMES = np.array(["c", "a", "b"])


def test_sets_by_brute_force():
    labels = set_labels(SETS, NAMES)
    assert labels == [[NAMES[c] for c in range(3) if row[c]] for row in SETS]
    assert set_coverage(Y, SETS) == np.mean([NAMES[true] in found for true, found in zip(Y, labels)])
    assert set_coverage(NAMES[Y], SETS, classes=NAMES) == set_coverage(Y, SETS)
    assert mean_set_size(SETS) == pytest.approx(np.mean([len(found) for found in labels]))


def test_weights_are_repeated_samples():
    counts = RNG.integers(0, 3, 40)
    again = np.repeat(SETS, counts, axis=0)
    assert set_coverage(Y, SETS, weight=counts) == pytest.approx(set_coverage(np.repeat(Y, counts), again))
    assert mean_set_size(SETS, weight=counts) == pytest.approx(mean_set_size(again))


def test_intervals_by_brute_force():
    y, half = RNG.normal(size=(20, 2)), RNG.random((20, 2))
    ends = np.stack([-half, half], axis=-1)
    inside = [[abs(y[row, t]) <= half[row, t] for t in range(2)] for row in range(20)]
    assert interval_coverage(y, ends) == pytest.approx(np.mean(inside))
    assert interval_coverage(y[:, 0], ends[:, 0]) == pytest.approx(np.mean(inside, axis=0)[0])
    assert mean_interval_width(ends) == pytest.approx(2 * half.mean())
    assert mean_interval_width([[-np.inf, np.inf]]) == np.inf


def test_shapes_that_do_not_fit():
    with pytest.raises(InputError, match="sets must be booleans of shape"):
        set_coverage(Y, SETS.astype(int))
    with pytest.raises(InputError, match="39 true labels but 40 sets"):
        set_coverage(Y[1:], SETS)
    with pytest.raises(InputError, match="3 columns, but there are 2 classes"):
        set_labels(SETS, NAMES[:2])
    with pytest.raises(InputError, match="intervals must have shape"):
        mean_interval_width(np.zeros((3, 3)))
    with pytest.raises(InputError, match="y has shape"):
        interval_coverage(np.zeros(4), np.zeros((3, 2)))
