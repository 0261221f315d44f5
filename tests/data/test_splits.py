import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.data.splits import PARTS, Split, draw_split, given_split, redraw

labels = st.lists(st.integers(0, 4), min_size=3, max_size=200)


@given(labels, st.integers(0, 5))
def test_every_class_is_in_train_and_shares_are_kept(y, seed):
    y = np.array(y)
    parts = draw_split(y, "classification", seed=seed, validation=0.2, test=0.2).parts
    assert set(parts) <= set(PARTS)
    assert set(y) == set(y[parts == "train"])
    drawn = max(1, round(0.2 * len(y)))
    for label in set(y):
        count = (parts[y == label] == "test").sum()
        # One less where the class had to be given back to train.
        assert -2 < count - drawn * (y == label).mean() < 1


def test_large_classes_split_exactly():
    y = np.repeat(["a", "b", "c"], [500, 300, 200])
    parts = draw_split(y, "classification").parts
    for label, size in (("a", 500), ("b", 300), ("c", 200)):
        counts = [(parts[y == label] == part).sum() for part in PARTS]
        assert counts == pytest.approx([0.7 * size, 0.15 * size, 0.15 * size], abs=1)


def test_draw_depends_on_the_seed_only():
    y = np.arange(100) % 3
    first, again, other = (draw_split(y, "classification", seed=seed).parts for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_rows_are_drawn_evenly():
    """Over many seeds every row is as likely to be a test row as any other."""
    y = np.arange(40) % 4
    often = sum((draw_split(y, "classification", seed=seed, test=0.25).parts == "test") for seed in range(400)) / 400
    assert often.min() > 0.15
    assert often.max() < 0.35


def test_given_split_reads_usual_words():
    words = ["Train", "dev", " test", "training", "val", "TEST"]
    split = given_split(words, np.arange(6) % 2, "classification")
    assert split.parts.tolist() == ["train", "validation", "test"] * 2
    assert split.official
    assert not split.drawn_validation


def test_given_split_without_validation_draws_it_from_train():
    y = np.arange(100) % 2
    words = np.where(np.arange(100) < 80, "train", "test")
    split = given_split(words, y, "classification", seed=3)
    assert split.official
    assert split.drawn_validation
    assert (split.parts[80:] == "test").all()
    assert (split.parts[:80] == "validation").sum() == 12
    again = redraw(split, y, "classification", seed=4)
    assert (again.parts[80:] == "test").all()
    assert (again.parts == "validation").sum() == 12
    assert (again.parts != split.parts).any()


def test_a_complete_official_split_is_never_redrawn():
    split = Split(np.array(["train", "train", "validation", "test"]), True, False)
    assert (redraw(split, np.arange(4) % 2, "classification", 9).parts == split.parts).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"] * 4, "no test rows"),
        (["test"] * 4, "no train rows"),
        (["train", "test", "hold-out", "test"], r"'hold-out' \(row 2\)"),
        (["train", "test", None, ""], r"an empty cell \(rows 2, 3\)"),
        ([0, 1, 2, 0], r"holds 0 \(rows 0, 1, 2, 3\)"),
        ([["train"]] * 4, "shape"),
        (["train", "test"], "2 rows, the targets have 4"),
    ],
)
def test_bad_splits_are_named(words, message):
    with pytest.raises(InputError, match=message):
        given_split(words, np.arange(4) % 2, "classification", where="split column 's'")


def test_a_bad_seed_is_an_error():
    with pytest.raises(InputError, match="seed must be a whole number ≥ 0, got -1"):
        draw_split(np.arange(10), "regression", seed=-1)
