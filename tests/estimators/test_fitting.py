"""How fitting goes: what is held out, seeds, weights, repeated and interrupted fits, very small sets."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils import compute_sample_weight

from consilience import Samples
from consilience.core.errors import InputError
from consilience.estimators import hold_out_rows, load
from consilience.methods import Method
from consilience.training import Callback, Model


@pytest.fixture
def seen(monkeypatch):
    """The training and validation sets that reached the model."""
    sets: list[tuple[Samples, Samples | None]] = []
    fit = Model.fit.__func__

    def watched(cls, name, train, validation=None, **given):
        sets.append((train, validation))
        return fit(cls, name, train, validation, **given)

    monkeypatch.setattr(Model, "fit", classmethod(watched))
    return sets


def test_a_share_is_held_out_of_every_class(toy, classifier, seen):
    classifier(epochs=1, validation=0.25).fit(toy.X, toy.y)
    ((train, validation),) = seen
    assert (len(train), len(validation)) == (60, 20)
    assert sorted([*train.index, *validation.index]) == list(range(80))
    assert abs(validation.y.mean() - toy.y.mean()) < 0.05


def test_nothing_is_held_out_on_request_or_from_a_handful(toy, classifier, seen):
    classifier(epochs=1, validation=None).fit(toy.X, toy.y)
    classifier(epochs=1, validation=0).fit(toy.X, toy.y)
    few = {name: values[:4] for name, values in toy.X.items()}
    classifier(epochs=1).fit(few, [0, 1, 0, 1])
    assert [(len(train), validation) for train, validation in seen] == [(80, None), (80, None), (4, None)]


def test_a_validation_set_of_ones_own(toy, classifier, columns, seen):
    first, rest = slice(0, 50), slice(50, None)
    X, held = ({name: values[rows] for name, values in toy.X.items()} for rows in (first, rest))
    pair, samples = (held, toy.y[rest]), Samples.of(held, toy.y[rest])
    models = [classifier(validation=given).fit(X, toy.y[first]) for given in (pair, list(pair), samples)]
    table = classifier(columns=columns, validation=(toy.table[rest], toy.y[rest])).fit(toy.table[first], toy.y[first])
    for model in (*models, table):
        assert {(len(train), len(validation)) for train, validation in seen} == {(50, 30)}
        np.testing.assert_array_equal(
            model.predict_proba(toy.table if model is table else toy.X), models[0].predict_proba(toy.X)
        )


def test_early_stopping_uses_what_was_held_out(toy, classifier):
    model = classifier(epochs=60, patience=2, lr=0.1).fit(toy.X, toy.y)
    assert model.n_iter_ < 60
    assert model.n_iter_ == len(model.model_.logs[0].rows)
    assert classifier(epochs=5, validation=None, patience=1).fit(toy.X, toy.y).n_iter_ == 5


def test_a_class_of_one_stays_in_training(toy, classifier, seen):
    y = np.array(["common"] * 79 + ["rare"])
    model = classifier(epochs=1, validation=0.5).fit(toy.X, y)
    assert model.classes_.tolist() == ["common", "rare"]
    assert "rare" in seen[0][0].y


@settings(deadline=None, max_examples=60)
@given(
    y=st.lists(st.integers(0, 4), min_size=2, max_size=40),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 5),
    weighted=st.booleans(),
)
def test_holding_out_never_empties_a_class(y, share, seed, weighted):
    weight = np.random.default_rng(seed).integers(0, 2, len(y)).astype(float) if weighted else None
    if weight is not None:
        weight[0] = 1.0
    samples = Samples.of({"a": np.arange(float(len(y)))}, np.array(y), weight=weight)
    held = hold_out_rows(samples, share, "classification", seed)
    counts = np.ones(len(y)) if weight is None else weight
    assert held.sum() <= round(share * counts.sum())
    for label in set(y):
        of_class = (np.array(y) == label) & (counts > 0)
        assert not of_class.any() or (of_class & ~held).any()
        assert held[of_class].sum() <= np.ceil(share * of_class.sum() + 1)
    assert not held[counts == 0].any()


def test_seeds(toy, classifier):
    def output(random_state):
        return classifier(epochs=2, random_state=random_state).fit(toy.X, toy.y).predict_proba(toy.X)

    np.testing.assert_array_equal(output(3), output(np.int64(3)))
    assert not np.array_equal(output(3), output(4))
    np.testing.assert_array_equal(output(np.random.RandomState(5)), output(np.random.RandomState(5)))
    assert not np.array_equal(output(None), output(None))
    shared = np.random.RandomState(5)
    assert not np.array_equal(output(shared), output(shared)), "a generator moves on from fit to fit"


def test_the_global_random_state_is_left_alone(toy, classifier):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    classifier(epochs=1).fit(toy.X, toy.y).predict(toy.X)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_repeated_fits_are_independent(toy, classifier, columns):
    model = classifier()
    first = model.fit(toy.X, toy.y).predict_proba(toy.X)
    model.fit({"image": toy.X["image"]}, np.array(["a", "b", "c"])[np.arange(80) % 3])
    assert (model.modalities_, model.classes_.tolist()) == (("image",), ["a", "b", "c"])
    np.testing.assert_array_equal(model.fit(toy.X, toy.y).predict_proba(toy.X), first)


def test_a_table_after_a_mapping_and_back(toy, classifier, columns):
    model = classifier()
    expected = model.fit(toy.X, toy.y).predict_proba(toy.X)
    assert not hasattr(model, "n_features_in_")
    model.set_params(columns=columns).fit(toy.table, toy.y)
    assert model.n_features_in_ == 5
    np.testing.assert_array_equal(model.predict_proba(toy.table), expected)
    model.set_params(columns=None).fit(toy.X, toy.y)
    assert not hasattr(model, "n_features_in_")
    np.testing.assert_array_equal(model.predict_proba(toy.X), expected)


def test_a_failed_fit_leaves_no_older_model_behind(toy, classifier):
    model = classifier(epochs=1).fit(toy.X, toy.y)
    with pytest.raises(InputError):
        model.fit(toy.X, np.zeros(80))
    assert not hasattr(model, "model_")
    assert not hasattr(model, "classes_")


def test_fitting_leaves_parameters_and_data_as_they_were(toy, classifier):
    model = classifier(settings={"width": 8}, training={"clip": 1.0})
    before = {name: values.copy() for name, values in toy.X.items()}
    model.fit(toy.X, toy.y)
    assert (model.settings, model.training) == ({"width": 8}, {"clip": 1.0})
    for name, values in toy.X.items():
        np.testing.assert_array_equal(values, before[name])


def test_training_settings_reach_the_trainer(toy, classifier):
    plain = classifier(epochs=3).fit(toy.X, toy.y)
    clipped = classifier(epochs=3, training={"clip": 1e-6, "schedule": "cosine"}, optimizer="sgd").fit(toy.X, toy.y)
    assert not np.array_equal(plain.predict_proba(toy.X), clipped.predict_proba(toy.X))


def test_weights_of_zero_count_nothing(toy, classifier):
    wrong = toy.y.copy()
    wrong[::2] = 1 - wrong[::2]
    weight = np.tile([0.0, 1.0], 40)
    model = classifier(epochs=40).fit(toy.X, wrong, sample_weight=weight)
    assert model.score(toy.X, toy.y) > 0.8


def test_class_weights_are_sample_weights(toy, classifier):
    y = np.array(["few", "many"])[(toy.number > -1).astype(int)]

    def output(class_weight=None, sample_weight=None):
        model = classifier(validation=None, class_weight=class_weight).fit(toy.X, y, sample_weight=sample_weight)
        return model.predict_proba(toy.X)

    given = {"few": 3.0, "many": 0.5}
    np.testing.assert_allclose(output(given), output(None, compute_sample_weight(given, y)), atol=1e-6)
    np.testing.assert_allclose(output("balanced"), output(None, compute_sample_weight("balanced", y)), atol=1e-6)
    assert not np.allclose(output("balanced"), output(), atol=1e-3)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_very_small_sets(toy, classifier, regressor, columns, n):
    X = {name: values[:n] for name, values in toy.X.items()}
    assert set(classifier().fit(X, np.arange(n) % 2).predict(X)) <= {0, 1}
    assert np.isfinite(regressor().fit(X, toy.number[:n]).predict(X)).all()
    assert classifier(columns=columns).fit(toy.table[:n], np.arange(n) % 2).predict(toy.table[:1]).shape == (1,)


def test_ctrl_c_leaves_a_usable_estimator_and_warns(toy, classifier, monkeypatch, caplog):
    batches = 0
    objective = Method.objective

    def impatient(self, prediction, batch, step):
        nonlocal batches
        batches += 1
        if batches == 40:
            raise KeyboardInterrupt
        return objective(self, prediction, batch, step)

    monkeypatch.setattr(Method, "objective", impatient)
    with caplog.at_level(logging.WARNING, logger="consilience"):
        model = classifier(epochs=100).fit(toy.X, toy.y)
    assert "interrupted" in caplog.text
    assert 1 <= model.n_iter_ < 20
    assert model.score(toy.X, toy.y) > 0.7
    monkeypatch.undo()
    batches = 0
    monkeypatch.setattr(Method, "objective", impatient)
    with pytest.raises(KeyboardInterrupt):
        classifier(epochs=100, training={"on_interrupt": "raise"}).fit(toy.X, toy.y)


class CountEpochs(Callback):
    def __init__(self):
        self.epochs = 0

    def on_epoch_end(self, run, row):
        self.epochs += 1


def test_callbacks_are_called_and_not_saved(toy, classifier, tmp_path):
    count = CountEpochs()
    model = classifier(epochs=3, callbacks=[count]).fit(toy.X, toy.y)
    assert count.epochs == 3
    assert clone(model).callbacks is not None
    assert load(model.save(tmp_path / "model")).callbacks is None
    with pytest.raises(InputError, match="callback"):
        classifier(callbacks=["progress"]).fit(toy.X, toy.y)


@pytest.mark.parametrize(
    ("name", "value"), [("warmup", 2.0), ("clip", 1.0), ("schedule", "cosine"), ("average", "mean"), ("momentum", 0.5)]
)
def test_a_setting_of_training_is_the_same_as_a_parameter_and_in_training(toy, classifier, name, value):
    optimizer = {"optimizer": "sgd"} if name == "momentum" else {}
    by_name = classifier(**{name: value}, **optimizer).fit(toy.X, toy.y).predict_proba(toy.X)
    by_mapping = classifier(training={name: value}, **optimizer).fit(toy.X, toy.y).predict_proba(toy.X)
    np.testing.assert_array_equal(by_name, by_mapping)
    assert not np.array_equal(by_name, classifier(**optimizer).fit(toy.X, toy.y).predict_proba(toy.X))
