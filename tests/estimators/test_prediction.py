"""What comes out: labels, probabilities, numbers, trust, scores; as numpy or torch; with modalities missing."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score

from consilience import Samples


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array([3, 7]),
        np.array([False, True]),
        np.array([0.0, 1.0]),
        np.array(["no", "yes"], dtype=object),
    ],
    ids=["str", "int", "bool", "whole floats", "object"],
)
def test_labels_leave_as_they_came(toy, classifier, labels):
    y = labels[toy.y]
    model = classifier().fit(toy.X, y)
    assert model.classes_.tolist() == labels.tolist()
    predicted = model.predict(toy.X)
    assert predicted.dtype.kind == np.array(labels.tolist()).dtype.kind
    assert model.score(toy.X, y) == accuracy_score(y.tolist(), predicted.tolist()) > 0.85


def test_labels_may_be_a_list_a_tensor_or_a_column(toy, classifier):
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    expected = classifier().fit(toy.X, toy.y).predict_proba(toy.X)
    for y in (toy.y.tolist(), torch.tensor(toy.y), polars.Series(toy.y), pandas.Series(toy.y, dtype="Int64")):
        np.testing.assert_array_equal(classifier().fit(toy.X, y).predict_proba(toy.X), expected)
    words = np.array(["no", "yes"])[toy.y]
    for y in (polars.Series(words), pandas.Series(words), pandas.Categorical(words)):
        assert classifier().fit(toy.X, y).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("method", ["concat", "late", "late-probs", "early", "best-unimodal", "unimodal:audio"])
def test_probabilities_and_labels_agree(toy, classifier, method):
    model = classifier(method, epochs=3).fit(toy.X, toy.y)
    probabilities = model.predict_proba(toy.X)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert (probabilities >= 0).all()
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(toy.X))


def test_numpy_gives_numpy_and_torch_gives_torch(toy, classifier, regressor):
    tensors = {name: torch.tensor(values) for name, values in toy.X.items()}
    model = classifier("late").fit(tensors, torch.tensor(toy.y))
    for ask in (model.predict, model.predict_proba, model.trust):
        from_numpy, from_torch = ask(toy.X), ask(tensors)
        assert isinstance(from_numpy, np.ndarray)
        assert isinstance(from_torch, torch.Tensor)
        np.testing.assert_array_equal(from_torch.numpy(), from_numpy)
    assert model.score(tensors, torch.tensor(toy.y)) == model.score(toy.X, toy.y)
    numbers = regressor().fit(tensors, torch.tensor(toy.number))
    assert isinstance(numbers.predict(tensors), torch.Tensor)
    assert isinstance(numbers.predict(toy.X | {"audio": tensors["audio"]}), np.ndarray), "mixed input is not torch"


def test_a_tensor_as_table(toy, classifier, columns):
    table = torch.tensor(toy.table, requires_grad=True)
    model = classifier(columns=columns).fit(table, toy.y)
    assert isinstance(model.predict(table), torch.Tensor)
    np.testing.assert_array_equal(model.predict_proba(table).numpy(), model.predict_proba(toy.table))


def test_labels_that_are_text_have_no_tensor(toy, classifier):
    tensors = {name: torch.tensor(values) for name, values in toy.X.items()}
    predicted = classifier().fit(tensors, np.array(["no", "yes"])[toy.y]).predict(tensors)
    assert isinstance(predicted, np.ndarray)


def test_regression_keeps_the_shape_of_its_targets(toy, regressor):
    several = np.c_[toy.number, toy.X["image"][:, 1]]
    assert regressor().fit(toy.X, toy.number).predict(toy.X).shape == (80,)
    assert regressor().fit(toy.X, toy.number[:, None]).predict(toy.X).shape == (80, 1)
    model = regressor(epochs=60).fit(toy.X, several)
    assert model.predict(toy.X).shape == (80, 2)
    assert model.score(toy.X, several) == pytest.approx(r2_score(several, model.predict(toy.X)))
    assert model.score(toy.X, several) > 0.7


def test_scores_equal_those_of_scikit_learn_with_weights_and_masks(toy, classifier, regressor):
    weight = np.random.default_rng(1).random(80)
    present = np.random.default_rng(2).random((80, 2)) < 0.7
    model = classifier().fit(toy.X, toy.y)
    expected = accuracy_score(toy.y, model.predict(toy.X, present), sample_weight=weight)
    assert model.score(toy.X, toy.y, weight, present) == pytest.approx(expected)
    numbers = regressor().fit(toy.X, toy.number)
    expected = r2_score(toy.number, numbers.predict(toy.X, present), sample_weight=weight)
    assert numbers.score(toy.X, toy.number, weight, present) == pytest.approx(expected)


def test_samples_bring_their_own_targets(toy, classifier):
    model = classifier().fit(toy.samples())
    assert model.score(toy.samples()) == model.score(toy.X, toy.y)
    opposite = 1 - toy.y
    assert model.score(toy.samples(), opposite) == pytest.approx(1 - model.score(toy.samples())), "y given goes first"


def test_targets_do_not_matter_where_they_are_predicted(toy, classifier):
    model = classifier().fit(toy.X, toy.y)
    unheard_of = toy.samples(np.full(80, "never seen"))
    np.testing.assert_array_equal(model.predict_proba(unheard_of), model.predict_proba(toy.X))


def test_trust_exists_for_methods_with_weights_once_fitted(toy, classifier):
    for method, weighs in (("late", True), ("best-unimodal", True), ("concat", False), ("early", False)):
        model = classifier(method, epochs=1)
        assert not hasattr(model, "trust")
        assert hasattr(model.fit(toy.X, toy.y), "trust") == weighs
    with pytest.raises(AttributeError, match="no attribute 'trust'") as raised:
        classifier(epochs=1).fit(toy.X, toy.y).trust(toy.X)
    assert "method 'concat' does not weigh its modalities" in str(raised.value.__cause__)


@pytest.mark.parametrize("method", ["late", "late-probs", "best-unimodal"])
def test_trust_sums_to_one_over_what_is_present(toy, classifier, method):
    model = classifier(method, epochs=3).fit(toy.X, toy.y)
    present = np.random.default_rng(0).random((80, 2)) < 0.5
    trust = model.trust(toy.X, present)
    assert trust.shape == (80, 2)
    assert (trust[~present] == 0).all()
    np.testing.assert_allclose(trust.sum(axis=1), present.any(axis=1).astype(float), atol=1e-15)


def test_every_way_of_missing_is_the_same(toy, classifier, columns):
    model = classifier("late").fit(toy.X, toy.y)
    absent = {"image": toy.X["image"]}
    all_nan = toy.X | {"audio": np.full((80, 2), np.nan)}
    mask = np.tile([True, False], (80, 1))
    expected = model.predict_proba(absent)
    assert not np.allclose(expected, model.predict_proba(toy.X))
    np.testing.assert_array_equal(model.predict_proba(all_nan), expected)
    np.testing.assert_array_equal(model.predict_proba(toy.X, mask), expected)
    np.testing.assert_array_equal(model.predict_proba(toy.X, {"audio": np.zeros(80, dtype=bool)}), expected)
    np.testing.assert_array_equal(model.predict_proba(Samples.of(toy.X, present=mask)), expected)
    np.testing.assert_array_equal(model.trust(absent), np.tile([1.0, 0.0], (80, 1)))
    by_table = classifier("late", columns=columns).fit(toy.table, toy.y)
    np.testing.assert_array_equal(by_table.predict_proba(np.hstack(list(all_nan.values()))), expected)
    np.testing.assert_array_equal(by_table.predict_proba(toy.table, mask), expected)


def test_modalities_come_in_any_order(toy, classifier):
    model = classifier().fit(toy.X, toy.y)
    swapped = {"audio": toy.X["audio"], "image": toy.X["image"]}
    np.testing.assert_array_equal(model.predict_proba(swapped), model.predict_proba(toy.X))
    assert model.modalities_ == ("image", "audio")


def test_missing_in_training(toy, classifier):
    present = np.random.default_rng(3).random((80, 2)) < 0.7
    model = classifier(epochs=30).fit(toy.X, toy.y, present=present)
    assert model.score(toy.X, toy.y) > 0.75


@pytest.mark.parametrize("names", [("keys", "items"), ("temp.1", "temp.2"), ("x y", "ü→κ"), ("0", "forward")])
def test_any_name_will_do(toy, classifier, names, tmp_path):
    from consilience import load

    X = dict(zip(names, toy.X.values()))
    model = classifier("late", epochs=2).fit(X, toy.y)
    again = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.modalities_ == names


def test_kinds_of_training_decide_how_the_same_names_are_read_again(classifier):
    rng = np.random.default_rng(0)
    tokens = [rng.integers(1, 5, size=rng.integers(2, 6)).tolist() for _ in range(40)]
    y = np.array([1 in row for row in tokens]).astype(int)
    model = classifier(kinds={"words": "tokens"}, encoders={"words": "bag"}).fit({"words": tokens}, y)
    alone = model.predict_proba({"words": tokens[:1]})
    np.testing.assert_allclose(alone, model.predict_proba({"words": tokens})[:1], atol=1e-6)
    sentences = [" ".join("abcde"[token] for token in row) for row in tokens]
    by_text = classifier().fit({"words": sentences}, y)
    assert by_text.predict_proba({"words": [None, None]}).shape == (2, 2)
