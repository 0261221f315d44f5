"""`majority` against counting."""

import numpy as np
import pytest

from consilience import FusionClassifier, FusionRegressor
from consilience.core.samples import Samples
from consilience.training import Model, Trainer


def test_it_counts_the_classes():
    y = np.array(["b"] * 6 + ["a"] * 3 + ["c"])
    samples = Samples.of({"x": np.arange(20.0).reshape(10, 2)}, y)
    model = Model.fit("majority", samples, None, trainer=Trainer(device="cpu"))
    p = model.predict(samples, device="cpu").output.softmax(dim=1).numpy()
    np.testing.assert_allclose(p, np.tile((np.array([3, 6, 1]) + 1 / 3) / 11, (10, 1)), rtol=1e-6)
    even = Model.fit("majority", samples, None, trainer=Trainer(device="cpu"), class_weight="balanced")
    np.testing.assert_allclose(even.predict(samples, device="cpu").output.softmax(dim=1).numpy(), 1 / 3, rtol=1e-6)


def test_it_predicts_the_weighted_mean_of_numbers():
    y = np.array([[1.0, 10.0], [3.0, -10.0], [8.0, 0.0]])
    weight = np.array([1.0, 1.0, 2.0])
    samples = Samples.of({"x": np.arange(3.0)[:, None]}, y, weight=weight)
    model = Model.fit("majority", samples, None, task="regression", trainer=Trainer(device="cpu"))
    decoded = model.task.decode(model.predict(samples, device="cpu").output.numpy())
    np.testing.assert_allclose(decoded, np.tile(np.average(y, axis=0, weights=weight), (3, 1)), atol=1e-5)


@pytest.mark.parametrize("kind", ["image", "sequence", "text"])
def test_it_serves_every_kind(kind):
    rng = np.random.default_rng(0)
    values = {"image": rng.normal(size=(8, 1, 4, 4)), "sequence": rng.normal(size=(8, 5, 2)), "text": list("abcdefgh")}
    X = {"x": values[kind]}
    assert FusionClassifier("majority", validation=None).fit(X, [0, 1, 1, 1] * 2).predict(X).tolist() == [1] * 8
    model = FusionRegressor("majority", validation=None).fit(X, np.arange(8.0))
    assert model.predict(X) == pytest.approx(3.5, abs=1e-5)
