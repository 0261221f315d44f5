"""Remark 2: linear experts fused are one linear classifier, and a logistic regression may start from it."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from consilience.bayes.fuse import fuse
from consilience.bayes.linear_experts import concatenate_classifiers
from consilience.core.errors import InputError
from consilience.data import load_data


def draw(seed=0, classes=5, widths=(3, 1, 7), rows=50):
    rng = np.random.default_rng(seed)
    weights, biases = [rng.normal(size=(classes, d)) for d in widths], [rng.normal(size=classes) for _ in widths]
    features = [rng.normal(size=(rows, d)) for d in widths]
    logits = np.stack([v @ w.T + b for v, w, b in zip(features, weights, biases)], axis=1)
    return weights, biases, np.concatenate(features, axis=1), logits, rng


@pytest.mark.parametrize("seed", range(5))
def test_the_concatenated_classifier_is_the_fusion(seed):
    weights, biases, features, logits, rng = draw(seed)
    prior, target, each = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), size=3)
    for named in ({}, {"prior": prior}, {"prior": prior, "target_prior": target}, {"prior": each}):
        W, b = concatenate_classifiers(weights, biases, **named)
        assert (W.shape, b.shape) == ((5, 11), (5,))
        np.testing.assert_allclose(log_softmax(features @ W.T + b, axis=1), fuse(logits, **named), atol=1e-12)
    W, b = concatenate_classifiers(weights, biases, prior)
    np.testing.assert_allclose(b, (1 - 3) * np.log(prior) + np.sum(biases, axis=0), atol=1e-12)  # as in the remark


@pytest.mark.parametrize("classes", [2, 4])
def test_scikit_learns_logistic_regression_speaks_as_the_fusion(classes):
    data = load_data("gaussians", n=600, n_modalities=3, n_classes=classes, dependence=0.3)
    train, test = data.train, data.test
    prior = np.bincount(train.y) / len(train)
    experts = [LogisticRegression().fit(train[name], train.y) for name in train.names]
    W, b = concatenate_classifiers(
        [expert.coef_ for expert in experts], [expert.intercept_ for expert in experts], prior
    )
    assert len(W) == len(b) == (1 if classes == 2 else classes)
    joint_train, joint_test = (np.concatenate([part[name] for name in train.names], axis=1) for part in (train, test))
    joint = LogisticRegression().fit(joint_train, train.y)
    joint.coef_, joint.intercept_ = W, b
    opinions = {name: expert.predict_log_proba(test[name]) for name, expert in zip(train.names, experts)}
    np.testing.assert_allclose(joint.predict_log_proba(joint_test), fuse(opinions, prior), atol=1e-10)

    # Started there and hardly allowed to move, the regression stays; from zero it is elsewhere.
    warm = LogisticRegression(max_iter=1, warm_start=True)
    warm.coef_, warm.intercept_, warm.classes_ = W.copy(), b.copy(), joint.classes_
    cold = LogisticRegression(max_iter=1)
    with pytest.warns(match="converge"):
        warm.fit(joint_train, train.y)
    with pytest.warns(match="converge"):
        cold.fit(joint_train, train.y)
    assert np.abs(warm.coef_ - W).max() < np.abs(cold.coef_ - W).max()


def test_tensors_and_binary_pairs_agree_with_log_odds():
    rng = np.random.default_rng(0)
    pair, bias = rng.normal(size=(2, 2, 3)), rng.normal(size=(2, 2))
    prior = [0.8, 0.2]
    W, b = concatenate_classifiers(
        [torch.tensor(values) for values in pair], [torch.tensor(values) for values in bias], prior
    )
    odds = concatenate_classifiers(
        [values[1:] - values[:1] for values in pair], [values[1:] - values[:1] for values in bias], prior
    )
    np.testing.assert_allclose(odds[0], W[1:] - W[:1])
    np.testing.assert_allclose(odds[1], b[1:] - b[:1])


@pytest.mark.parametrize(
    ("weights", "biases", "named", "message"),
    [
        ([], [], {}, "at least one, got 0 and 0"),
        ([np.zeros((3, 2))], [], {}, "got 1 and 0"),
        ([np.zeros((3, 2)), np.zeros((2, 2))], [np.zeros(3), np.zeros(2)], {}, r"expert 1 has weights \[2, 2\]"),
        ([np.zeros((3, 2))], [np.zeros(2)], {}, r"bias \[2\]"),
        ([np.zeros(3)], [np.zeros(3)], {}, r"weights of expert 0 must be finite numbers of shape \[class, feature\]"),
        ([np.zeros((3, 2))], [np.full(3, np.nan)], {}, "bias of expert 0 must be finite"),
        ([np.zeros((3, 2))], [np.zeros(3)], {"prior": [0.5, 0.5]}, "each of 3 classes"),
        ([np.zeros((3, 2))], [np.zeros(3)], {"prior": [0.5, 0.5, 0]}, "cannot exclude a class"),
        ([np.zeros((1, 2))], [np.zeros(1)], {"target_prior": [1, 1]}, "target_prior must sum to one"),
    ],
)
def test_bad_input_is_named(weights, biases, named, message):
    with pytest.raises(InputError, match=message):
        concatenate_classifiers(weights, biases, **named)
