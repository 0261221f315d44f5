"""`boosted` against scikit-learn's gradient boosting, with NaN for what is missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from consilience.core.samples import Samples
from consilience.methods.opinions.tree_ensembles import TreeEnsemble, send_missing
from consilience.training import Model, Trainer, load_model

torch = pytest.importorskip("torch")
SMALL = {"trees": 10, "leaf": 5}


def samples_of(n=200, classes=3, missing=0.3, seed=0):
    rng = np.random.default_rng(seed)
    values = {"a": rng.normal(5, 3, size=(n, 3)).astype(np.float32), "b": rng.normal(size=(n, 2)).astype(np.float32)}
    present = rng.random((n, 2)) >= missing
    # What is missing tells something: NaN must be split off.
    score = values["a"][:, 0] - 5 + 2 * values["b"][:, 1] + 3 * present[:, 1] + rng.normal(size=n)
    y = score.argsort().argsort() * classes // n if classes else np.stack([score, -score], axis=1)
    return Samples.of(values, y, present=present)


def columns(samples, train):
    parts = []
    for name in samples.names:
        known = train[name][train.present_in(name)].astype(np.float64)
        z = ((samples[name] - known.mean(axis=0)) / known.std(axis=0)).astype(np.float32)
        parts.append(np.where(samples.present_in(name)[:, None], z, np.nan))
    return np.concatenate(parts, axis=1)


def fit(samples, task="classification", seed=0, **kwargs):
    trainer = Trainer(device="cpu", seed=seed)
    return Model.fit("boosted", samples, None, settings=SMALL, task=task, trainer=trainer, **kwargs)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_scikit_learns_gradient_boosting_on_all_columns(classes):
    train, test = samples_of(classes=classes), samples_of(150, classes=classes, seed=1)
    model = fit(train)
    oracle = HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5, early_stopping=False, random_state=0)
    oracle.fit(columns(train, train), train.y)
    p = model.predict(test, device="cpu").output.double().exp().numpy()
    expected = oracle.predict_proba(columns(test, train))
    shares = (np.bincount(train.y) + 1 / classes) / (len(train) + 1)
    mixed = 1 / (len(train) + 1)
    np.testing.assert_allclose(p, (1 - mixed) * expected + mixed * shares, atol=2e-4)


def test_of_numbers_it_is_one_ensemble_for_each_target():
    train, test = samples_of(classes=0), samples_of(150, classes=0, seed=1)
    model = fit(train, "regression")
    # The standardised numbers of the model, as rounding decides between splits that are equally good.
    y = model.task.encode(train.y).astype(np.float32)
    np.testing.assert_allclose(y, (train.y - train.y.mean(axis=0)) / train.y.std(axis=0), atol=1e-5)
    output = model.predict(test, device="cpu").output.numpy()
    for target in (0, 1):
        oracle = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5, early_stopping=False, random_state=0)
        oracle.fit(columns(train, train), y[:, target], sample_weight=np.ones(len(y)))
        expected = oracle.predict(columns(test, train))
        np.testing.assert_allclose(output[:, target], expected, atol=1e-5)


@given(seed=st.integers(0, 10**6), missing=st.sampled_from([0.0, 0.1, 0.6]), classes=st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_trees_send_missing_values_where_scikit_learn_does(seed, missing, classes):
    random = np.random.default_rng(seed)
    x = random.normal(size=(150, 3)).astype(np.float32)
    y = ((x[:, 0] > 0) * 2 + (x[:, 1] > 0)) % classes
    y[:classes] = range(classes)
    x[random.random(x.shape) < missing] = np.nan
    y[np.isnan(x[:, 2])] = 0  # whether it is missing tells the class
    model = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3, random_state=seed % 1000).fit(x, y)
    trees = TreeEnsemble(6, classes).read(model, missing=True)
    for rows in (x, np.where(random.random(x.shape) < 0.5, np.nan, x)):
        scores = model.decision_function(rows)
        found = trees(send_missing(torch.from_numpy(rows.astype(np.float32)))).numpy()
        np.testing.assert_allclose(found, scores.reshape(len(rows), -1), atol=1e-5)


def test_a_saved_model_answers_the_same_also_where_modalities_are_missing(tmp_path):
    train, test = samples_of(), samples_of(50, seed=1)
    model = fit(train)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(again.predict(test, device="cpu").output, model.predict(test, device="cpu").output)
    assert not [file for file in (tmp_path / "model").rglob("*") if file.suffix in (".pkl", ".joblib", ".skops")]


def test_a_class_whose_samples_do_not_count_has_a_probability():
    samples = samples_of()
    model = fit(Samples.of(samples, weight=(samples.y != 1).astype(float)))
    p = model.predict(samples, device="cpu").output.exp()
    assert p.sum(dim=1).numpy() == pytest.approx(1)
    assert 0 < p[:, 1].max() < 0.01
