"""The confusion matrix against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from consilience.core.errors import InputError
from consilience.evaluation import balanced_accuracy, confusion_matrix


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_it_agrees_with_scikit_learn(seed, named, weighted):
    rng = np.random.default_rng(seed)
    labels = np.array(["gull", "tern", "skua", "auk"]) if named else np.array([3, 5, 8, 9])
    y, prediction = labels[rng.integers(0, 4, (2, 50))]
    weight = rng.uniform(0.1, 2, 50) if weighted else None
    found = confusion_matrix(y, prediction, classes=labels, weight=weight)
    theirs = sklearn_metrics.confusion_matrix(y, prediction, labels=labels, sample_weight=weight)
    np.testing.assert_allclose(found.counts, theirs)
    for ours, score in (
        (found.recall, sklearn_metrics.recall_score),
        (found.precision, sklearn_metrics.precision_score),
    ):
        expected = score(y, prediction, labels=labels, average=None, sample_weight=weight, zero_division=np.nan)
        np.testing.assert_allclose(ours, expected)
    assert np.nanmean(found.recall) == pytest.approx(balanced_accuracy(y, prediction, weight=weight))


def test_the_table_says_what_a_class_is_taken_for():
    found = confusion_matrix(["a", "a", "a", "b", "c"], ["a", "b", "b", "b", "c"])
    assert found.table().row(0, named=True) == {
        "class": "a",
        "samples": 3.0,
        "recall": pytest.approx(1 / 3),
        "precision": 1.0,
        "confused_with": "b",
        "share": pytest.approx(2 / 3),
    }
    assert found.table()["confused_with"].to_list() == ["b", None, None]
    unseen = confusion_matrix(["a"], ["b"]).table()
    assert unseen["recall"].to_list() == [0.0, None]


def test_labels_that_are_no_class_are_refused():
    with pytest.raises(InputError, match=r"label 'c' is not among the classes \['a', 'b'\]"):
        confusion_matrix(["a", "c"], ["a", "b"], classes=["a", "b"])
    with pytest.raises(InputError, match="different labels"):
        confusion_matrix(["a"], ["a"], classes=["a", "a"])
