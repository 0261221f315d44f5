"""`predict_set`, `predict_interval`, `abstain` and `calibrate` of the estimators."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from consilience import BayesFusion, FusionClassifier, FusionRegressor, Samples, load
from consilience.core.errors import ConsilienceError, InputError, UnsupportedError
from consilience.estimators.saved_model import load_saved
from consilience.estimators.sklearn_parameters import UnfittedError
from consilience.evaluation import interval_coverage, set_coverage
from estimators.conftest import QUICK
from resealed_models import reseal

N = 1200
LABELS = np.array(["cold", "mild", "warm"])


def draw(n, seed):
    """Three classes seen by two sensors of different quality, and a number."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = {
        "good": rng.normal(size=(n, 2)) + 1.6 * np.stack([y, -y], axis=1),
        "bad": rng.normal(size=(n, 3)) + 0.7 * y[:, None],
    }
    return X, LABELS[y], y + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def known():
    return draw(N, 1)


@pytest.fixture(scope="module")
def new():
    return draw(N, 2)


@pytest.fixture(scope="module")
def late(known):
    X, y, _ = draw(300, 0)
    model = FusionClassifier("late", **QUICK).fit(X, y)
    return model.calibrate(known[0], known[1])


@pytest.fixture(scope="module")
def regressor(known):
    X, _, number = draw(300, 0)
    return FusionRegressor("late", **QUICK).fit(X, number).calibrate(known[0], known[2])


def only(name, n=N):
    return {other: np.full(n, other == name) for other in ("good", "bad")}


@pytest.mark.parametrize("present", [None, only("good"), only("bad")], ids=["both", "good", "bad"])
@pytest.mark.parametrize("score", ["aps", "raps", "lac"])
def test_sets_hold_the_truth_as_often_as_asked(late, new, score, present):
    X, y, _ = new
    sets = late.predict_set(X, 0.8, score, present=present)
    assert sets.shape == (N, 3)
    assert sets.dtype == bool
    # Of two samples of N, the coverage differs from 0.8 by the sum of both errors.
    tolerance = 4 * np.sqrt(2 * 0.8 * 0.2 / N)
    assert abs(set_coverage(y, sets, classes=late.classes_) - 0.8) < tolerance


def test_fewer_modalities_give_larger_sets(late, new):
    sizes = [late.predict_set(new[0], 0.9, present=given).sum() for given in (None, only("good"), only("bad"))]
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize("score", ["aps", "raps", "lac"])
def test_more_coverage_gives_larger_sets(late, new, score):
    sets = [late.predict_set(new[0], coverage, score) for coverage in (0.5, 0.7, 0.9, 0.99)]
    for smaller, larger in itertools.pairwise(sets):
        assert (smaller <= larger).all()
        assert smaller.sum() < larger.sum()


def test_sets_do_not_depend_on_the_batch(late, new):
    samples = Samples.of(new[0])
    sets, silent = late.predict_set(samples), late.abstain(samples, 0.1)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(late.predict_set(samples[order]), sets[order])
    parts = np.split(np.arange(N), [1, 7, 100])
    np.testing.assert_array_equal(np.concatenate([late.predict_set(samples[rows]) for rows in parts]), sets)
    np.testing.assert_array_equal(np.concatenate([late.abstain(samples[rows], 0.1) for rows in parts]), silent)


def test_a_row_without_modalities(late, regressor, new):
    nothing = np.zeros((2, 2), dtype=bool)
    X = {name: values[:2] for name, values in new[0].items()}
    assert late.predict_set(X, 0.5, present=nothing).all()
    assert late.abstain(X, present=nothing).all()
    assert regressor.predict_interval(X, present=nothing).tolist() == [[-np.inf, np.inf]] * 2


def test_empty_sets_can_be_avoided(late, new):
    X = new[0]
    sets, filled = (late.predict_set(X, 0.5, "lac", allow_empty=allowed) for allowed in (True, False))
    assert (~sets.any(1)).any()
    assert filled.any(1).all()
    assert (sets <= filled).all()
    assert (filled.sum(1) - sets.sum(1)).max() == 1
    np.testing.assert_array_equal(late.classes_[filled[~sets.any(1)].argmax(1)], late.predict(X)[~sets.any(1)])


