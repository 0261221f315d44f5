"""Rows in an order that neighbours share more than their class; correlations compared with pandas' and with chance."""

import numpy as np
import pandas as pd
import pytest

from consilience.core.samples import Samples
from consilience.data.folds import fold_groups
from consilience.data.row_order import SIMILAR, neighbour_correlation, similar_blocks


def drifting(n=240, classes=3, seed=0, length=12):
    """Runs of one class, in which values drift slowly."""
    random = np.random.default_rng(seed)
    y = (np.arange(n) // length) % classes
    walk = np.cumsum(random.normal(size=(n, 4)), axis=0)
    return Samples.of({"a": walk[:, :2], "b": walk[:, 2:] + y[:, None]}, y)


def test_one_column_has_the_autocorrelation_of_its_residuals():
    samples = drifting().only(["b"])
    residuals = pd.DataFrame(samples["b"]).groupby(samples.y).transform(lambda own: own - own.mean())
    residuals /= pd.DataFrame(samples["b"]).std(ddof=0)
    by_hand = (residuals * residuals.shift()).sum().sum() / (
        (residuals**2 + residuals.shift() ** 2)[1:].sum().sum() / 2
    )
    assert neighbour_correlation(samples, samples.y) == pytest.approx(by_hand, rel=1e-9)


def test_classes_in_order_are_not_enough():
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 80)
    samples = Samples.of({"a": random.normal(size=(240, 3)) + 5 * y[:, None]}, y)
    assert abs(neighbour_correlation(samples, y)) < 3 / np.sqrt(240 * 3)
    assert similar_blocks(samples, y, 5, 0) is None


def test_the_order_is_that_of_the_index():
    samples = drifting()
    shuffled = samples.select(np.random.default_rng(0).permutation(len(samples)))
    assert neighbour_correlation(shuffled, shuffled.y) == pytest.approx(neighbour_correlation(samples, samples.y))
    blocks, _ = similar_blocks(shuffled, shuffled.y, 5, 0)
    assert (np.diff(blocks[np.argsort(shuffled.index)]) >= 0).all()


def test_values_of_missing_modalities_do_not_count():
    samples = drifting()
    absent = np.arange(len(samples)) % 7 == 0
    spoilt = samples.replaced({"a": np.where(absent[:, None], 1e6, samples["a"])}, present=np.c_[~absent, ~absent])
    zeroed = samples.replaced({"a": np.where(absent[:, None], 0, samples["a"])}, present=np.c_[~absent, ~absent])
    assert neighbour_correlation(spoilt, samples.y) == neighbour_correlation(zeroed, samples.y) > SIMILAR


@pytest.mark.parametrize("length", [3, 12, 80])
def test_every_class_is_in_the_rest_of_each_fold(length):
    samples = drifting(length=length)
    blocks, correlation = similar_blocks(samples, samples.y, 5, 0)
    assert correlation >= SIMILAR
    assert len(np.unique(blocks)) >= 20
    assert np.flatnonzero(np.diff(blocks)).size == blocks.max()  # successive rows
    fold_of = fold_groups(blocks, samples.y, 5, 0)
    assert all(set(samples.y[fold_of != fold]) == {0, 1, 2} for fold in range(5))


def test_what_the_user_says_goes_first_and_few_rows_say_nothing():
    samples = drifting()
    assert similar_blocks(samples, samples.y, 5, 0) is not None
    assert similar_blocks(Samples.of(samples, group=np.arange(240)), samples.y, 5, 0) is None
    assert similar_blocks(Samples.of(samples, time=np.arange(240)), samples.y, 5, 0) is None
    assert similar_blocks(samples[:50], samples.y[:50], 5, 0) is None


def test_text_has_no_neighbours():
    samples = Samples.of({"words": ["one", "two", "one"] * 30}, [0, 1, 0] * 30)
    assert np.isnan(neighbour_correlation(samples, samples.y))
    assert similar_blocks(samples, samples.y, 5, 0) is None
