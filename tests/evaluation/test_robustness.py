"""Robustness curves of small known models, and areas against closed forms."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier
from consilience.evaluation import Metric, RobustnessCurve, robust_auc, robustness, robustness_curve

N = 400


class Threshold:
    """Says "high" where the mean of all modalities is positive: right on clean samples, by construction."""

    classes_ = np.array(["high", "low"])

    def _score(self, X):
        return np.mean([np.asarray(X[name])[:, 0] for name in ("a", "b")], axis=0)

    def predict(self, X):
        return np.where(self._score(X) > 0, "high", "low")

    def predict_proba(self, X):
        high = 1 / (1 + np.exp(-10 * self._score(X)))
        return np.stack([high, 1 - high], axis=1)


class Mean:
    """Predicts the mean of its modalities: a regressor."""

    def predict(self, X):
        return np.mean([np.asarray(X[name])[:, 0] for name in ("a", "b")], axis=0)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], N)
    X = {name: sign[:, None] * rng.uniform(0.5, 1.5, (N, 2)) for name in ("a", "b")}
    return X, np.where(sign > 0, "high", "low")


@pytest.fixture
def calls(monkeypatch):
    """Replace the corruption by one whose effect is known: every value of the modalities is shifted by the level."""
    seen = []

    class Shift:
        def __init__(self, reference):
            self.reference = reference

        def apply(self, X, corruption, level, **more):
            seen.append({"corruption": corruption, "level": level, "reference": self.reference, **more})
            return {name: X[name] + level + 0.01 * more["random_state"] * (level > 0) for name in ("a", "b")}

    monkeypatch.setattr(robustness, "Corruptor", Shift)
    return seen


def test_the_curve_measures_every_level_with_the_same_seed(data, calls):
    X, _ = data
    y = Mean().predict(X)
    curve = robustness_curve(Mean(), X, y, corruption="gaussian", levels=(0, 1, 3), random_state=7, repeats=2)
    assert curve.metric == "mse"
    assert not curve.larger_is_better
    assert curve.corruption == "gaussian"
    assert curve.levels.tolist() == [0, 1, 3]
    shifts = np.array([[0, 1.07, 3.07], [0, 1.08, 3.08]])
    assert curve.per_repeat == pytest.approx(shifts**2)
    assert curve.values == pytest.approx((shifts**2).mean(axis=0))
    assert curve.worst == pytest.approx(curve.per_repeat[1])
    assert [(call["level"], call["random_state"]) for call in calls] == [(0, 7), (1, 7), (1, 8), (3, 7), (3, 8)]


def test_the_rest_is_handed_to_the_corruption(data, calls):
    X, y = data
    robustness_curve(
        Threshold(), X, y, corruption={"a": "blank"}, levels=[2], probability=0.3, modalities=["a"], clip=True
    )
    (call,) = calls
    assert call.pop("reference") is X
    assert call == {
        "corruption": {"a": "blank"},
        "level": 2,
        "probability": 0.3,
        "modalities": ["a"],
        "random_state": 0,
        "clip": True,
    }


def test_the_reference_is_the_one_given_then_the_models(data, calls):
    X, y = data
    model = Threshold()
    model.reference_ = object()
    robustness_curve(model, X, y, levels=[0])
    robustness_curve(model, X, y, levels=[0], reference="given")
    assert [call["reference"] for call in calls] == [model.reference_, "given"]


def test_metrics_of_labels_probabilities_and_ones_own(data, calls):
    X, y = data
    curve = robustness_curve(Threshold(), X, y, levels=(0, 9))
    assert (curve.metric, curve.larger_is_better) == ("accuracy", True)
    assert curve.values == pytest.approx([1.0, np.mean(y == "high")])
    by_nll = robustness_curve(Threshold(), X, y, levels=(0, 9), metric="nll")
    assert not by_nll.larger_is_better
    assert by_nll.values[0] < 0.1 < by_nll.values[1]
    own = Metric("share_high", "classification", lambda y, prediction, weight: float(np.mean(prediction == "high")))
    assert robustness_curve(Threshold(), X, y, levels=(0, 9), metric=own).values[1] == 1


def test_targets_may_come_with_the_samples(data, calls):
    X, y = data
    assert robustness_curve(Threshold(), Samples.of(X, y), levels=[0]).values == pytest.approx([1])
    with pytest.raises(InputError, match="needs the targets"):
        robustness_curve(Threshold(), Samples.of(X), levels=[0])


def test_real_corruption_lowers_accuracy_reproducibly(data):
    X, y = data
    first = robustness_curve(Threshold(), X, y, corruption="gaussian", levels=(0, 5, 10), repeats=3)
    again = robustness_curve(Threshold(), Samples.of(X, y), corruption="gaussian", levels=(0, 5, 10), repeats=3)
    assert (first.per_repeat == again.per_repeat).all()
    assert first.values[0] == 1
    assert first.values[0] > first.values[1] > first.values[2] > 0.5
    assert np.ptp(first.per_repeat[:, 0]) == 0
    assert np.ptp(first.per_repeat[:, 1]) > 0
    untouched = robustness_curve(Threshold(), X, y, corruption="gaussian", levels=(0, 10), probability=0.0)
    assert untouched.values.tolist() == [1, 1]


def test_the_scale_is_the_references(data):
    X, y = data
    tiny = {name: value * 1e-6 for name, value in X.items()}
    assert robustness_curve(Threshold(), X, y, corruption="gaussian", levels=(0, 10), reference=tiny).values[1] == 1


def test_table_and_repr():
    curve = RobustnessCurve(np.array([0.0, 5.0]), np.array([[0.9, 0.5], [0.9, 0.7]]), "accuracy", True, "gaussian")
    table = curve.table()
    assert table.columns == ["level", "metric", "mean", "std", "worst"]
    assert table["mean"].to_list() == pytest.approx([0.9, 0.6])
    assert table["std"].to_list() == pytest.approx([0, np.sqrt(0.02)])
    assert table["worst"].to_list() == [0.9, 0.5]
    assert repr(curve) == "RobustnessCurve(accuracy under gaussian: 0 → 0.9, 5 → 0.6)"
    single = RobustnessCurve(np.array([0.0]), np.array([[0.9]]), "accuracy")
    assert single.table()["std"].to_list() == [None]
    assert "under corruption" in repr(single)


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"levels": (5, 0)}, InputError, "strictly increase"),
        ({"levels": (0, 0, 1)}, InputError, "strictly increase"),
        ({"levels": ()}, InputError, "strictly increase"),
        ({"levels": (0, np.nan)}, InputError, "levels must be a list, each a number"),
        ({"repeats": 0}, InputError, "repeats must be a whole number ≥ 1"),
        ({"levels": (-1, 0)}, InputError, "level must be a number ≥ 0"),
        ({"random_state": None}, InputError, "whole number, got None"),
        ({"corruption": "gausian"}, UnknownNameError, "gaussian"),
        ({"modalities": ["c"]}, UnknownNameError, "'c'"),
        ({"colour": "red"}, UnknownNameError, "unknown option 'colour'"),
        ({"metric": "acuracy"}, UnknownNameError, "accuracy"),
        ({"metric": "mse"}, UnsupportedError, "serves regression, not classification"),
    ],
)
def test_curves_that_cannot_be_measured_are_refused(data, more, error, words):
    X, y = data
    with pytest.raises(error, match=words):
        robustness_curve(Threshold(), X, y, **more)


def test_probabilities_are_asked_of_a_model_that_has_them(data):
    class Labels:
        classes_ = np.array(["high", "low"])
        predict = Threshold.predict

    with pytest.raises(InputError, match="Labels has no predict_proba"):
        robustness_curve(Labels(), *data, metric="nll")


levels_and_values = st.lists(st.floats(0.01, 10), min_size=1, max_size=6).flatmap(
    lambda steps: st.tuples(
        st.just(np.concatenate([[0.0], np.cumsum(steps)])),
        *[st.lists(st.floats(-5, 5), min_size=len(steps) + 1, max_size=len(steps) + 1)] * 2,
    )
)


@given(levels_and_values, st.booleans())
def test_the_three_areas_against_their_integrals(drawn, larger):
    levels, f, b = drawn
    sign = 1 if larger else -1

    def area(values):
        pieces = pairwise(levels)
        return sign * sum(quad(np.interp, left, right, args=(levels, values))[0] for left, right in pieces)

    curve, baseline = (levels, f, larger), (levels, b, larger)
    gap = np.subtract(f, b)
    assert robust_auc(curve) == pytest.approx(area(f), abs=1e-6)
    assert robust_auc(curve, baseline) == pytest.approx(area(gap), abs=1e-6)
    assert robust_auc(curve, baseline, "effective") == pytest.approx(area(gap - gap[0]), abs=1e-6)
    assert robust_auc(curve, baseline) == pytest.approx(robust_auc(curve) - robust_auc(baseline), abs=1e-9)


def test_uneven_levels_and_straight_lines_in_closed_form():
    levels = np.array([0.0, 1.0, 10.0])
    f, b = 1 - 0.02 * levels, 0.9 - 0.05 * levels
    assert robust_auc((levels, f), kind="relative") == pytest.approx(10 - 1)
    assert robust_auc((levels, f), (levels, b), "gain") == pytest.approx(1 + 0.03 * 50)
    assert robust_auc((levels, f), (levels, b), "effective") == pytest.approx(0.03 * 50)
    assert robust_auc((levels, f, False), (levels, b, False), "gain") == pytest.approx(-2.5)


def test_a_constant_clean_advantage_is_a_gain_but_not_effective_robustness():
    baseline = RobustnessCurve(np.array([0.0, 5.0]), np.array([[0.8, 0.5]]), "accuracy")
    better = RobustnessCurve(np.array([0.0, 5.0]), np.array([[0.9, 0.6]]), "accuracy")
    assert robust_auc(better, baseline) == pytest.approx(0.5)
    assert robust_auc(better, baseline, "effective") == pytest.approx(0)


def test_the_direction_comes_from_whichever_curve_knows_it():
    errors = RobustnessCurve(np.array([0.0, 1.0]), np.array([[1.0, 2.0]]), "mse", larger_is_better=False)
    pair = ([0, 1], [2.0, 3.0])
    assert robust_auc(errors, pair) == pytest.approx(1)
    assert robust_auc(pair, errors) == pytest.approx(-1)
    assert robust_auc(errors) == pytest.approx(-1.5)


def curve(levels=(0, 5), values=(0.9, 0.5), metric="accuracy", larger=True, corruption="gaussian"):
    return RobustnessCurve(np.array(levels, float), np.array([values]), metric, larger, corruption)


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ((curve(), None, "gain"), InputError, "'gain' compares with a baseline"),
        ((curve(), None, "effective"), InputError, "'effective' compares with a baseline"),
        ((curve(), curve(), "area"), UnknownNameError, "effective, gain, relative"),
        ((curve(), curve(levels=(0, 4))), InputError, r"same levels, got \[0.0, 5.0\] and \[0.0, 4.0\]"),
        ((curve(), curve(metric="macro_f1")), InputError, "differ in metric: 'accuracy' and 'macro_f1'"),
        ((curve(), curve(corruption="blank")), InputError, "differ in corruption"),
        ((curve(), ([0, 5], [0.9, 0.5], False)), InputError, "measure different things"),
        ((curve(levels=(1, 5)), curve(levels=(1, 5)), "effective"), InputError, "level 0; the lowest is 1"),
        ((curve(levels=(0,), values=(0.9,)),), InputError, "at least two levels"),
        ((([5, 0], [0.9, 0.5]),), InputError, "strictly increase"),
        ((([0, 5], [0.9, np.nan]),), InputError, "one finite value"),
        ((([0, 5], [0.9]),), InputError, "one finite value for each of its 2 levels"),
        (([0.9, 0.5],), InputError, "must be a RobustnessCurve.*got list"),
    ],
)
def test_areas_that_do_not_exist_are_refused(args, error, words):
    with pytest.raises(error, match=words):
        robust_auc(*args)


def test_dataframes_are_read_as_the_model_reads_them():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    X = {
        "a": pl.DataFrame({"u": rng.normal(size=N), "word": np.array(["no", "yes"])[y]}),
        "b": pl.DataFrame({"p": rng.normal(size=N), "q": rng.normal(size=N) + y}),
    }
    model = FusionClassifier("linear", device="cpu").fit(X, y)
    how = {"corruption": {"a": "missing"}, "levels": (0, 10), "probability": 1.0}
    curve = robustness_curve(model, X, y, **how)
    assert curve.values.tolist() == [np.mean(model.predict(each) == y) for each in (X, {"b": X["b"]})]
    other_order = {"a": X["a"].select("word", "u"), "b": X["b"].select("q", "p")}
    for more in ({}, {"index": np.arange(N)[::-1].copy()}):
        how = {"levels": (0, 5), "random_state": 1, **more}
        same = [robustness_curve(model, each, y, **how).per_repeat for each in (X, other_order)]
        np.testing.assert_array_equal(*same)
    assert (same[0] != robustness_curve(model, X, y, levels=(0, 5), random_state=1).per_repeat).any()
