import numpy as np
import pytest
import torch
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from torch.nn import functional

from consilience.bayes.anomaly_scores import InputScores, opinion_scores

NORM, NEAREST, MAHALANOBIS, CLASS, LEFT_OVER = range(5)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, size=300)
    x = random.normal(size=(300, 6)) @ random.normal(size=(6, 6)) + 2.0 * y[:, None]
    return x, y, random.normal(size=(20, 6)) * 3


@pytest.fixture(scope="module")
def found(data):
    x, y, new = data
    return InputScores(6, 3).double().fit(x, y)(torch.from_numpy(new)).exp().numpy()


def test_norm(data, found):
    assert found[:, NORM] == pytest.approx(np.linalg.norm(data[2], axis=1) / np.sqrt(6))


def test_nearest_training_inputs_as_scikit_learn_finds_them(data, found):
    distances, _ = NearestNeighbors(n_neighbors=5).fit(data[0]).kneighbors(data[2])
    assert found[:, NEAREST] == pytest.approx(distances.mean(axis=1) / np.sqrt(6))


def test_mahalanobis_distance_as_scikit_learn_has_it(data, found):
    expected = np.sqrt(LedoitWolf().fit(data[0]).mahalanobis(data[2]) / 6)
    assert found[:, MAHALANOBIS] == pytest.approx(expected, rel=1e-5)


def test_mahalanobis_distance_from_the_nearest_class(data, found):
    x, y, new = data
    means = np.stack([x[y == label].mean(axis=0) for label in range(3)])
    precision = LedoitWolf().fit(x - means[y]).precision_
    each = [np.einsum("nd,de,ne->n", new - mean, precision, new - mean) for mean in means]
    assert found[:, CLASS] == pytest.approx(np.sqrt(np.min(each, axis=0) / 6), rel=1e-5)


def test_many_features_are_seen_through_principal_components(data):
    x, y, new = data
    scores = InputScores(6, 3, components=2).double().fit(x, y)
    assert scores.count == 5
    pca = PCA(2).fit(x)
    rest = new - pca.inverse_transform(pca.transform(new))
    left_over = scores(torch.from_numpy(new)).exp().numpy()[:, LEFT_OVER]
    assert left_over == pytest.approx(np.linalg.norm(rest, axis=1) / 2)


def test_fewer_samples_than_features():
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 400))
    scores = InputScores(400, 2, components=20).double().fit(x, np.arange(30) % 2)
    inner = scores.centre(torch.from_numpy(x)).numpy()
    assert np.abs(inner) == pytest.approx(np.abs(PCA(20).fit_transform(x)), abs=1e-8)
    assert scores(torch.from_numpy(x)).isfinite().all()


def test_memory_does_not_grow_with_the_training_set():
    random = np.random.default_rng(0)
    scores = InputScores(3, 2, references=100).fit(random.normal(size=(1000, 3)), np.arange(1000) % 2)
    assert scores.references.shape == (100, 3)


def test_a_class_without_samples_attracts_nothing(data):
    x, y, new = data
    kept = y != 1
    three = InputScores(6, 3).double().fit(x[kept], y[kept])(torch.from_numpy(new))
    two = InputScores(6, 2).double().fit(x[kept], y[kept] // 2)(torch.from_numpy(new))
    torch.testing.assert_close(three, two)


def test_absurd_inputs_have_finite_scores(data):
    x, y, _ = data
    absurd = torch.tensor([[1e30] * 6, [-1e30] * 6, [0.0] * 6])
    scores = InputScores(6, 3).fit(x, y)(absurd)
    assert scores.isfinite().all()
    assert (scores[:2] > scores[2] + 5).all()


def test_opinion_scores():
    logits = torch.tensor([[[2.0, 0.0, 0.0], [50.0, 0.0, 0.0]]]).double()
    found = opinion_scores(logits)
    p = functional.softmax(logits, dim=-1)
    torch.testing.assert_close(found[..., 0], torch.logsumexp(logits, dim=-1))
    torch.testing.assert_close(found[0, 0, 1], torch.logit(p[0, 0, 0]))
    torch.testing.assert_close(found[..., 2], torch.distributions.Categorical(p).entropy())
    assert opinion_scores(1e30 * logits).isfinite().all()
    assert opinion_scores(torch.tensor([[0.0, -torch.inf]])).isfinite().all()
