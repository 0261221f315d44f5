import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import LabelEncoder, StandardScaler

from consilience.core.errors import InputError, SavedModelError
from consilience.core.targets import Task, check_labels, check_numbers, infer_task_kind

NAN = float("nan")
LABELS = {
    "integers": np.array([3, 1, 3, 7]),
    "small integers": np.array([200, 1, 3, 1], dtype=np.uint8),
    "negative": np.array([-1, 1, -1, 1]),
    "large": np.array([2**62, 2**62 + 1, 0, 0]),
    "booleans": np.array([True, False, True, True]),
    "whole floats": np.array([1.0, 2.0, 1.0, 5.0]),
    "strings": np.array(["dog", "cat", "horse", "cat"]),
    "unicode": np.array(["Hündin", "猫", "", "猫"]),
    "variable strings": np.array(["dog", "a longer name", "x", "x"], dtype=np.dtypes.StringDType()),
    "bytes": np.array([b"ab", b"\xff", b"c", b"c"]),
    "boxed strings": np.array(["dog", "cat", "dog", np.str_("cat")], dtype=object),
    "boxed integers": np.array([1, np.int64(2), 1, 2], dtype=object),
    "boxed booleans": np.array([True, False, True, False], dtype=object),
}


def through_json(task: Task) -> Task:
    return Task.from_json(json.loads(json.dumps(task.to_json())))


class TestClassification:
    @pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
    def test_encoding_agrees_with_scikit_learn_and_decodes_to_the_same_labels(self, labels):
        task = Task.of_labels(labels)
        plain = np.array(labels.tolist())
        encoder = LabelEncoder().fit(plain)
        assert task.classes.tolist() == encoder.classes_.tolist()
        assert task.outputs == len(encoder.classes_)
        assert task.classification
        encoded = task.encode(labels)
        assert encoded.dtype == np.int64
        assert encoded.tolist() == encoder.transform(plain).tolist()
        assert task.decode(np.eye(task.outputs)[encoded]).tolist() == plain.tolist()

    @pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
    def test_json_keeps_classes_and_their_type(self, labels):
        task = Task.of_labels(labels)
        again = through_json(task)
        assert again == task
        assert again.classes.dtype == task.classes.dtype
        assert again.classes.tolist() == task.classes.tolist()
        assert again.encode(labels).tolist() == task.encode(labels).tolist()

    def test_a_column_is_a_list_of_labels(self):
        assert Task.of_labels(np.array([["a"], ["b"]])).encode(np.array([["b"]])).tolist() == [1]

    def test_a_categorical_column(self):
        assert Task.of_labels(pd.Series(["a", "b", "a"], dtype="category")).outputs == 2

    @pytest.mark.parametrize(
        ("trained", "given", "label"),
        [
            (["cat", "dog"], ["cat", "bird", "bird"], "'bird'"),
            (["cat", "dog"], ["cat", "zebra", "aardvark"], "'zebra'"),
            ([0, 1], [0, 2, -1], "2"),
            (["1", "2"], [1, 2], "1"),
            ([1, 2], ["1", "2"], "'1'"),
            ([True, False], [True, 3], "3"),
        ],
    )
    def test_an_unseen_class_names_label_rows_and_classes(self, trained, given, label):
        with pytest.raises(InputError) as error:
            Task.of_labels(np.array(trained)).encode(np.array(given))
        assert f"label {label} (row" in str(error.value)
        assert "does not occur in the training targets" in str(error.value)
        assert repr(np.unique(trained).tolist()[0]) in str(error.value)

    def test_unseen_classes_are_placed_and_many_classes_are_cut(self):
        task = Task.of_labels(np.arange(30))
        with pytest.raises(InputError, match=r"label 40 \(rows 1, 3\).* 9 and 20 more"):
            task.encode(np.array([0, 40, 1, 50]))

    def test_one_class_only(self):
        with pytest.raises(InputError, match=r"at least two classes.*got one class: 'cat'"):
            Task.of_labels(np.array(["cat", "cat"]))

    def test_none_at_all(self):
        with pytest.raises(InputError, match="no targets"):
            Task.of_labels(np.array([]))

    @pytest.mark.parametrize("y", [np.eye(3), np.ones((3, 1, 1))])
    def test_multi_label_arrays(self, y):
        with pytest.raises(InputError, match=r"one label per sample, shape \[n\], got shape \[3.*multi-label"):
            Task.of_labels(y)

    @pytest.mark.parametrize("rows", [[[1], [2, 3]], [["a"], ["b", "c"]], [(1, 2), (3, 4)], [{1}, {1, 2}]])
    def test_multi_label_lists(self, rows):
        boxed = np.empty(2, dtype=object)
        boxed[:] = rows
        with pytest.raises(InputError, match=r"several labels \(rows 0, 1\); multi-label"):
            check_labels(boxed)
        with pytest.raises(InputError, match="multi-label"):
            check_labels(rows)

    def test_continuous_labels(self):
        with pytest.raises(InputError, match=r"continuous targets for a classifier, for example 0.5. Use a regressor"):
            Task.of_labels(np.array([1.0, 0.5, 2.0]))

    @pytest.mark.parametrize("broken", [NAN, np.inf])
    def test_labels_that_are_not_finite(self, broken):
        with pytest.raises(InputError, match=r"NaN or infinity \(rows 1, 2\)"):
            check_labels(np.array([1.0, broken, broken]))

    @pytest.mark.parametrize("missing", [None, NAN, pd.NA])
    @pytest.mark.parametrize("other", ["a", 1])
    def test_missing_labels(self, missing, other):
        with pytest.raises(InputError, match=r"missing labels \(row 1\)"):
            check_labels(np.array([other, missing, other], dtype=object))

    def test_a_missing_label_in_a_list_of_strings(self):
        with pytest.raises(InputError, match=r"missing labels \(row 1\)"):
            check_labels(["a", NAN, "b"])

    def test_strings_and_numbers_do_not_mix(self):
        for mixed in ([1, "a"], np.array([1, "a"], dtype=object)):
            with pytest.raises(InputError, match=r"mix strings with other labels \(types int, str\)"):
                check_labels(mixed)

    @pytest.mark.parametrize("y", [np.array([1j, 2]), np.array(["2020-01-01"], dtype="datetime64[D]")])
    def test_what_is_no_label(self, y):
        with pytest.raises(InputError, match="are not labels: use integers, strings or booleans"):
            check_labels(y)

    @given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=2))
    def test_any_strings_come_back(self, labels):
        if len(set(labels)) < 2:
            return
        task = through_json(Task.of_labels(np.array(labels)))
        assert task.classes[task.encode(np.array(labels))].tolist() == labels

    def test_tasks_with_other_classes_are_other_tasks(self):
        ab, xy = Task.of_labels(np.array(["a", "b"])), Task.of_labels(np.array(["x", "y"]))
        assert ab != xy
        assert ab == Task.of_labels(np.array(["b", "a", "a"]))
        assert hash(ab) == hash(Task.of_labels(np.array(["b", "a"])))
        assert ab != "ab"