def test_tensors_in_tensors_out(late, regressor, new):
    X = {name: torch.from_numpy(values[:5]) for name, values in new[0].items()}
    assert isinstance(late.predict_set(X), torch.Tensor)
    assert isinstance(late.abstain(X, 0.1), torch.Tensor)
    assert regressor.predict_interval(X).shape == (5, 2)


def test_decisions_keep_the_risk(late, new):
    X, y, _ = new
    silent = late.abstain(X, risk=0.1)
    assert 0 < silent.mean() < 0.9
    wrong = (late.predict(X) != y)[~silent]
    assert wrong.sum() <= binom.ppf(0.999, len(wrong), 0.1)
    assert wrong.mean() < (late.predict(X) != y).mean()
    assert late.abstain(X, risk=0.02).sum() >= silent.sum()


@pytest.mark.parametrize("score", ["absolute", "normalised"])
@pytest.mark.parametrize("present", [None, only("good"), only("bad")], ids=["both", "good", "bad"])
def test_intervals_hold_the_truth_as_often_as_asked(regressor, new, score, present):
    X, _, number = new
    ends = regressor.predict_interval(X, 0.8, score, present=present)
    assert abs(interval_coverage(number, ends) - 0.8) < 4 * np.sqrt(2 * 0.8 * 0.2 / N)
    np.testing.assert_allclose(ends.mean(axis=1), regressor.predict(X, present=present), rtol=1e-6)
    np.testing.assert_array_equal(regressor.predict_set(X, 0.8, score, present=present), ends)


def test_intervals_of_several_targets(known, new):
    X, _, number = draw(300, 0)

    def targets(data):
        return np.stack([data[2], -5 * data[2]], axis=1)

    model = FusionRegressor("concat", **QUICK).fit(X, targets((X, None, number))).calibrate(known[0], targets(known))
    ends = model.predict_interval(new[0])
    assert ends.shape == (N, 2, 2)
    assert abs(interval_coverage(targets(new), ends) - 0.9) < 4 * np.sqrt(2 * 0.9 * 0.1 / N)
    with pytest.raises(UnsupportedError, match="normalised residuals need a method with an expert"):
        model.predict_interval(new[0], score="normalised")


@pytest.mark.parametrize("kind", ["classifier", "regressor", "bayes", "imputing"])
def test_save_and_load(kind, late, regressor, known, new, tmp_path):
    X = {name: values[:200] for name, values in new[0].items()}
    if kind == "bayes":
        opinions, y = opinions_of(known)
        model, X = BayesFusion().fit(opinions[:600], y[:600]).calibrate(opinions[600:], y[600:]), opinions[:50]
    elif kind == "imputing":
        given = {"epochs": 2, "impute": {"objective": "m2vae", "latent": 2}, "validation": 0.3}
        model = FusionClassifier("concat", **QUICK | given).fit(*draw(200, 0)[:2])
    else:
        model = late if kind == "classifier" else regressor
    again = load(model.save(tmp_path / "model"))
    assert again.calibration_.source == model.calibration_.source
    mask = np.random.default_rng(0).random((len(model.predict(X)), 2)) < 0.7
    for coverage in (0.5, 0.9):
        expected = model.predict_set(X, coverage, present=mask)
        np.testing.assert_array_equal(again.predict_set(X, coverage, present=mask), expected)
    again.save(tmp_path / "again")  # nothing is lost on the way


