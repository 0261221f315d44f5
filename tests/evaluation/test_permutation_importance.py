"""Permutation importance against scikit-learn's and against shuffling by hand."""

import numpy as np
import polars as pl
import pytest
from sklearn.inspection import permutation_importance as of_scikit_learn
from sklearn.linear_model import LogisticRegression

from consilience.core.errors import InputError, TableWarning, UnknownNameError, UnsupportedError
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier
from consilience.evaluation import Metric, permutation_importance


class Joined:
    """A logistic regression on the columns of two modalities; a missing one is at zero."""

    def __init__(self, X, y):
        self.inner = LogisticRegression().fit(self.join(X), y)
        self.classes_ = self.inner.classes_

    def join(self, X):
        return np.nan_to_num(np.concatenate([X["a"], X["b"]], axis=1))

    def predict(self, X):
        return self.inner.predict(self.join(X))

    def predict_proba(self, X):
        return self.inner.predict_proba(self.join(X))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    X = {"a": rng.normal(size=(2000, 3)), "b": rng.normal(size=(2000, 2))}
    X["a"][:, 1] += 2 * y
    X["b"][:, 0] += y
    return X, y, Joined(X, y)


def test_of_single_columns_it_is_that_of_scikit_learn(data):
    X, y, model = data
    places = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    groups = {f"{name}{column}": (name, [column]) for name, column in places}
    ours = permutation_importance(model, X, y, groups=groups, repeats=10)
    theirs = of_scikit_learn(model.inner, model.join(X), y, n_repeats=10, random_state=0)
    np.testing.assert_allclose(ours.values, theirs.importances_mean, atol=0.01)
    assert ours.table()["group"][0] == "a1"
    assert ours.baseline == np.mean(model.predict(X) == y)
    by_loss = permutation_importance(model, X, y, groups=groups, metric="nll")
    assert by_loss.table()["group"][0] == "a1"
    assert by_loss.values[1] > 0  # a larger loss is worse
    row = by_loss.table().row(0, named=True)
    assert row["shuffled"] == pytest.approx(by_loss.baseline + row["importance"])


def test_a_metric_of_the_users_own_gets_worse_in_its_own_direction(data):
    X, y, model = data
    errors = Metric(
        "own_errors", "classification", lambda y, said, weight=None: np.mean(y != said), larger_is_better=False
    )
    found = permutation_importance(model, X, y, metric=errors, repeats=1)
    order = np.random.default_rng([0, 0]).permutation(len(y))
    table = found.table()
    for row in table.iter_rows(named=True):
        shuffled = {**X, row["group"]: X[row["group"]][order]}
        assert row["shuffled"] == pytest.approx(np.mean(model.predict(shuffled) != y))
        assert row["shuffled"] > found.baseline


def test_columns_of_a_group_are_shuffled_together(data):
    X, y, model = data
    whole = permutation_importance(model, X, y, repeats=2)
    columns = {"a": ("a", [0, 1, 2]), "b": ["b"], "all": ["a", ("b", [0, 1])]}
    named = permutation_importance(model, X, y, groups=columns, repeats=2)
    np.testing.assert_array_equal(named.per_repeat[:2], whole.per_repeat)
    order = np.random.default_rng([0, 1]).permutation(len(y))
    shuffled = {name: values[order] for name, values in X.items()}
    expected = np.mean(model.predict(X) == y) - np.mean(model.predict(shuffled) == y)
    assert named.per_repeat[2, 1] == pytest.approx(expected)
    assert named.values[2] == pytest.approx(np.mean(model.predict(X) == y) - 0.5, abs=0.05)
    again = permutation_importance(model, Samples.of(X, y), groups=columns, repeats=2)
    np.testing.assert_array_equal(again.per_repeat, named.per_repeat)