class TestRegression:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, bool, object, str])
    @pytest.mark.parametrize("columns", [None, 1, 2])
    def test_standardisation_agrees_with_scikit_learn(self, dtype, columns):
        y = np.array([[0, 1], [1, 0], [1, 1], [1, 0]])
        y = (y[:, 0] if columns is None else y[:, :columns]).astype(dtype)
        plain = y.astype(float) if dtype is not bool else y.astype(int)
        task = Task.of_numbers(y)
        expected = StandardScaler().fit_transform(plain.reshape(4, -1).astype(float))
        assert task.outputs == (columns or 1)
        assert not task.classification
        encoded = task.encode(y)
        assert encoded.dtype == np.float64
        assert encoded == pytest.approx(expected, abs=1e-12)
        decoded = task.decode(encoded)
        assert decoded.shape == y.shape
        assert decoded == pytest.approx(plain.astype(float), abs=1e-6)

    def test_weights_count_as_repetitions(self):
        y, weight = np.array([1.0, 2.5, 7.0]), np.array([1, 3, 2])
        weighted, repeated = Task.of_numbers(y, weight), Task.of_numbers(np.repeat(y, weight))
        assert weighted.mean == pytest.approx(repeated.mean)
        assert weighted.scale == pytest.approx(repeated.scale)

    def test_a_large_mean_costs_no_digits(self):
        task = Task.of_numbers(1e8 + np.array([-1.0, 1.0, -1.0, 1.0]))
        assert task.encode(np.array([1e8 - 1, 1e8 + 1]))[:, 0] == pytest.approx([-1, 1])

    @pytest.mark.parametrize("constant", [0.0, 0.1, 1e9, -3.3])
    def test_a_constant_target_is_learned_as_it_is(self, constant):
        task = Task.of_numbers(np.full(1001, constant))
        assert task.scale.tolist() == [1.0]
        assert not task.encode(np.full(3, constant)).any()
        assert task.decode(np.zeros((2, 1))).tolist() == [constant] * 2

    def test_one_constant_target_of_two(self):
        task = Task.of_numbers(np.array([[1.0, 5.0], [3.0, 5.0]]))
        assert task.encode(np.array([[3.0, 5.0]])).tolist() == [[1.0, 0.0]]

    def test_numbers_too_large_to_square(self):
        with pytest.raises(InputError, match=r"spread from -1e\+300 to 1e\+300"):
            Task.of_numbers(np.array([1e300, -1e300]))

    @pytest.mark.parametrize("flat", [True, False])
    def test_numbers_beyond_the_range_are_not_decoded(self, flat):
        task = Task("regression", 1, mean=np.array([1e308]), scale=np.array([1e308]), flat=flat)
        assert task.decode(np.array([[0.5], [-1.5]])).ravel() == pytest.approx([1.5e308, -5e307])
        with pytest.raises(InputError, match="the predicted number is not finite in rows 0, 2"):
            task.decode(np.array([[2.0], [0.0], [NAN]], dtype=np.float32))

    @pytest.mark.parametrize("broken", [NAN, np.inf, -np.inf])
    def test_values_that_are_not_finite_name_the_rows(self, broken):
        with pytest.raises(InputError, match=r"NaN or infinity \(rows 0, 2\)"):
            Task.of_numbers(np.array([[broken, 1.0], [1.0, 1.0], [1.0, broken]]))
        with pytest.raises(InputError, match=r"NaN or infinity \(row 1\)"):
            check_numbers(np.array([1.0, broken], dtype=object))

    @pytest.mark.parametrize(
        "y", [np.array(["a", "b"]), np.array([1j, 2j]), np.array(["2020-01-01"], dtype="datetime64[D]"), [{}, {}]]
    )
    def test_what_is_no_number(self, y):
        with pytest.raises(InputError, match="regression targets must be numbers, got values of type"):
            check_numbers(y)

    @pytest.mark.parametrize("shape", [(0,), (0, 2), (3, 0)])
    def test_nothing_at_all(self, shape):
        with pytest.raises(InputError, match="no targets"):
            check_numbers(np.zeros(shape))

    @pytest.mark.parametrize("shape", [(), (2, 2, 2)])
    def test_another_shape(self, shape):
        with pytest.raises(InputError, match=r"shape \[n\] or \[n, target\], got"):
            check_numbers(np.zeros(shape))

    def test_another_number_of_columns_than_in_training(self):
        with pytest.raises(InputError, match="targets have 3 columns, the model was trained to predict 2"):
            Task.of_numbers(np.eye(2)).encode(np.eye(3))

    @given(
        hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=st.floats(-1e6, 1e6, width=32))
    )
    def test_encoding_and_decoding_round_trip_through_json(self, y):
        task = through_json(Task.of_numbers(y))
        assert task == Task.of_numbers(y)
        close = np.abs(task.decode(task.encode(y)) - y) <= 1e-5 * (task.scale + np.abs(y - task.mean))
        assert close.all()


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        ([0, 1, 2], "classification"),
        ([0.0, 1.0], "classification"),
        ([0.5, 1.0], "regression"),
        ([[1.0, 2.0], [3.0, 4.0]], "regression"),
        (["a", "b"], "classification"),
        ([True, False], "classification"),
        (np.array(["a", "b"], dtype=object), "classification"),
    ],
)
def test_the_task_follows_from_the_targets(y, kind):
    assert infer_task_kind(np.array(y)) == kind
    assert Task.of(np.array(y)).kind == kind


