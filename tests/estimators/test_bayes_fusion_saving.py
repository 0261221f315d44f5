"""A saved `BayesFusion` says the same to the last bit, and a folder that is not one, or not whole, is refused."""

import io
import json
import sys
import zipfile

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

import consilience as cs
from consilience.cli.main import main
from consilience.core.errors import InputError, SavedModelError
from consilience.estimators.saving import pack_experts, unpack_experts
from consilience.training import load_model
from consilience.training import model_folder as saving
from consilience.training.model_folder import CARD, DESCRIPTION, EXPERTS, WEIGHTS


def make(n=120, seed=0):
    """Two modalities, of which a class's mean is its number; labels as text."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return {name: y[:, None] + rng.normal(size=(n, 3)) for name in ("image", "audio")}, np.array(["b", "a", "ç"])[y]


X, Y = make()
TEST, _ = make(40, seed=1)


def same(model, again, given=TEST):
    """Whether both say the same to the last bit, also of samples that lack something."""
    present = np.random.default_rng(0).random((len(next(iter(given.values()))), 2)) < 0.6
    for mask in (None, present):
        for ask in ("predict", "predict_log_proba", "trust"):
            np.testing.assert_array_equal(getattr(again, ask)(given, mask), getattr(model, ask)(given, mask))
    assert again.classes_.dtype == model.classes_.dtype
    assert again.modalities_ == model.modalities_
    return True


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kappa": "none", "calibration": None},
        {"kappa": "copula"},
        {"calibration": "bias"},
        {"calibration": "robust", "prior": np.array([0.25, 0.25, 0.5])},
        {"reliability": "auto"},
        {"reliability": "graded"},
        {"target_prior": "em"},
        {"target_prior": [0.1, 0.2, 0.7], "classes": ["b", "a", "ç"], "from_probabilities": True},
    ],
    ids=lambda given: "-".join(given) or "default",
)
def test_on_opinions_a_round_trip_changes_no_bit(settings, tmp_path):
    given = TEST
    fitting = X
    if settings.get("from_probabilities"):
        fitting, given = (
            {name: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) for name, z in some.items()} for some in (X, TEST)
        )
    model = cs.BayesFusion(**settings).fit(fitting, Y)
    path = model.save(tmp_path / "model")
    again = cs.load(path)
    assert isinstance(again, cs.BayesFusion)
    assert same(model, again, given)
    assert sorted(file.name for file in path.iterdir()) == [CARD, DESCRIPTION, WEIGHTS]
    np.testing.assert_equal(again.get_params(), model.get_params())
    np.testing.assert_array_equal(clone(again).fit(fitting, Y).predict(given), model.predict(given))


@pytest.mark.parametrize(
    "labels", [np.array([7, 3, 5]), np.array([0, 1, 2], dtype=np.int8), np.array([b"x", b"y", b"z"])]
)
def test_labels_keep_their_type(labels, tmp_path):
    model = cs.BayesFusion().fit(X, labels[np.unique(Y, return_inverse=True)[1]])
    assert same(model, cs.load(model.save(tmp_path / "model")))


def test_the_names_of_columns_are_kept(tmp_path):
    names = ["a", "ç", "b"]
    tables = {name: pandas.DataFrame(z, columns=names) for name, z in X.items()}
    model = cs.BayesFusion().fit(tables, Y)
    again = cs.load(model.save(tmp_path / "model"))
    assert again.columns_ == model.columns_ == tuple(names)
    assert same(model, again)


def test_settings_changed_after_fitting_are_kept_apart_from_what_was_learned(tmp_path):
    model = cs.BayesFusion().fit(X, Y).set_params(kappa="none", target_prior="em")
    again = cs.load(model.save(tmp_path / "model"))
    assert same(model, again)
    assert (again.kappa, again.rule_.kappa) == ("none", "gaussian")


EXPERT_SETS = {
    "one for all": LogisticRegression(),
    "trees and neighbours": {
        "image": RandomForestClassifier(n_estimators=5, random_state=0),
        "audio": KNeighborsClassifier(),
    },
    "pipelines": {
        "image": make_pipeline(FunctionTransformer(np.abs), StandardScaler(), GaussianNB()),
        "audio": LinearSVC(),
    },
}


@pytest.mark.parametrize("experts", EXPERT_SETS.values(), ids=EXPERT_SETS)
def test_with_experts_a_round_trip_changes_no_bit(experts, tmp_path):
    model = cs.BayesFusion(experts=experts, reliability="auto", folds=2).fit(X, Y)
    path = model.save(tmp_path / "model")
    again = cs.load(path)
    assert same(model, again)
    assert sorted(file.name for file in path.iterdir()) == [CARD, EXPERTS, DESCRIPTION, WEIGHTS]
    assert str(again.get_params()) == str(model.get_params())
    np.testing.assert_array_equal(clone(again).fit(X, Y).predict_proba(TEST), model.predict_proba(TEST))


def test_experts_of_text(tmp_path):
    texts = np.array([f"{word} today" for word in Y])
    experts = {
        "image": LogisticRegression(),
        "remark": make_pipeline(CountVectorizer(token_pattern=r"\w"), MultinomialNB()),
    }
    model = cs.BayesFusion(experts=experts, folds=2).fit({"image": X["image"], "remark": texts}, Y)
    again = cs.load(model.save(tmp_path / "model"))
    assert same(model, again, {"image": X["image"], "remark": texts})


def test_saving_replaces_a_model_of_another_sort_whole(tmp_path):
    path = tmp_path / "model"
    cs.BayesFusion(experts=GaussianNB(), folds=2).fit(X, Y).save(path)
    plain = cs.BayesFusion().fit(X, Y)
    plain.save(path)
    assert same(plain, cs.load(path))
    assert not (path / EXPERTS).exists()


def test_an_unfitted_fusion_has_nothing_to_save(tmp_path):
    with pytest.raises(NotFittedError):
        cs.BayesFusion().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Custom(GaussianNB):
    """An expert that scikit-learn does not define."""


def test_types_of_others_are_refused_by_name_until_they_are_trusted(tmp_path, monkeypatch):
    model = cs.BayesFusion(experts={"image": Custom(), "audio": GaussianNB()}, folds=2).fit(X, Y)
    path = model.save(tmp_path / "model")
    name = f"{Custom.__module__}.Custom"
    with pytest.raises(SavedModelError, match=rf"does not define: {name}\..*load\(path, trusted=\['{name}'\]\)"):
        cs.load(path)
    with pytest.raises(SavedModelError, match="does not define"):
        cs.load(path, trusted=name + "Other")
    for trusted in ([name], name):
        assert same(model, cs.load(path, trusted=trusted))
    monkeypatch.delattr(sys.modules[Custom.__module__], "Custom")
    with pytest.raises(SavedModelError, match="cannot be rebuilt as they were saved"):
        cs.load(path, trusted=[name])


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    nameless = make_pipeline(FunctionTransformer(lambda values: values), GaussianNB())
    model = cs.BayesFusion(experts=nameless, folds=2).fit(X, Y)
    with pytest.raises(InputError, match=r"an expert cannot be written without its code.*lambda"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_type_that_scikit_learn_only_passes_on_is_not_trusted(tmp_path):
    packed = pack_experts(GaussianNB())
    source = zipfile.ZipFile(io.BytesIO(packed))
    schema = json.loads(source.read("schema.json"))
    schema["__module__"], schema["__class__"] = "sklearn.base", "defaultdict"
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            target.writestr(name, json.dumps(schema) if name == "schema.json" else source.read(name))
    with pytest.raises(SavedModelError, match=r"does not define: sklearn\.base\.defaultdict"):
        unpack_experts(changed.getvalue(), tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of a saved fusion, to break in a copy."""
    path = cs.BayesFusion(experts=GaussianNB(), folds=2).fit(X, Y).save(tmp_path_factory.mktemp("saved") / "model")
    return {file.name: file.read_bytes() for file in path.iterdir()}


