"""A saved estimator is the same estimator: what it predicts, how it reads a table, how it would be fitted again."""

import json

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import consilience
from consilience import FusionClassifier, FusionRegressor, load
from consilience.core.errors import InputError, SavedModelError
from consilience.training import Model, Trainer


def same(model, again, X):
    """Whether two estimators are alike in everything a user sees."""
    assert type(again) is type(model)
    for ask in ("predict", "predict_proba", "trust"):
        assert hasattr(model, ask) == hasattr(again, ask)
        if hasattr(model, ask):
            np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
    for learned in ("classes_", "n_features_in_", "feature_names_in_", "modalities_", "gives_weights_"):
        assert hasattr(model, learned) == hasattr(again, learned), learned
        if hasattr(model, learned):
            np.testing.assert_array_equal(getattr(again, learned), getattr(model, learned))
    assert again.n_iter_ == model.n_iter_
    return True


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 7], [False, True]], ids=["str", "int", "bool"])
@pytest.mark.parametrize("method", ["concat", "late", "best-unimodal"])
def test_a_classifier(toy, classifier, tmp_path, method, labels):
    model = classifier(method, epochs=2).fit(toy.X, np.array(labels)[toy.y])
    again = load(model.save(tmp_path / "model"))
    assert same(model, again, toy.X)
    assert again.get_params() == model.get_params()
    assert again.predict(toy.X).dtype == model.predict(toy.X).dtype


def test_a_regressor_of_several_targets(toy, regressor, tmp_path):
    model = regressor("late", epochs=2).fit(toy.X, np.c_[toy.number, 100 * toy.number + 7])
    assert same(model, load(model.save(tmp_path / "model")), toy.X)


@pytest.mark.parametrize(
    "columns",
    [
        {"image": slice(0, 3), "audio": slice(-2, None, 1)},
        {"image": range(3), "audio": np.array([3, 4])},
        {"image": "mfcc_*", "audio": ("pitch", "loudness")},
        {"image": np.array([True] * 3 + [False] * 2), "audio": [3, 4]},
    ],
    ids=["slices", "positions", "globs and names", "mask"],
)
def test_a_model_of_a_table(toy, classifier, tmp_path, columns):
    table = pandas.DataFrame(toy.table, columns=["mfcc_0", "mfcc_1", "mfcc_2", "pitch", "loudness"])
    model = classifier(columns=columns, epochs=2).fit(table, toy.y)
    again = load(model.save(tmp_path / "model"))
    assert same(model, again, table)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table.rename(columns={"pitch": "height"}))
    np.testing.assert_array_equal(clone(again).fit(table, toy.y).predict_proba(table), model.predict_proba(table))


def test_parameters_come_back_as_they_were(toy, classifier, tmp_path):
    given = {
        "settings": {"width": 8, "dropout": 0.0},
        "encoders": {"image": {"name": "mlp", "hidden": [8]}, "audio": "mlp"},
        "kinds": {"image": "vector"},
        "training": {"clip": 1.0, "schedule": "cosine"},
        "class_weight": {0: 2.0, 1: np.float64(0.5)},
        "random_state": np.int64(4),
        "patience": None,
        "lr": 0.005,
    }
    model = classifier(epochs=2, **given).fit(toy.X, toy.y)
    again = load(model.save(tmp_path / "model"))
    assert same(model, again, toy.X)
    assert again.get_params(deep=False) == model.get_params(deep=False)
    np.testing.assert_array_equal(clone(again).fit(toy.X, toy.y).predict_proba(toy.X), model.predict_proba(toy.X))


def test_what_is_no_plain_value_is_left_out(toy, classifier, tmp_path):
    model = classifier(epochs=2, validation=(toy.X, toy.y), random_state=np.random.RandomState(1)).fit(toy.X, toy.y)
    again = load(model.save(tmp_path / "model"))
    assert same(model, again, toy.X)
    assert (again.validation, again.random_state) == (None, None)
    assert isinstance(model.validation, tuple), "the estimator itself keeps them"