def test_the_task_may_be_said():
    assert Task.of(np.array([0, 1, 2]), "regression").mean.tolist() == [1.0]
    with pytest.raises(InputError, match="continuous"):
        Task.of(np.array([0.5, 1.0]), "classification")


@pytest.mark.parametrize("y", [np.array(["a", "b"]), np.array([1.5, 2.0])])
@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "ranking"},
        {"outputs": 3},
        {"outputs": "many"},
        {"classes": [["a"], ["b"]], "mean": [[1.0]]},
        {"classes": 5, "scale": "wide"},
        {"dtype": "O", "mean": None},
        {"dtype": "nonsense", "scale": [1.0, 2.0]},
        {"classes": ["b", "a"], "mean": [NAN]},
        {"classes": ["a", "a"], "scale": [np.inf]},
        {"classes": ["a", "b", "b"], "scale": [0.0]},
        {"classes": [], "outputs": 2, "scale": [-1.0]},
        {"outputs": 0, "flat": 1},
    ],
)
def test_a_tampered_task_is_refused(y, damage):
    with pytest.raises(SavedModelError, match="the saved task"):
        Task.from_json(Task.of(y).to_json() | damage)


@pytest.mark.parametrize("y", [np.array(["a", "b"]), np.array([1.5, 2.0])])
def test_a_truncated_task_is_refused(y):
    whole = Task.of(y).to_json()
    for key in set(whole) - ({"flat"} if "classes" in whole else set()):
        with pytest.raises(SavedModelError, match=f"cannot be read: KeyError: '{key}'"):
            Task.from_json({name: value for name, value in whole.items() if name != key})