@pytest.mark.parametrize("scale", [1e308, np.inf, np.nan, 0.0])
def test_no_number_of_a_changed_regressor_is_not_finite(regressor, new, scale, tmp_path):
    path = reseal(
        regressor.save(tmp_path / "model"),
        lambda said: said["preparation"]["task"].update(scale=[scale], mean=[1.7e308]),
    )
    X = {name: 100 * values[:20] for name, values in new[0].items()}
    for call in ("predict", "predict_interval", "explain"):
        for read in (load, load_saved):
            with pytest.raises(ConsilienceError, match=r"not finite|inconsistent"):
                getattr(read(path), call)(X)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("values.absolute", torch.flatten),
        ("values.normalised", lambda scores: scores[:, :, 0]),
        ("values.absolute", lambda scores: torch.full_like(scores, np.nan)),
        ("present", lambda known: known[:-1]),
        ("patterns", lambda known: known[:-1]),
        ("drawn", lambda known: known[0]),
    ],
)
def test_changed_calibration_scores_are_refused(regressor, new, part, damage, tmp_path):
    path = regressor.save(tmp_path / "model")
    tensors = load_file(path / "weights.safetensors")
    [name] = [name for name in tensors if name.endswith(f"calibration.{part}")]
    save_file(tensors | {name: damage(tensors[name]).contiguous()}, path / "weights.safetensors")
    with pytest.raises(ConsilienceError, match="scores of the calibration samples"):
        load(reseal(path)).predict_interval(new[0])


def opinions_of(data):
    X, y, _ = data
    train = draw(300, 0)
    experts = [LogisticRegression().fit(train[0][name], train[1]) for name in X]
    return np.stack([e.predict_log_proba(X[name]) for e, name in zip(experts, X)], axis=1), y


@pytest.mark.parametrize("reliability", ["auto", "graded"])
def test_sets_of_given_opinions(known, new, reliability):
    opinions, y = opinions_of(known)
    model = BayesFusion(reliability=reliability).fit(opinions[:400], y[:400]).calibrate(opinions[400:], y[400:])
    others, truth = opinions_of(new)
    tolerance = 4 * np.sqrt(0.8 * 0.2 * (1 / 800 + 1 / N))
    for weigh in (False, True):
        sets = model.predict_set(others, 0.8, weigh_reliability=weigh)
        assert abs(set_coverage(truth, sets, classes=model.classes_) - 0.8) < tolerance
    alone = model.predict_set(others, 0.8, present=np.tile([False, True], (N, 1)))
    assert abs(set_coverage(truth, alone, classes=model.classes_) - 0.8) < tolerance
    assert model.abstain(others, 0.1).mean() < 0.9


def test_the_samples_of_bayes_are_those_of_training(known, new):
    X, y = {name: values[:410] for name, values in known[0].items()}, known[1][:410]
    weight = np.ones(410)
    weight[:10] = 0
    model = FusionClassifier("bayes", validation=0.1, **QUICK).fit(X, y, sample_weight=weight)
    assert model.calibration_.source == "cross-fitting"
    assert len(model.calibration_) == 400  # the method needs no validation samples, so it learns from their share too
    assert model.model_.method.held_out_output(np.zeros(1, int), np.ones((1, 2), bool)) is None  # freed
    sets = model.predict_set(new[0], 0.8)
    assert abs(set_coverage(new[1], sets, classes=model.classes_) - 0.8) < 0.06


@pytest.mark.parametrize("method", ["concat", "late"])
def test_folds_cross_fit_the_whole_method(known, new, method):
    X, y = ({name: values[:300] for name, values in known[0].items()}, known[1][:300])
    model = FusionClassifier(method, calibration=3, validation=0.2, **QUICK).fit(X, y)
    assert model.calibration_.source == "cross-fitting"
    assert len(model.calibration_) == 240
    assert abs(set_coverage(new[1], model.predict_set(new[0], 0.8), classes=model.classes_) - 0.8) < 0.1
    # They do not change the model itself.
    alone = FusionClassifier(method, calibration=None, validation=0.2, **QUICK).fit(X, y)
    np.testing.assert_array_equal(alone.predict_proba(X), model.predict_proba(X))


def test_a_class_that_a_fold_lacks(known):
    X, y = {name: values[:60] for name, values in known[0].items()}, known[1][:60].copy()
    y[0] = "never"
    model = FusionClassifier("late", calibration=2, validation=None, **QUICK).fit(X, y)
    assert len(model.calibration_) == 60
    assert model.predict_set(X, 0.8).shape == (60, 4)


