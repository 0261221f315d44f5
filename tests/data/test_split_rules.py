import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, TimeSeriesSplit

from consilience.core.errors import InputError
from consilience.data.split_rules import SplitRule, blocks_for_bootstrap, pick
from consilience.data.splits import PARTS, UNUSED, Split, redraw, settle_split

grouped_rows = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 2)), min_size=3, max_size=150)


def codes_of(values):
    return np.unique(values, return_inverse=True)[1]


def draw(rule, y, seed=0, task="classification"):
    return settle_split(None, y, task, seed=seed, rule=rule).parts


@given(grouped_rows, st.integers(0, 3))
def test_no_group_is_in_two_parts_and_every_class_is_in_train(rows, seed):
    group, y = codes_of(np.array(rows)[:, 0]), np.array(rows)[:, 1]
    rule = SplitRule(group=group, column="patient", labels=range(16))
    try:
        parts = draw(rule, y, seed)
    except InputError as error:
        few = len(set(group)) < 3
        assert few or "the only one with some class" in str(error)  # noqa: PT017
        return
    assert set(parts) == set(PARTS)
    assert all(len(set(parts[group == each])) == 1 for each in set(group))
    assert set(y[parts == "train"]) == set(y)
    assert (parts == draw(rule, y, seed)).all()


@given(st.integers(30, 80), st.integers(1, 6), st.integers(0, 5))
def test_parts_of_small_groups_have_about_the_sizes_that_are_asked(groups, size, seed):
    group = np.repeat(np.arange(groups), size)
    y = np.arange(groups)[group] % 2
    parts = draw(SplitRule(group=group, column="g", labels=range(groups)), y, seed)
    for part in ("validation", "test"):
        assert abs((parts == part).sum() - 0.15 * len(group)) <= 0.5 * 0.15 * len(group)


def test_seeds_test_other_groups_even_where_there_are_few():
    group = np.repeat(np.arange(6), 10)
    rule = SplitRule(group=group, column="g", labels=range(6))
    tested = {tuple(np.unique(group[draw(rule, np.arange(60) % 2, seed) == "test"])) for seed in range(30)}
    assert len(tested) >= 4


def test_a_class_of_one_group_stays_in_train():
    group = np.repeat(np.arange(10), 4)
    y = np.where(group == 3, "rare", "usual")
    for seed in range(20):
        assert (draw(SplitRule(group=group, column="g", labels=range(10)), y, seed)[group == 3] == "train").all()


@pytest.mark.parametrize(("groups", "message"), [(2, "needs at least 3 groups, there are 2"), (1, "at least 3")])
def test_too_few_groups_are_refused(groups, message):
    group = np.arange(12) % groups
    with pytest.raises(InputError, match=message):
        draw(SplitRule(group=group, column="site", labels=range(groups)), np.arange(12) % 2)


def test_groups_that_are_classes_are_refused():
    group = np.arange(12) % 4
    with pytest.raises(InputError, match="the split by site: each of the 4 groups is the only one with some class"):
        draw(SplitRule(group=group, column="site", labels=range(4)), group)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=100))
def test_the_latest_rows_are_test_and_those_before_them_validation(time):
    time = codes_of(time)
    assume(time.max() >= 2)
    y = np.arange(len(time), dtype=float)
    parts = draw(SplitRule(time=time, column="day"), y, task="regression")
    train, validation, test = (time[parts == part] for part in PARTS)
    assert train.max() < validation.min()
    assert validation.max() < test.min()
    assert (parts == draw(SplitRule(time=time, column="day"), y, seed=5, task="regression")).all()


def test_times_without_ties_split_exactly():
    parts = draw(
        SplitRule(time=np.random.default_rng(0).permutation(200), column="t"), np.zeros(200), task="regression"
    )
    assert [(parts == part).sum() for part in PARTS] == [140, 30, 30]


@given(st.integers(20, 120), st.integers(2, 5))
def test_expanding_folds_are_those_of_scikit_learn(n, folds):
    order = np.random.default_rng(n).permutation(n)
    rule = SplitRule(time=order, column="t", folds=folds)
    rows = np.argsort(order)
    for fold, (before, tested) in enumerate(TimeSeriesSplit(folds).split(np.zeros((n, 1)))):
        parts = draw(rule, np.zeros(n), seed=folds - 1 - fold, task="regression")  # fold 0 is the latest
        assert set(np.flatnonzero(parts == "test")) == set(rows[tested])
        assert set(np.flatnonzero(np.isin(parts, ("train", "validation")))) == set(rows[before])
        assert order[parts == "train"].max() < order[parts == "validation"].min()
        assert (order[parts == UNUSED] > order[parts == "test"].max()).all()


