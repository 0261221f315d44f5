import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.data.folds import (
    cut_into_blocks,
    fold_at_random,
    fold_blocks,
    fold_groups,
    folds_as_groups,
    held_out_folds,
    most_folds,
)

grouped_rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=4, max_size=150)


@given(grouped_rows, st.integers(2, 5), st.none() | st.integers(0, 3))
def test_groups_are_in_one_fold_and_no_fold_is_empty(rows, folds, seed):
    group, classes = np.array(rows).T
    fold_of = fold_groups(group, classes, folds, seed)
    assert all(len(set(fold_of[group == each])) == 1 for each in set(group))
    assert set(fold_of) == set(range(min(folds, len(set(group)))))
    assert (fold_of == fold_groups(group, classes, folds, seed)).all()


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_groups_are_spread_about_as_evenly_as_scikit_learn_does(seed):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 60, 800)
    classes = (rng.random(60) < 0.3).astype(int)[group] + rng.integers(0, 2, 800)
    ours = fold_groups(group, classes, 5, seed)
    theirs = np.empty(800, dtype=int)
    for fold, (_, held) in enumerate(StratifiedGroupKFold(5).split(group, classes, group)):
        theirs[held] = fold

    def unevenness(fold_of):
        counts = np.array([np.bincount(classes[fold_of == fold], minlength=3) for fold in range(5)])
        return (counts.std(axis=0) / counts.mean(axis=0)).max()

    assert unevenness(ours) < max(0.15, 2 * unevenness(theirs))  # of groups at random it is about 0.4
    assert np.ptp(np.bincount(ours)) < 60


def test_another_seed_makes_other_folds_of_groups():
    group, classes = np.repeat(np.arange(20), 5), np.zeros(100, int)
    assert (fold_groups(group, classes, 4, 0) != fold_groups(group, classes, 4, 1)).any()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=100), st.integers(1, 8))
def test_blocks_follow_time_and_cut_no_moment(time, blocks):
    time = np.array(time)
    block_of = cut_into_blocks(time, blocks)
    assert block_of.max() < blocks
    assert (np.diff(block_of[np.argsort(time, kind="stable")]) >= 0).all()
    assert all(len(set(block_of[time == moment])) == 1 for moment in set(time))


def test_blocks_are_of_the_same_size_without_ties():
    assert np.bincount(cut_into_blocks(np.random.default_rng(0).permutation(100), 5)).tolist() == [20] * 5


def test_one_block_a_fold_where_every_class_is_in_the_rest():
    classes = np.arange(60) % 3
    fold_of = fold_blocks(np.arange(60), classes, 5)
    assert (np.diff(fold_of) != 0).sum() == 4  # contiguous


@given(st.integers(2, 5), st.integers(20, 80))
def test_classes_that_come_one_after_another_are_in_the_rest_of_every_fold(folds, length):
    classes = np.repeat([0, 1, 2], length)
    fold_of = fold_blocks(np.arange(3 * length), classes, folds)
    assert set(fold_of) == set(range(folds))
    for fold in range(folds):
        assert set(classes[fold_of != fold]) == {0, 1, 2}
    assert (np.diff(fold_of) != 0).sum() < 8 * folds  # blocks, not rows


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(0, 3))
def test_without_groups_and_times_folds_are_those_of_earlier_releases(classes, seed):
    classes = np.array(classes)
    samples = Samples.of({"a": np.zeros((len(classes), 1))})
    shuffled = np.random.default_rng(seed).permutation(len(classes))
    shuffled = shuffled[np.argsort(classes[shuffled], kind="stable")]
    expected = np.empty(len(classes), dtype=int)
    expected[shuffled] = np.arange(len(classes)) % 2
    assert (held_out_folds(samples, classes, 2, seed) == expected).all()
    assert (fold_at_random(classes, 2, seed) == expected).all()


def test_cross_fitting_takes_fewer_folds_where_groups_are_few():
    samples = Samples.of({"a": np.zeros((6, 1))}, group=list("aabbcc"))
    with pytest.warns(UserWarning, match="in 3 folds instead of 5: the training samples have 3 groups"):
        assert most_folds(samples, 5) == 3
    with pytest.raises(InputError, match="5 folds need as many groups, the training samples have 3"):
        held_out_folds(samples, np.zeros(6, int), 5, 0)
    with pytest.raises(InputError, match="the 2 training samples have 1"):
        most_folds(samples[:2], 5)


def test_folds_are_groups_only_where_samples_have_some():
    samples, fold_of = Samples.of({"a": np.zeros((4, 1))}), np.array([0, 0, 1, 1])
    assert folds_as_groups(samples, fold_of) is None
    assert folds_as_groups(Samples.of(samples, time=[4, 3, 2, 1]), fold_of) is fold_of