def test_folds_of_a_table(known):
    table = np.hstack(list(known[0].values()))[:200]
    columns = {"good": slice(0, 2), "bad": slice(2, 5)}
    model = FusionRegressor("late", columns=columns, calibration=2, **QUICK).fit(table, known[2][:200])
    assert model.predict_interval(table).shape == (200, 2)


@pytest.mark.parametrize("as_frame", [False, True])
def test_cross_fitting_of_a_table_with_a_validation_table(known, new, as_frame):
    def read(X):
        table = np.hstack([X["good"], X["bad"]])
        return pd.DataFrame(table, columns=list("abcde")) if as_frame else table

    columns = {"good": list("ab"), "bad": list("cde")} if as_frame else {"good": slice(0, 2), "bad": slice(2, 5)}
    validation = read(new[0])[:100], new[1][:100]
    train = {name: values[:200] for name, values in known[0].items()}
    given = {"columns": columns, "validation": validation, "calibration": 2}
    model = FusionClassifier("late", **given, **QUICK).fit(read(train), known[1][:200])
    assert model.calibration_.source == "cross-fitting"
    arrays = {name: values[:100] for name, values in new[0].items()}, new[1][:100]
    other = FusionClassifier("late", validation=arrays, calibration=2, **QUICK).fit(train, known[1][:200])
    assert np.array_equal(model.predict_set(read(new[0])), other.predict_set(new[0]))


def test_validation_samples_by_default(known):
    X, y = {name: values[:300] for name, values in known[0].items()}, known[1][:300]
    model = FusionClassifier("concat", validation=0.2, **QUICK).fit(X, y)
    assert (model.calibration_.source, len(model.calibration_)) == ("validation", 60)
    with pytest.raises(InputError, match=r"coverage=0\.99: the calibration set has 60 .* at least 99 are needed"):
        model.predict_set(X, 0.99)
    with pytest.raises(InputError, match=r"risk=0\.02 .* at least 149 are needed"):
        model.abstain(X, 0.02)


def test_missing_modalities_of_imputing_models_are_hidden_before_they_are_filled(known):
    X, y = {name: values[:200] for name, values in known[0].items()}, known[1][:200]
    given = {"epochs": 2, "impute": {"objective": "m2vae", "latent": 2}, "validation": 0.3}
    model = FusionClassifier("concat", **QUICK | given).fit(X, y)
    table = model.calibration_.values["lac"]
    assert not np.allclose(table[0], table[-1])


def test_weighing_by_reliability(known, new):
    X, y = {name: values[:300] for name, values in known[0].items()}, known[1][:300]
    model = FusionClassifier("bayes-robust", settings={"folds": 2}, **QUICK).fit(X, y).calibrate(known[0], known[1])
    noisy = {"good": new[0]["good"] + 30, "bad": new[0]["bad"]}
    plain, weighed = (model.predict_set(noisy, 0.8, weigh_reliability=weigh) for weigh in (False, True))
    assert weighed.sum() > plain.sum()
    sets = model.predict_set(new[0], 0.8, weigh_reliability=True)
    assert abs(set_coverage(new[1], sets, classes=model.classes_) - 0.8) < 4 * np.sqrt(2 * 0.8 * 0.2 / N)


def test_methods_without_reliability(late, new):
    with pytest.raises(UnsupportedError, match="needs a method that estimates how reliable"):
        late.predict_set(new[0], weigh_reliability=True)


@pytest.mark.parametrize("coverage", [0, 1, 1.2, -1, None])
def test_a_coverage_that_is_none(late, regressor, new, coverage):
    for model in (late, regressor):
        with pytest.raises(InputError, match="coverage must be a number > 0 and < 1"):
            model.predict_set(new[0], coverage)