@given(grouped_rows, st.integers(2, 4), st.integers(0, 2))
def test_folds_test_every_row_once_by_whole_groups(rows, folds, repeat):
    group, y = codes_of(np.array(rows)[:, 0]), np.zeros(len(rows))
    assume(len(set(group)) >= 2 * folds + 2)
    rule = SplitRule(group=group, column="g", labels=range(16), folds=folds)
    try:
        drawn = [draw(rule, y, repeat * folds + fold, "regression") for fold in range(folds)]
    except InputError as error:
        # One group that is as large as all others makes a fold of its own, and then nothing is left to validate with.
        sizes = np.bincount(group)
        assert "needs at least 2 groups, there are 1" in str(error)  # noqa: PT017
        assert folds == 2
        assert sizes.max() >= len(rows) - sizes.max() - sizes.min()
        return
    assert (sum((parts == "test").astype(int) for parts in drawn) == 1).all()
    for parts in drawn:
        assert all(len(set(parts[group == each])) == 1 for each in set(group))
        assert {"train", "validation"} <= set(parts)


def test_grouped_folds_are_as_even_as_scikit_learns():
    group = np.repeat(np.arange(25), 8)
    rule = SplitRule(group=group, column="g", labels=range(25), folds=5)
    ours = sorted((draw(rule, np.zeros(200), fold, "regression") == "test").sum() for fold in range(5))
    theirs = sorted(len(held) for _, held in GroupKFold(5).split(group, group, group))
    assert ours == theirs == [40] * 5


@given(st.lists(st.integers(0, 2), min_size=20, max_size=120), st.integers(2, 4), st.integers(0, 3))
def test_stratified_folds_test_every_row_once(y, folds, repeat):
    y = np.array(y)
    assume(np.unique(y, return_counts=True)[1].min() > 2)
    drawn = [draw(SplitRule(folds=folds), y, repeat * folds + fold) for fold in range(folds)]
    assert (sum((parts == "test").astype(int) for parts in drawn) == 1).all()
    for parts in drawn:
        assert set(y[parts == "train"]) == set(y)
        for label in set(y):
            share = (y == label).sum() / folds
            assert abs((parts[y == label] == "test").sum() - share) < 1
    other = [draw(SplitRule(folds=folds), y, (repeat + 1) * folds + fold) for fold in range(folds)]
    assert any((one != two).any() for one, two in zip(drawn, other))


def test_a_class_of_one_row_cannot_be_in_folds():
    with pytest.raises(InputError, match="2 samples of every class"):
        draw(SplitRule(folds=5), np.array([0] * 20 + [1]))


def test_a_class_of_one_group_cannot_be_in_folds_and_the_group_is_named():
    group = np.repeat(np.arange(8), 4)
    y = (group == 5).astype(int)
    with pytest.raises(InputError, match="all 4 samples of a class are in one fold, since they are of patient 'p5'"):
        draw(SplitRule(group=group, column="patient", labels=[f"p{n}" for n in range(8)], folds=4), y)


def test_a_given_split_must_keep_groups_whole():
    rule = SplitRule(group=np.array([0, 0, 1, 1, 2, 2]), column="patient", labels=["a", "b", "c"])
    with pytest.raises(InputError, match="the split has samples of patient 'b' in train and test"):
        settle_split(["train", "train", "train", "test", "val", "val"], np.arange(6) % 2, "classification", rule=rule)


def test_validation_of_a_given_test_part_is_drawn_by_groups_for_every_seed():
    group = np.repeat(np.arange(20), 5)
    rule = SplitRule(group=group, column="g", labels=range(20))
    given = np.where(group < 5, "test", "train")
    split = settle_split(given, np.arange(100) % 2, "classification", rule=rule)
    for seed in range(3):
        parts = redraw(split, np.arange(100) % 2, "classification", seed, rule).parts
        assert set(group[parts == "test"]) == set(range(5))
        assert not set(group[parts == "validation"]) & set(group[parts != "validation"])


def test_folds_and_a_given_split_are_refused():
    with pytest.raises(InputError, match="leave folds out, or the split"):
        settle_split(["train", "test"], np.arange(2), "classification", rule=SplitRule(folds=2))


def test_groups_and_times_together_are_refused():
    with pytest.raises(InputError, match="by group or by time"):
        SplitRule(group=np.arange(3), time=np.arange(3))


def test_without_a_rule_the_split_is_that_of_earlier_releases():
    y = np.arange(50) % 3
    assert (settle_split(None, y, "classification", seed=4).parts == draw(None, y, 4)).all()
    split = Split(draw(None, y, 0), False, True)
    assert (redraw(split, y, "classification", 3).parts == redraw(split, y, "classification", 3, None).parts).all()


def test_test_rows_are_resampled_by_group_or_by_block_in_time():
    assert blocks_for_bootstrap(SplitRule(folds=3)) is None
    group = np.arange(6) // 2
    assert blocks_for_bootstrap(SplitRule(group=group)) is group
    blocks = blocks_for_bootstrap(SplitRule(time=np.arange(100), column="t"))
    assert len(set(blocks)) == 20
    assert (np.diff(blocks) >= 0).all()


def test_pick_leaves_groups_over():
    rule = SplitRule(group=np.arange(4), column="g", labels=range(4))
    assert len(pick(rule, np.zeros(4, int), np.arange(4), 100, 0, leave=2)) == 2
