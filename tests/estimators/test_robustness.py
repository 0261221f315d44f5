"""Estimators under corruption: levels are relative to the training data, which the model remembers."""

import numpy as np
import pytest

from consilience import robustness_curve
from consilience.core.errors import InputError
from consilience.core.samples import Samples


@pytest.mark.parametrize("corruption", ["gaussian", "salt-and-pepper", "stuck", "missing", "blank"])
def test_every_corruption_that_needs_statistics_only(toy, classifier, corruption):
    model = classifier("late").fit(toy.X, toy.y)
    curve = robustness_curve(model, toy.samples(), toy.y, corruption=corruption, levels=(0, 5, 10))
    assert curve.values[0] == model.score(toy.X, toy.y)
    assert ((curve.values >= 0) & (curve.values <= 1)).all()
    assert curve.values[-1] < curve.values[0]


def test_levels_are_relative_to_training(toy, classifier):
    model = classifier("late", validation=None).fit(toy.X, toy.y)
    narrow = Samples.of({name: values / 100 for name, values in toy.X.items()}, toy.y)
    by_model = robustness_curve(model, narrow, levels=(0, 2))
    assert by_model.values.tolist() == robustness_curve(model, narrow, levels=(0, 2), reference=toy.X).values.tolist()
    assert by_model.values.tolist() != robustness_curve(model, narrow, levels=(0, 2), reference=narrow).values.tolist()


def test_statistics_are_those_of_the_data(toy, classifier):
    reference = classifier(epochs=1, validation=None).fit(toy.X, toy.y).reference_
    for name, values in toy.X.items():
        np.testing.assert_allclose(reference[name].std, values.std(axis=0))
        np.testing.assert_allclose(reference[name].low, values.min(axis=0))
        np.testing.assert_allclose(reference[name].high, values.max(axis=0))


def test_swapping_needs_the_samples_themselves(toy, classifier):
    model = classifier("late").fit(toy.X, toy.y)
    with pytest.raises(InputError, match="holds statistics only: give samples as reference"):
        robustness_curve(model, toy.X, toy.y, corruption="swapped", levels=(0, 1))
    curve = robustness_curve(model, toy.X, toy.y, corruption="swapped", levels=(0, 1), reference=toy.X)
    assert curve.values[1] < curve.values[0]


def test_a_regressor_and_a_model_of_a_table(toy, regressor, columns):
    model = regressor(columns=columns, epochs=40).fit(toy.table, toy.number)
    curve = robustness_curve(model, toy.X, toy.number, levels=(0, 5))
    assert curve.metric == "mse"
    assert curve.values[1] > curve.values[0]


def test_an_unfitted_estimator_has_no_reference(classifier):
    assert not hasattr(classifier(), "reference_")
