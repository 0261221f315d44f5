"""`linear` against scikit-learn on the same columns."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, cross_val_score

from consilience.core.samples import Samples
from consilience.methods.baselines.linear import ALPHAS, ridge_path
from consilience.methods.opinions.linear_expert import STRENGTHS
from consilience.training import Model, Trainer


def samples_of(n=240, task="classification", missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    values = {"a": rng.normal(5, 3, size=(n, 3)), "b": rng.normal(size=(n, 2))}
    score = values["a"][:, 0] - 5 + 2 * values["b"][:, 1] + rng.normal(size=n)
    y = np.digitize(score, [-2, 2]) if task == "classification" else np.stack([score, 100 * values["b"][:, 0]], axis=1)
    present = rng.random((n, 2)) >= missing
    return Samples.of(values, y, present=present)


def fit(samples, task="classification", **training):
    return Model.fit("linear", samples, None, task=task, trainer=Trainer(device="cpu", **training))


def columns(samples, train):
    """Standardised columns with 0 for what is missing, and the indicators of what is."""
    parts = []
    for name in samples.names:
        there = train.present_in(name)
        known = train[name][there]
        z = (samples[name] - known.mean(axis=0)) / known.std(axis=0)
        parts.append(np.where(samples.present_in(name)[:, None], z, 0))
    return np.concatenate([*parts, ~samples.present], axis=1)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_it_is_scikit_learns_logistic_regression_on_all_columns(missing):
    train, test = samples_of(missing=missing), samples_of(80, missing=missing, seed=1)
    model = fit(train)
    strength = model.method.strength
    x = columns(train, train)
    oracle = LogisticRegression(C=strength, max_iter=2000, tol=1e-8).fit(x, train.y)
    output = model.predict(test, device="cpu").output.double().softmax(dim=1).numpy()
    np.testing.assert_allclose(output, oracle.predict_proba(columns(test, train)), atol=2e-3)
    scores = [
        cross_val_score(LogisticRegression(C=C, max_iter=2000), x, train.y, cv=5, scoring="neg_log_loss").mean()
        for C in STRENGTHS
    ]
    assert strength == STRENGTHS[int(np.argmax(scores))]


def test_of_numbers_it_is_scikit_learns_ridge_regression():
    train, test = samples_of(task="regression"), samples_of(80, task="regression", seed=1)
    model = fit(train, "regression")
    assert model.method.strength in ALPHAS
    y = (train.y - train.y.mean(axis=0)) / train.y.std(axis=0)
    oracle = Ridge(alpha=model.method.strength).fit(columns(train, train), y)
    output = model.predict(test, device="cpu").output.numpy()
    np.testing.assert_allclose(output, oracle.predict(columns(test, train)), atol=1e-4)


def test_a_strong_penalty_wins_where_there_is_nothing_to_learn():
    samples = samples_of(60)
    noise = Samples.of({name: samples[name] for name in samples.names}, np.random.default_rng(5).integers(0, 2, 60))
    assert fit(noise).method.strength == STRENGTHS[0]
    assert fit(samples_of()).method.strength > STRENGTHS[0]


def test_weights_count():
    samples = samples_of()
    weight = (np.arange(len(samples)) < 120).astype(float)
    some, half = fit(Samples.of(samples, weight=weight)), fit(samples[:120])
    # The folds are drawn over all samples, also those of weight 0, so only the strength may differ.
    if some.method.strength == half.method.strength:
        same = columns(samples, samples)
        assert same.shape[1] == some.method.head.weight.shape[1]
    balanced = Model.fit("linear", samples, None, trainer=Trainer(device="cpu"), class_weight={0: 20.0})
    shares = balanced.predict(samples, device="cpu").output.softmax(dim=1).mean(dim=0)
    assert shares[0] > fit(samples).predict(samples, device="cpu").output.softmax(dim=1).mean(dim=0)[0] + 0.1


def test_samples_that_do_not_count_and_few_that_do():
    samples = samples_of()
    only_one_class = Samples.of(samples, weight=(samples.y == 1).astype(float))
    few = samples[np.unique(samples.y, return_index=True)[1]]
    for train in (only_one_class, few):
        output = fit(train).predict(samples, device="cpu").output
        assert torch.isfinite(output).all()
        assert train is few or (output.argmax(dim=1) == 1).all()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_with_fewer_groups_than_folds_each_group_is_a_fold(task):
    samples = samples_of(120, task=task)
    group = np.arange(120) % 3
    with pytest.warns(UserWarning, match="in 3 folds instead of 5: the training samples have 3 groups"):
        method = fit(Samples.of(samples, group=group), task).method
    x, y = columns(samples, samples), samples.y
    if task == "classification":
        models = [LogisticRegression(C=C, max_iter=2000) for C in STRENGTHS]
        scores = [
            cross_val_score(model, x, y, cv=GroupKFold(3), groups=group, scoring="neg_log_loss") for model in models
        ]
        assert method.strength == STRENGTHS[int(np.argmax(np.mean(scores, axis=1)))]
    else:
        y = (y - y.mean(axis=0)) / y.std(axis=0)
        models = [Ridge(alpha=alpha) for alpha in ALPHAS]
        scores = [cross_val_score(model, x, y, cv=GroupKFold(3), groups=group, scoring="r2") for model in models]
        assert method.strength == ALPHAS[int(np.argmax(np.mean(scores, axis=1)))]


def test_a_ridge_regression_of_nothing_is_zero():
    [(weights, bias)] = ridge_path(np.zeros((0, 3)), np.zeros((0, 2)), np.zeros(0), 1)
    assert weights.shape == (2, 3)
    assert not weights.any()
    assert not bias.any()