def test_what_is_missing_moves_with_its_modality_and_stays_for_columns(data):
    X, y, model = data
    seen = []

    class Spy(Joined):
        def __init__(self):
            self.inner, self.classes_ = model.inner, model.classes_

        def predict(self, X):
            seen.append(X)
            return super().predict(X)

    holes = {**X, "a": np.where(np.arange(len(y))[:, None] % 3 == 0, np.nan, X["a"])}
    permutation_importance(Spy(), holes, y, groups={"a": "a", "a1": ("a", [1])}, repeats=1)
    as_given, whole, column = (each["a"] for each in seen)
    order = np.random.default_rng([0, 0]).permutation(len(y))
    np.testing.assert_array_equal(whole, as_given[order])
    gaps = np.isnan(as_given).any(axis=1)
    np.testing.assert_array_equal(np.isnan(column).all(axis=1), gaps)
    np.testing.assert_array_equal(column[:, [0, 2]], as_given[:, [0, 2]])
    assert sorted(column[~gaps, 1]) == sorted(as_given[~gaps, 1])
    assert (column[~gaps, 1] != as_given[~gaps, 1]).mean() > 0.9


@pytest.fixture(scope="module")
def frames():
    """DataFrames with a column of strings and one with gaps, and a model of them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    word = np.where(rng.random(200) < 0.8, np.array(["no", "yes"])[y], "maybe")
    a = pl.DataFrame({"u": rng.normal(size=200), "word": word, "v": rng.normal(size=200)})
    a = a.with_columns(v=pl.when(pl.int_range(200) % 9 == 0).then(None).otherwise("v"))
    X = {"a": a, "b": pl.DataFrame({"p": rng.normal(size=200), "q": rng.normal(size=200) + y})}
    with pytest.warns(TableWarning, match="23 of modality 'a'"):
        return X, y, FusionClassifier("linear", device="cpu").fit(X, y)


def test_dataframes_are_read_as_the_model_reads_them(frames):
    X, y, model = frames
    found = permutation_importance(model, X, y, repeats=2)
    assert found.baseline == np.mean(model.predict(X) == y)
    for place, name in enumerate(found.groups):
        for repeat in range(2):
            order = np.random.default_rng([0, repeat]).permutation(200)
            right = np.mean(model.predict({**X, name: X[name][order]}) == y)
            assert found.per_repeat[place, repeat] == pytest.approx(found.baseline - right)
    other_order = {"b": X["b"].select("q", "p"), "a": X["a"].select("v", "u", "word")}
    again = permutation_importance(model, other_order, y, groups={"a": "a", "b": "b"}, repeats=2)
    assert again.baseline == found.baseline
    np.testing.assert_array_equal(again.per_repeat, found.per_repeat)


def test_one_table_is_read_too(frames):
    X, y, _ = frames
    table = pl.concat([X["a"], X["b"]], how="horizontal")
    model = FusionClassifier("linear", columns={name: part.columns for name, part in X.items()}, device="cpu")
    with pytest.warns(TableWarning, match="23 of modality 'a'"):
        model.fit(table, y)
    found = permutation_importance(model, table, y, groups={"b": "b"}, repeats=1)
    order = np.random.default_rng([0, 0]).permutation(200)
    right = np.mean(model.predict(table.with_columns(X["b"][order])) == y)
    assert found.values[0] == pytest.approx(found.baseline - right)


def test_text_and_sequences_are_shuffled_too():
    y = np.arange(60) % 2
    texts = np.array(["left", "right"])[y]
    sound = [np.full((2 + row % 3, 1), float(row)) for row in range(60)]

    class Reader:
        classes_ = np.array([0, 1])

        def predict(self, X):
            assert {len(steps) for steps in X["sound"]} == {2, 3, 4}
            return (np.asarray(X["text"]) == "right").astype(int)

    found = permutation_importance(Reader(), {"text": texts.tolist(), "sound": sound}, y)
    assert found.baseline == 1
    assert found.values[0] == pytest.approx(0.5, abs=0.15)
    assert found.values[1] == 0


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"g": "c"}, UnknownNameError, "unknown modality 'c'"),
        ({"g": ("a", [3])}, InputError, "columns of group 'g' must be numbers from 0 to 2"),
        ({"g": 3}, InputError, "group 'g' must be a modality"),
        ({}, InputError, "groups is empty"),
        ({"g": ("text", [0])}, UnsupportedError, r"text \(text\) has none, only vectors do"),
    ],
)
def test_groups_that_do_not_exist_are_refused(data, groups, error, message):
    X, y, model = data
    with pytest.raises(error, match=message):
        permutation_importance(model, {**X, "text": ["a b"] * len(y)}, y, groups=groups)


def test_it_needs_targets(data):
    X, _, model = data
    with pytest.raises(InputError, match="needs the targets y"):
        permutation_importance(model, X)