def test_bad_input(late, known, new):
    with pytest.raises(InputError, match="unknown score 'asp'"):
        late.predict_set(new[0], 0.9, "asp")
    with pytest.raises(InputError, match="1200 samples and 3 targets"):
        late.calibrate(known[0], known[1][:3])
    with pytest.raises(InputError, match="label 'hot'"):
        late.calibrate(known[0], np.where(known[1] == "warm", "hot", known[1]))
    with pytest.raises(InputError, match="no sample has any of the model's modalities"):
        late.calibrate(known[0], known[1], present=np.zeros((N, 2), dtype=bool))
    model = FusionClassifier("late", calibration=None, **QUICK).fit(*draw(60, 0)[:2])
    with pytest.raises(InputError, match=r"has no calibration samples: call model\.calibrate.* --calibration FILE"):
        model.predict_set(new[0])
    with pytest.raises(InputError, match="calibration='validation' needs validation samples"):
        FusionClassifier("late", calibration="validation", validation=None, **QUICK).fit(*draw(60, 0)[:2])
    for wrong in (1, "folds", 0.5):
        with pytest.raises(InputError, match="calibration"):
            FusionClassifier("late", calibration=wrong, **QUICK).fit(*draw(60, 0)[:2])


@pytest.mark.parametrize("name", ["bayes", "bayes-robust"])
def test_intervals_of_methods_that_predict_variances_are_in_proportion_to_them(name, known, new):
    X, _, number = draw(300, 0)
    model = FusionRegressor(name, settings={"folds": 2}, **QUICK).fit(X, number).calibrate(known[0], known[2])
    ends = model.predict_interval(new[0], 0.8, "normalised")
    deviation = np.sqrt(model.full_prediction(new[0]).extra["variance"].numpy()[:, 0])
    ratio = (ends[:, 1] - ends[:, 0]) / deviation
    assert ratio == pytest.approx(ratio[0], rel=1e-3)
    assert abs(interval_coverage(new[2], ends) - 0.8) < 4 * np.sqrt(2 * 0.8 * 0.2 / N)
    alone = model.predict_interval(new[0], 0.8, "normalised", present=only("bad"))
    assert np.median(np.ptp(alone, axis=1)) > np.median(np.ptp(ends, axis=1))


def test_bayes_calibrates_intervals_by_its_own_cross_fitting(new):
    X, _, number = draw(300, 0)
    model = FusionRegressor("bayes", settings={"folds": 2}, validation=None, **QUICK).fit(X, number)
    for score in ("absolute", "normalised"):  # 300 calibration samples, and experts of half of the data
        assert interval_coverage(new[2], model.predict_interval(new[0], 0.8, score)) == pytest.approx(0.8, abs=0.12)


@pytest.mark.parametrize(("method", "calibration"), [("late", 2), ("bayes-robust", None)])
def test_the_largest_seeds_are_allowed(method, calibration):
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = {"a": random.normal(y[:, None], 1, (40, 2)), "b": random.normal(y[:, None], 1, (40, 2))}
    model = FusionClassifier(method, epochs=1, random_state=2**63 - 1, calibration=calibration).fit(X, y)
    assert model.predict(X).shape == (40,)


def test_class_weights_name_a_class_that_a_fold_lacks():
    random = np.random.default_rng(0)
    y = np.array(["a", "b"] * 20)
    y[0] = "c"  # its only sample: the fold that holds it out does not have the class
    X = {"x": random.normal(size=(40, 2)), "z": random.normal(size=(40, 2))}
    weights = {"a": 1.0, "b": 1.0, "c": 3.0}
    model = FusionClassifier("late", epochs=1, calibration=2, class_weight=weights).fit(X, y)
    assert model.predict_set(X).shape == (40, 3)


@pytest.mark.parametrize("estimator", [FusionClassifier("late"), FusionRegressor("late"), BayesFusion()])
def test_an_estimator_that_was_not_fitted_says_so(estimator):
    asked = [
        getattr(estimator, name) for name in ("predict_set", "predict_interval", "abstain") if hasattr(estimator, name)
    ]
    assert len(asked) == 2
    for ask in asked:
        with pytest.raises(UnfittedError, match="is not fitted yet"):
            ask({"a": np.ones((2, 2))})
