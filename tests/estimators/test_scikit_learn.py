"""What scikit-learn does with estimators: cross-validation, searches, pipelines, clones, pickles, parameters."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import FusionClassifier, FusionRegressor, Samples


def test_cross_validation_of_a_mapping_wrapped_in_samples(toy, classifier):
    scores = cross_val_score(classifier(), Samples.of(toy.X), toy.y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert scores.mean() > 0.75


def test_cross_validation_of_a_table_equals_that_of_its_modalities(toy, classifier, columns):
    by_table = cross_val_score(classifier(columns=columns), toy.table, toy.y, cv=3, error_score="raise")
    by_name = cross_val_score(classifier(), Samples.of(toy.X), toy.y, cv=3, error_score="raise")
    np.testing.assert_array_equal(by_table, by_name)


def test_r2_is_that_of_scikit_learn_whatever_the_targets_without_weight():
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=(60, 2)), "b": rng.normal(size=(60, 2))}
    y, weight = X["a"][:, 0] + X["b"][:, 1], np.where(np.arange(60) % 7 == 0, 0.0, 2.0)
    model = FusionRegressor("concat", epochs=3, device="cpu", random_state=0).fit(X, y)
    expected = r2_score(y, model.predict(X), sample_weight=weight)
    for value in (0.0, -99999999.0, 1e300):
        assert model.score(X, np.where(weight > 0, y, value), sample_weight=weight) == pytest.approx(expected)
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))


def test_cross_validation_slices_weights_and_masks(toy, classifier):
    present = np.ones((80, 2), dtype=bool)
    present[::3, 1] = False
    params = {"present": present, "sample_weight": np.ones(80)}
    predicted = cross_val_predict(classifier(), Samples.of(toy.X), toy.y, cv=3, params=params)
    assert predicted.shape == (80,)


def test_cross_validation_of_a_regressor(toy, regressor):
    scores = cross_val_score(regressor(epochs=40), Samples.of(toy.X), toy.number, cv=3, error_score="raise")
    assert scores.mean() > 0.5


def test_a_search_over_method_rate_and_settings(toy, classifier):
    search = GridSearchCV(
        classifier(epochs=3),
        [
            {"method": ["concat", "late"], "lr": [1e-5, 1e-2]},
            {"settings": [{"width": 4}, {"width": 8, "dropout": 0.0}]},
            {"settings__width": [4, 8], "training__clip": [1.0]},
        ],
        cv=2,
        error_score="raise",
    ).fit(Samples.of(toy.X), toy.y)
    assert len(search.cv_results_["params"]) == 8
    assert search.best_params_.get("lr", 1e-2) == 1e-2
    np.testing.assert_array_equal(search.predict(toy.X), search.best_estimator_.predict(toy.X))


def test_what_is_searched_reaches_the_method(toy, classifier):
    search = GridSearchCV(classifier(epochs=1), {"settings__width": [5, 7]}, cv=2, error_score="raise")
    search.fit(toy.samples(), toy.y)
    assert search.best_estimator_.model_.method.head.in_features == search.best_params_["settings__width"]


@pytest.mark.slow
def test_a_search_in_two_processes_finds_the_same(toy, classifier, columns):
    grid = {"method": ["concat", "late"], "lr": [1e-4, 1e-2]}
    alone, together = (
        GridSearchCV(classifier(columns=columns, epochs=3), grid, cv=2, n_jobs=jobs, error_score="raise").fit(
            toy.table, toy.y
        )
        for jobs in (1, 2)
    )
    np.testing.assert_allclose(alone.cv_results_["mean_test_score"], together.cv_results_["mean_test_score"], atol=1e-6)


def test_a_pipeline_that_scales_first(toy, classifier, columns):
    pipeline = make_pipeline(StandardScaler(), classifier(columns=columns))
    pipeline.set_params(fusionclassifier__settings__width=16)
    assert pipeline.fit(toy.table, toy.y).score(toy.table, toy.y) > 0.85
    assert pipeline[-1].model_.method.head.in_features == 16


def test_clones_are_unfitted_and_fit_alike(toy, classifier):
    model = classifier(settings={"width": 8}, encoders={"image": {"hidden": [8]}}).fit(toy.X, toy.y)
    copy = clone(model)
    assert not hasattr(copy, "model_")
    assert copy.get_params(deep=False) == model.get_params(deep=False)
    np.testing.assert_array_equal(copy.fit(toy.X, toy.y).predict_proba(toy.X), model.predict_proba(toy.X))


def test_a_pickled_estimator_predicts_the_same(toy, classifier):
    model = classifier("late").fit(toy.X, toy.y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(toy.X), model.predict_proba(toy.X))
    np.testing.assert_array_equal(again.trust(toy.X), model.trust(toy.X))


def test_single_settings_are_parameters():
    model = FusionClassifier(settings={"width": 8, "dropout": 0.1})
    settings = model.settings
    assert model.get_params()["settings__width"] == 8
    model.set_params(settings__width=16, training__clip=1.0, lr=0.1)
    assert model.settings == {"width": 16, "dropout": 0.1}
    assert (model.training, model.lr) == ({"clip": 1.0}, 0.1)
    assert settings == {"width": 8, "dropout": 0.1}, "the mapping that was passed in is the user's"


def test_whole_settings_are_set_before_single_ones():
    model = FusionRegressor().set_params(settings__width=4, settings={"width": 2, "dropout": 0.5})
    assert model.settings == {"width": 4, "dropout": 0.5}


@pytest.mark.parametrize("estimator", [FusionClassifier, FusionRegressor])
def test_repr_names_what_differs_from_the_defaults(estimator):
    assert repr(estimator()) == f"{estimator.__name__}()"
    assert repr(estimator("late", settings={"expert_loss": 0.5})) == (
        f"{estimator.__name__}(method='late', settings={{'expert_loss': 0.5}})"
    )
    assert estimator.__name__ in estimator()._repr_html_()


def test_only_the_classifier_weighs_classes():
    both = set(FusionRegressor().get_params())
    assert set(FusionClassifier().get_params()) - both == {"class_weight"}
    assert both < set(FusionClassifier().get_params())
