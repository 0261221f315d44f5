"""The warning that a joint method is worse than one of its modalities, on data where this is known."""

import warnings

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience.core.errors import ModalityWarning
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier, FusionRegressor, drowned_modality
from consilience.estimators.drowned_modality import chance_of_difference, drowned_modalities


def samples_of(n, seed, wide=600, strong=1.0, weak=0.0):
    """A narrow modality that shows the class and a wide one that does not."""
    random, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    y = np.arange(n) % 3
    centres, far = fixed.normal(size=(3, 6)), fixed.normal(size=(3, wide))
    narrow = strong * centres[y] + random.normal(size=(n, 6))
    return Samples.of({"narrow": narrow, "wide": weak * far[y] + random.normal(size=(n, wide))}, y)


def fit(train, validation, method="late", **more):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = FusionClassifier(method, validation=validation, device="cpu", **{"steps": 300, **more}).fit(train)
    return model, [str(each.message) for each in caught if issubclass(each.category, ModalityWarning)]


def test_a_wide_modality_drowns_a_narrow_one():
    train, validation, test = samples_of(150, 0), samples_of(400, 1), samples_of(600, 2)
    model, said = fit(train, validation)
    assert len(said) == 1
    assert "late is worse than one of its modalities: on 400 validation samples" in said[0]
    assert "on 'narrow' alone has" in said[0]
    assert "modality_dropout" in said[0]
    # The figures are those of the data, and what is recommended is better.
    (found,) = drowned_modalities(model.model_, train, validation)
    together = float((model.predict(validation) == validation.y).mean())
    assert (found.modality, found.rows, found.together) == ("narrow", 400, together)
    assert f"{found.alone:.1%}" in said[0]
    assert f"{found.together:.1%}" in said[0]
    scaled = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(train["narrow"], train.y)
    assert scaled.score(validation["narrow"], validation.y) == pytest.approx(found.alone, abs=0.005)
    assert fit(train, validation, "bayes")[0].score(test) > model.score(test) + 0.03


@pytest.mark.parametrize(
    ("train", "validation", "more"),
    [
        (samples_of(150, 0), samples_of(20, 1), {}),  # few validation samples
        (samples_of(150, 0), None, {}),
        (samples_of(200, 0, wide=6, weak=1.0), samples_of(400, 1, wide=6, weak=1.0), {}),  # both know much
        (samples_of(200, 0, wide=6, weak=1.0), samples_of(400, 1, wide=6, weak=1.0), {"method": "concat"}),
        (samples_of(200, 0, strong=0.0), samples_of(400, 1, strong=0.0), {}),  # none knows anything
        (samples_of(150, 0), samples_of(400, 1), {"method": "bayes"}),  # its experts are trained alone
        (samples_of(150, 0), samples_of(400, 1), {"class_weight": "balanced"}),
    ],
)
def test_it_is_silent_elsewhere(train, validation, more):
    assert fit(train, validation, **more)[1] == []


def test_a_modality_that_takes_long_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(drowned_modality, "_LONGEST", 1e-9)
    assert fit(samples_of(150, 0), samples_of(400, 1))[1] == []


def test_missing_modalities_and_weights_of_0_do_not_count():
    train, validation = samples_of(150, 0), samples_of(400, 1)
    present = {"narrow": np.arange(400) % 4 != 0}
    weight = (np.arange(400) % 4 != 1).astype(float)
    fewer = Samples.of(validation, present=present, weight=weight)
    model, _ = fit(train, fewer)
    (found,) = drowned_modalities(model.model_, train, fewer)
    assert found.rows == 200


def test_a_regression_is_not_judged():
    train = samples_of(100, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModalityWarning)
        FusionRegressor("late", device="cpu", steps=20, validation=0.3).fit(train, train.y.astype(float))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 0), (5, 9), (40, 20)])
def test_the_chance_of_a_difference(wins, losses):
    first = np.array([True] * wins + [False] * losses + [True] * 7)
    second = np.array([False] * wins + [True] * losses + [True] * 7)
    expected = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert chance_of_difference(first, second) == pytest.approx(expected)
