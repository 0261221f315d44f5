"""Held-out outputs of `bayes-robust` and `auto`: from parts that did not learn from a sample."""

import copy
import gc
import math
import pickle
import weakref

import numpy as np
import pytest
import torch

from consilience import FusionClassifier, FusionRegressor
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.reliability import Reliability
from consilience.core.samples import Samples
from consilience.data import load_data
from consilience.evaluation import interval_coverage, set_coverage
from consilience.methods.opinions import bayes_robust
from consilience.methods.opinions.auto import AutoFusion
from consilience.training import Model, Trainer

FOLDS = 3
NAMES = ("bayes-robust", "auto")


def trainer(**settings):
    return Trainer(**{"epochs": 6, "device": "cpu", **settings})


def toy(n, seed=0, missing=0.0):
    """Three classes of which two sensors see different things, and a number."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n)
    shared = random.normal(size=(n, 1))
    X = {
        "good": random.normal(size=(n, 3)) + 1.2 * np.stack([y, -y, 0 * y], axis=1) + shared,
        "bad": random.normal(size=(n, 4)) + 0.6 * y[:, None] + shared,
    }
    present = random.random((n, 2)) >= missing
    present[~present.any(axis=1), 0] = True
    return X, y, present, y + 0.5 * shared[:, 0] + 0.3 * random.normal(size=n)


def samples_of(n, seed=0, missing=0.0, weight=None):
    X, y, present, _ = toy(n, seed, missing)
    return Samples.of(X, y, present=present, weight=weight)


def weighted(n=150):
    weight = np.random.default_rng(1).uniform(0.5, 2, n)
    weight[[3, 70]] = 0
    return weight


def log_loss(output, y):
    return -output.double().log_softmax(dim=1)[torch.arange(len(y)), torch.as_tensor(y)].mean().item()


@pytest.fixture(scope="module")
def robust():
    train = samples_of(150, missing=0.15, weight=weighted())
    return train, Model.fit(
        "bayes-robust", train, settings={"folds": FOLDS}, trainer=trainer(epochs=3), keep_held_out=True
    )


@pytest.fixture(scope="module")
def auto():
    train = samples_of(240)
    return train, Model.fit("auto", train, settings={"folds": FOLDS}, trainer=trainer(epochs=3), keep_held_out=True)


@pytest.fixture(scope="module", params=NAMES)
def each(request):
    return request.getfixturevalue({"bayes-robust": "robust"}.get(request.param, request.param))


def test_outputs_are_those_of_a_model_of_the_other_folds(robust):
    """The method with rule, scores and directions of one fold put in place of its own, asked as for new samples."""
    train, model = robust
    method, held = model.method, model.method._held_out
    random = np.random.default_rng(0)
    rows = np.delete(random.permutation(150), 0)
    present = random.random((len(rows), 2)) < 0.7
    found, weights = (ask(rows, present) for ask in (method.held_out_output, method.held_out_weights))
    fold_of = dict(zip(held.rows, held.fold_of))  # without samples of weight 0
    for fold in range(FOLDS):
        where = np.flatnonzero([fold_of.get(row) == fold for row in rows])
        assert len(where)
        other = copy.deepcopy(method).double()
        others = (held.fold_of != fold).nonzero()[0]
        opinions, y, there, weight = (values[others] for values in held.learned)
        other.rule = BayesRule(2, 3).double().fit(opinions, y, there, weight=weight)
        for m, expert in enumerate(other.experts.each):
            expert.load_state_dict(held.experts[m][fold].state_dict())
        for score, own in zip(other.reliability.scores, method.reliability._fold_scores[fold]):
            score.learn(**dict(own.named_buffers()))
        left, right = method.reliability.pairs._fold_directions[fold, 0]
        other.reliability.pairs.learn(left0=left, right0=right)
        part = train.select(rows[where])
        batch = model.preparation.batch(part.replaced({}, present=part.present & present[where]), dtype=torch.float64)
        with torch.no_grad():
            expected = other.eval()(batch)
        torch.testing.assert_close(found[where], expected.output, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(weights[where], expected.weights, rtol=1e-4, atol=1e-4)


def test_samples_of_weight_0_have_neither_output_nor_weights(robust):
    _, model = robust
    rows, present = np.array([3, 4, 70]), np.ones((3, 2), dtype=bool)
    found = model.method.held_out_output(rows, present)
    assert (found[[0, 2]] == 0).all()
    assert (found[1] != 0).all()
    assert model.method.held_out_variance(rows, present) is None


def test_hiding_a_modality_that_is_missing_changes_nothing(robust):
    train, model = robust
    rows = np.arange(150)
    everything = model.method.held_out_output(rows, np.ones((150, 2), dtype=bool))
    torch.testing.assert_close(model.method.held_out_output(rows, train.present), everything, rtol=0, atol=0)


def test_samples_that_reliability_did_not_learn_from_have_outputs_too(monkeypatch):
    monkeypatch.setattr(bayes_robust, "_ROWS", 80)
    train = samples_of(200)
    learned = []
    fit = Reliability.fit
    monkeypatch.setattr(
        Reliability, "fit", lambda self, views, y, *a, **k: learned.append(y) or fit(self, views, y, *a, **k)
    )
    model = Model.fit("bayes-robust", train, settings={"faults": []}, trainer=trainer(epochs=15), keep_held_out=True)
    assert len(learned[0]) == 80
    found = model.method.held_out_output(np.arange(200), train.present)
    assert (found != 0).any(dim=1).all()
    assert len(model.method._held_out.measured.scores[0]) == 200
    test = samples_of(1000, seed=1)
    assert log_loss(found, train.y) == pytest.approx(
        log_loss(model.predict(test, device="cpu").output, test.y), abs=0.1
    )


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_those_of_new_samples_and_not_of_training(name):
    digits = load_data("digits")
    train = digits.train.select(np.arange(500))
    model = Model.fit(name, train, settings={"folds": FOLDS}, trainer=trainer(epochs=12), keep_held_out=True)
    truth, new = (model.task.encode(part.y) for part in (train, digits.test))
    held_out = log_loss(model.method.held_out_output(np.arange(500), train.present), truth)
    learned = log_loss(model.predict(train, device="cpu").output, truth)
    fresh = log_loss(model.predict(digits.test, device="cpu").output, new)
    assert held_out > 2 * learned
    assert abs(np.log(held_out / fresh)) < np.log(1.6) < abs(np.log(learned / fresh))


def test_the_network_over_all_modalities_is_that_of_the_fold(auto):
    train, model = auto
    method = model.method
    method.pool.learn(weights=torch.tensor([[0.0, 1.0], [0.0, 1.0]]))  # the network alone decides, if all are sound
    rows, present = np.arange(240), np.tile([True, False], (240, 1))
    fused = torch.zeros(240, 3).double()
    fewer = train.replaced({}, present=present)
    assert isinstance(method, AutoFusion)
    for fold in range(FOLDS):
        own = method._held_out.fold_of == fold
        found = method._held_out_if_sound(fused[own], fold, method._held_out, rows[own], present[own])
        batch = model.preparation.batch(fewer.select(rows[own]))
        with torch.no_grad():
            expected = method._fitted.methods[fold](batch).output.double().log_softmax(dim=1)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert (found - method.network(batch).output.double().log_softmax(dim=1)).abs().max() > 1e-3


def held_by(module):
    """Names of what is kept of cross-fitting in a method, its reliability or its pairs."""
    places = {
        "_held_out": module,
        "_fitted": module,
        "_fold_scores": module.reliability,
        "_fold_directions": module.reliability.pairs,
    }
    return {name for name, place in places.items() if getattr(place, name, None)}


def test_nothing_is_saved_pickled_or_left_after_forgetting(each):
    train, model = each
    method = model.method
    expected = {"_held_out", "_fold_scores", "_fold_directions"} | (
        {"_fitted"} if hasattr(method, "_fitted") else set()
    )
    assert held_by(method) == expected
    other = pickle.loads(pickle.dumps(method))
    assert not held_by(other)
    assert other.held_out_output(np.arange(len(train)), train.present) is None
    plain = Model.fit(model.name, train, settings={"folds": FOLDS}, trainer=trainer(epochs=1)).method
    assert not held_by(plain)
    assert plain.state_dict().keys() == method.state_dict().keys() == other.state_dict().keys()


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_frees_the_folds(name):
    train = samples_of(120)
    method = Model.fit(name, train, settings={"folds": 2}, trainer=trainer(epochs=1), keep_held_out=True).method
    asked = np.arange(120), train.present
    before = method.held_out_output(*asked)
    assert before.shape == (120, 3)
    alive = weakref.ref(method._held_out), weakref.ref(method.reliability._fold_scores[0][0])
    method.forget_held_out()
    gc.collect()
    assert [each() for each in alive] == [None, None]
    assert not held_by(method)
    assert method.held_out_output(*asked) is method.held_out_weights(*asked) is None


@pytest.mark.parametrize("name", NAMES)
def test_sets_cover_without_validation_samples(name):
    digits = load_data("digits")
    model = FusionClassifier(
        name, settings={"folds": FOLDS}, validation=None, epochs=10, device="cpu", random_state=0
    ).fit(digits.train)
    assert model.calibration_.source == "cross-fitting"
    assert len(model.calibration_) == len(digits.train)
    assert not held_by(model.model_.method)

    def coverage(lost=None, **given):
        present = {name: np.full(len(digits.test), name != lost) for name in digits.test.names}
        sets = model.predict_set(digits.test, 0.9, present=present, **given)
        return set_coverage(digits.test.y, sets, classes=model.classes_)

    # Three standard deviations of a share of .9 among these test samples, and of its threshold among those of training.
    by_chance = 3 * math.sqrt(0.9 * 0.1 * (1 / len(digits.test) + 1 / len(digits.train)))
    assert abs(coverage() - 0.9) < by_chance
    assert abs(coverage(weigh_reliability=True) - 0.9) < by_chance
    assert abs(np.mean([coverage(lost) for lost in digits.test.names]) - 0.9) < by_chance


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("score", ["absolute", "normalised"])
def test_intervals_cover_without_validation_samples(name, score):
    (X, _, present, y), (new, _, _, truth) = toy(400, missing=0.1), toy(2000, seed=1)
    weight = np.ones(400)
    weight[:20] = 0
    model = FusionRegressor(name, settings={"folds": FOLDS}, validation=None, epochs=10, device="cpu", random_state=0)
    model.fit(X, y, present=present, sample_weight=weight)
    assert model.calibration_.source == "cross-fitting"
    assert len(model.calibration_) == 380
    for there in ({}, {"present": np.tile([True, False], (2000, 1))}):
        assert abs(interval_coverage(truth, model.predict_interval(new, 0.8, score, **there)) - 0.8) < 0.06


def test_numbers_have_variances_and_those_of_weight_0_a_variance_of_1():
    X, _, present, y = toy(150)
    train = Samples.of(X, y, present=present, weight=weighted())
    model = Model.fit("bayes-robust", train, task="regression", trainer=trainer(epochs=8), keep_held_out=True)
    asked = np.arange(150), train.present
    numbers, variances = model.method.held_out_output(*asked), model.method.held_out_variance(*asked)
    assert numbers.shape == variances.shape == (150, 1)
    assert (variances[[3, 70]] == 1).all()
    assert (numbers[[3, 70]] == 0).all()
    kept = np.delete(np.arange(150), [3, 70])
    squares = np.square(model.task.encode(y)[kept] - numbers.numpy()[kept]) / variances.numpy()[kept]
    assert 0.6 < squares.mean() < 1.6