def flip(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (WEIGHTS, lambda old: old[:-8], r"weights.safetensors is truncated or was changed"),
        (WEIGHTS, None, "weights.safetensors is missing"),
        (EXPERTS, flip, r"experts.skops is truncated or was changed"),
        (EXPERTS, None, "experts.skops is missing"),
        (DESCRIPTION, lambda old: old[: len(old) // 2], "damaged"),
        (DESCRIPTION, lambda old: old.replace(b'"folds": 2', b'"folds": 3'), "changed after saving"),
        (DESCRIPTION, lambda old: b"{}", "not a model saved by consilience"),
        (DESCRIPTION, None, "not a model saved by consilience"),
    ],
)
def test_broken_folders(saved, tmp_path, name, change, message):
    write(saved, tmp_path)
    if change is None:
        (tmp_path / name).unlink()
    else:
        assert change(saved[name]) != saved[name]
        (tmp_path / name).write_bytes(change(saved[name]))
    with pytest.raises(SavedModelError, match=message):
        cs.load(tmp_path)


def write(files, folder):
    for file, content in files.items():
        (folder / file).write_bytes(content)


def edit(folder, **changes):
    """Change the description as someone would who knows the format."""
    described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8")) | changes
    described = {name: value for name, value in described.items() if value is not ...}
    described["checksum"] = saving._seal(described)
    (folder / DESCRIPTION).write_text(json.dumps(described), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"task": ...},
        {"task": {"kind": "classification"}},
        {"modalities": ["image"]},
        {"rule": {"kappa": "cubic"}},
        {"rule": {"kappa": "none", "calibration": None}},
        {"parameters": {"speed": 9}},
        {"classes_named": ...},
        {"columns": ...},
    ],
)
def test_a_description_of_another_version(saved, tmp_path, changes):
    write(saved, tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(SavedModelError, match="cannot be rebuilt as it was saved"):
        cs.load(tmp_path)


def test_a_newer_format_warns_and_is_tried(saved, tmp_path):
    write(saved, tmp_path)
    edit(tmp_path, format=saving.FORMAT + 1, version="99.0")
    with pytest.warns(UserWarning, match=r"saved by consilience 99\.0 in a newer format"):
        assert cs.load(tmp_path).classes_.tolist() == ["a", "b", "ç"]


def test_it_is_not_taken_for_something_else(saved, tmp_path, capsys):
    write(saved, tmp_path)
    with pytest.raises(InputError, match="has no encoders"):
        cs.load(tmp_path, encoders={"image": "mlp"})
    with pytest.raises(SavedModelError, match="holds a BayesFusion, not a trained method"):
        load_model(tmp_path)
    assert main(["predict", str(tmp_path), "new.csv"]) == 2
    assert "is a BayesFusion" in capsys.readouterr().err