def test_encoders_of_ones_own_are_passed_again(toy, classifier, tmp_path):
    encoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU())
    model = classifier(epochs=2, encoders={"image": encoder}).fit(toy.X, toy.y)
    path = model.save(tmp_path / "model")
    with pytest.raises(SavedModelError, match="encoders of your own for 'image'"):
        load(path)
    with pytest.raises(SavedModelError, match="do not fit"):
        load(path, encoders={"image": nn.Sequential(nn.Linear(3, 9), nn.ReLU())})
    again = load(path, encoders={"image": nn.Sequential(nn.Linear(3, 8), nn.ReLU())})
    assert same(model, again, toy.X)
    assert set(again.encoders) == {"image"}


def test_saving_replaces_an_older_model_whole(toy, classifier, tmp_path):
    path = classifier(epochs=1).fit(toy.X, toy.y).save(tmp_path / "model")
    model = classifier("late", epochs=1).fit(toy.X, toy.y)
    assert model.save(path) == path
    assert load(path).method == "late"


def test_settings_that_cannot_be_written_are_refused_and_nothing_is_lost(toy, classifier, tmp_path):
    path = tmp_path / "model"
    kept = classifier(epochs=1).fit(toy.X, toy.y)
    kept.save(path)
    model = classifier("early", epochs=1, settings={"encoder": nn.Linear(5, 4)}).fit(toy.X, toy.y)
    with pytest.raises(InputError, match="cannot be written as JSON"):
        model.save(path)
    assert same(kept, load(path), toy.X)


def test_an_unfitted_estimator_has_nothing_to_save(tmp_path):
    with pytest.raises(NotFittedError):
        FusionClassifier().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of a saved model, to break in a copy."""
    a = np.random.default_rng(0).normal(size=(20, 2))
    model = FusionRegressor(epochs=1, device="cpu").fit({"a": a}, a[:, 0])
    path = model.save(tmp_path_factory.mktemp("saved") / "model")
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights.safetensors", lambda old: old[:-10], "truncated or was changed"),
        ("weights.safetensors", lambda old: old[:-1] + bytes([old[-1] ^ 1]), "truncated or was changed"),
        ("weights.safetensors", None, "weights.safetensors is missing"),
        ("model.json", lambda old: old[: len(old) // 2], "damaged"),
        ("model.json", lambda old: old.replace(b'"epochs": 1', b'"epochs": 2'), "changed after saving"),
        ("model.json", lambda old: b"{}", "not a model saved by consilience"),
        ("model.json", lambda old: b"\x80\x04pickle", "damaged"),
        ("model.json", None, "not a model saved by consilience"),
    ],
    ids=["truncated", "bit flipped", "no weights", "half", "tampered", "foreign", "binary", "no description"],
)
def test_broken_folders(saved, tmp_path, name, change, message):
    for file, content in saved.items():
        (tmp_path / file).write_bytes(content)
    if change is None:
        (tmp_path / name).unlink()
    else:
        changed = change(saved[name])
        assert changed != saved[name]
        (tmp_path / name).write_bytes(changed)
    with pytest.raises(SavedModelError, match=message):
        load(tmp_path)


def test_no_folder_at_all(tmp_path):
    with pytest.raises(SavedModelError, match="no saved model at"):
        load(tmp_path / "nowhere")


def test_a_model_without_an_estimator(toy, tmp_path):
    trainer = Trainer(epochs=1, device="cpu")
    path = Model.fit("concat", toy.samples(), trainer=trainer).save(tmp_path / "model")
    with pytest.raises(SavedModelError, match="holds a model but no estimator"):
        consilience.load(path)


@pytest.mark.parametrize("part", ["parameters", "learned"])
def test_an_estimator_that_another_version_described(toy, tmp_path, part):
    trainer = Trainer(epochs=1, device="cpu")
    extra = {"estimator": "FusionClassifier", "parameters": {"columns": None, "speed": 9}, "learned": {}}
    del extra["learned" if part == "learned" else "parameters"]
    path = Model.fit("concat", toy.samples(), trainer=trainer).save(tmp_path / "model", extra)
    assert json.loads((path / "model.json").read_text())["extra"] == extra
    with pytest.raises(SavedModelError, match="cannot be rebuilt as it was saved"):
        load(path)
