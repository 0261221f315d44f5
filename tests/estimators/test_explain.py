"""`explain`: contributions that sum up, compared with predictions under masks that the tests make themselves."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
import torch

from consilience import BayesFusion, FusionClassifier, FusionRegressor, Samples, fuse, load, load_data
from consilience.core.errors import InputError, UnknownNameError
from consilience.estimators.explanation import Explanation

NAMES = ("top_left", "top_right", "bottom_left", "bottom_right")


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def models(digits):
    return {
        name: FusionClassifier(name, epochs=2, encoders=None).fit(digits.train)
        for name in ("concat", "late", "bayes-robust", "tmc")
    }


@pytest.fixture(scope="module")
def opinions():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    logits = rng.normal(size=(300, 3, 3)) + 2 * np.eye(3)[y][:, None]
    return logits, y


def shapley_by_predictions(value, players, total):
    """The Shapley values of one sample, where `value` predicts with a set of modalities."""
    found = np.zeros(total)
    for player in players:
        others = [other for other in players if other != player]
        for size in range(len(others) + 1):
            weight = factorial(size) * factorial(len(players) - size - 1) / factorial(len(players))
            for subset in combinations(others, size):
                found[player] += weight * (value({*subset, player}) - value(set(subset)))
    return found


@pytest.mark.parametrize("method", ["concat", "late", "bayes-robust", "tmc"])
def test_contributions_are_those_of_predictions_with_masks(models, digits, method):
    model, samples = models[method], digits.test[:2]
    present = np.array([[True, True, True, True], [True, False, True, True]])
    found = model.explain(samples, present=present)
    for row in range(2):
        column = list(model.classes_).index(found[row].decision)

        def value(there, row=row, column=column):
            mask = np.array([[place in there for place in range(4)]])
            return model.predict_proba(samples[[row]], present=mask)[0, column]

        expected = shapley_by_predictions(value, np.flatnonzero(present[row]), 4)
        np.testing.assert_allclose(found.contributions.values[row], expected, atol=1e-6)
        assert found[row].all == pytest.approx(value(set(np.flatnonzero(present[row]))), abs=1e-6)
        for place, part in enumerate(found[row].parts):
            assert part.present == present[row, place]
            if part.present:
                rest = present[row] & (np.arange(4) != place)
                assert part.without == model.predict(samples[[row]], present=rest[None])[0]
                assert part.without_value == pytest.approx(value(set(np.flatnonzero(rest))), abs=1e-6)


@pytest.mark.parametrize("value", ["probability", "log-probability", "accuracy", "nll"])
def test_contributions_sum_to_what_they_explain(models, digits, value):
    found = models["late"].explain(digits.test[:20], value=value)
    gap = found.contributions.values.sum(axis=1) - (found.contributions.all - found.contributions.none)
    assert np.abs(gap).max() < 1e-6


def test_the_mean_of_accuracy_and_nll_is_the_metric(models, digits):
    model, test = models["late"], digits.test[:60]
    assert model.explain(test, value="accuracy").mean().all == pytest.approx(model.score(test))
    probabilities = model.predict_proba(test)[np.arange(60), np.searchsorted(model.classes_, test.y)]
    assert model.explain(test, value="nll").mean().all == pytest.approx(np.log(probabilities).mean(), abs=1e-6)


def test_any_class_can_be_explained(models, digits):
    model, test = models["late"], digits.test[:4]
    one = model.explain(test, of=7)
    np.testing.assert_allclose(one.contributions.all, model.predict_proba(test)[:, 7], atol=1e-6)
    np.testing.assert_array_equal(one.of, 7)
    true = model.explain(test, of=test.y)
    np.testing.assert_array_equal(true.of, test.y)


def test_opinions_trust_and_reliability_are_those_of_the_prediction(models, digits):
    model, test = models["bayes-robust"], digits.test[:5]
    found, made = model.explain(test), model.full_prediction(test)
    np.testing.assert_allclose(found.opinions, made.opinions.double().softmax(dim=2), atol=1e-6)
    np.testing.assert_allclose(found.trust, model.trust(test), atol=1e-6)
    np.testing.assert_allclose(found.reliability, made.extra["reliability"], atol=1e-6)
    np.testing.assert_allclose(found.probabilities, model.predict_proba(test), atol=1e-6)
    pairs = [np.abs(found.opinions[:, i] - found.opinions[:, j]).sum(axis=1) / 2 for i, j in combinations(range(4), 2)]
    np.testing.assert_allclose(found.conflict, np.max(pairs, axis=0), atol=1e-9)
    plain = models["concat"].explain(test)
    assert plain.opinions is plain.trust is plain.reliability is plain.conflict is None


def test_saved_models_explain_alike(models, digits, tmp_path):
    model, test = models["late"], digits.test[:3]
    again = load(model.save(tmp_path / "model")).explain(test)
    np.testing.assert_array_equal(again.contributions.values, model.explain(test).contributions.values)


def test_a_sample_does_not_depend_on_the_others(models, digits):
    model, test = models["bayes-robust"], digits.test[:6]
    together, alone = model.explain(test), model.explain(test[[4]])
    np.testing.assert_allclose(together.contributions.values[4], alone.contributions.values[0], atol=1e-6)


def test_a_sample_without_modalities(models, digits):
    found = models["late"].explain(digits.test[:1], present=np.zeros((1, 4), dtype=bool))
    assert (found.contributions.values == 0).all()
    assert found.contributions.all == found.contributions.none
    assert found[0].conflict is None
    assert found[0].pairs == ()
    assert "no modality" in found.text(0)
    assert found.figure(0).svg().startswith("<svg")


def test_modalities_that_are_imputed(digits):
    impute = {"objective": "vae", "epochs": 1, "latent": 4}
    model = FusionClassifier("concat", epochs=1, impute=impute).fit(digits.train[:200])
    found = model.explain(digits.test[:2])
    hidden = model.predict_proba(digits.test[:2], present=np.zeros((2, 4), dtype=bool))
    assert found.contributions.none == pytest.approx(hidden[np.arange(2), hidden_columns(model, found)], abs=1e-5)


def hidden_columns(model, found):
    return np.searchsorted(model.classes_, found.decision)


def test_more_than_ten_modalities_have_intervals():
    rng = np.random.default_rng(0)
    X = {f"m{place}": rng.normal(size=(120, 2)) for place in range(12)}
    y = (sum(values[:, 0] for values in X.values()) > 0).astype(int)
    found = (
        FusionClassifier("concat", epochs=3)
        .fit(X, y)
        .explain({name: values[:3] for name, values in X.items()}, permutations=16)
    )
    assert found.contributions.errors.max() > 0
    assert found[0].pairs is None
    assert not found[0].exact
    gap = found.contributions.values.sum(axis=1) - (found.contributions.all - found.contributions.none)
    assert np.abs(gap).max() < 1e-6
    assert "95 % interval" in found.text(0)


def test_regression_is_explained_in_the_units_of_the_target():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 200, 3))
    y = 100 + 10 * a[:, 0] + 10 * b[:, 1]
    model = FusionRegressor("late", epochs=10).fit({"a": a, "b": b}, y)
    X = {"a": a[:5], "b": b[:5]}
    found = model.explain(X)
    np.testing.assert_allclose(found.contributions.all, model.predict(X), rtol=1e-5)
    only = model.predict(X, present=np.array([[True, False]] * 5))
    np.testing.assert_allclose(found.opinions[:, 0], only, rtol=1e-5)
    np.testing.assert_allclose(found.without[:, 1], only, rtol=1e-5)
    assert found[0].probability is None
    assert "the prediction is" in found.text(0)
    squared = model.explain(X, y[:5], value="mse")
    np.testing.assert_allclose(squared.contributions.all, -((model.predict(X) - y[:5]) ** 2), rtol=1e-4)
    assert found.figure(0).narrow is not None


def test_several_targets_need_a_choice():
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=(60, 2)), "b": rng.normal(size=(60, 2))}
    model = FusionRegressor("concat", epochs=1).fit(X, np.stack([X["a"][:, 0], X["b"][:, 0]], axis=1))
    with pytest.raises(InputError, match="predicts 2 targets; give of=, from 0 to 1"):
        model.explain(X)
    with pytest.raises(InputError, match="of must be the number of a target from 0 to 1, got 2"):
        model.explain(X, of=2)
    found = model.explain(X, of=1)
    np.testing.assert_allclose(found.contributions.all, model.predict(X)[:, 1], atol=1e-5)
    assert found.decision.shape == (60, 2)

    def intervals(X, coverage):
        return model.predict(X)[:, :, None] + np.array([-coverage, coverage])

    model.predict_set = intervals
    assert model.explain(X, of=1)[3].prediction_set == pytest.approx(found.contributions.all[3] + np.array([-0.9, 0.9]))
    assert "the prediction is" in found.text(3)


@pytest.mark.parametrize("reliability", [None, "auto", "graded"])
def test_bayes_fusion_explains_opinions(opinions, reliability):
    logits, y = opinions
    model = BayesFusion(reliability=reliability).fit(logits[:200], y[:200])
    found = model.explain(logits[200:], value="log-probability")
    expected = model.predict_log_proba(logits[200:]).max(axis=1)
    np.testing.assert_allclose(found.contributions.all, expected, atol=1e-9)
    gap = found.contributions.values.sum(axis=1) - (found.contributions.all - found.contributions.none)
    assert np.abs(gap).max() < 1e-6
    np.testing.assert_allclose(found.trust, model.trust(logits[200:]))
    assert (found.reliability is None) == (reliability is None)


def test_independent_experts_add_their_evidence(opinions):
    """Without κ and calibration the unnormalised log-posterior is a sum, so log-odds are shared out exactly."""
    logits, y = opinions
    model = BayesFusion(kappa="none", calibration=None, prior=[1 / 3] * 3).fit(logits, y)
    both = [model.explain(logits[:9], value="log-probability", of=label).contributions.values for label in (0, 1)]
    weights = model.full_prediction(logits[:9]).weights.numpy()
    np.testing.assert_allclose(both[0] - both[1], weights * (logits[:9, :, 0] - logits[:9, :, 1]), atol=1e-6)


def test_the_target_prior_is_not_estimated_again_for_every_mask(opinions):
    logits, y = opinions
    model = BayesFusion(target_prior="em").fit(logits, y)
    rows = logits[y != 2]
    found = model.explain(rows)
    np.testing.assert_allclose(found.contributions.all, model.predict_proba(rows).max(axis=1), atol=1e-9)
    assert found.contributions.none.max() > 0.4  # of the two classes that occur


def test_excluded_classes_are_a_conflict():
    with np.errstate(divide="ignore"):
        logits = np.log([[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.4], [0.7, 0.3]]])
    model = BayesFusion(kappa="none", calibration=None).fit(np.repeat(logits[1:], 10, axis=0), [0, 1] * 5)
    found = model.explain(logits)
    np.testing.assert_array_equal(found.excluded, fuse(logits, return_conflict=True)[1])
    assert found.excluded.tolist() == [True, False]
    assert found.conflict[0] == 1
    assert "exclude every class" in found.text(0)


def test_conformal_sets_are_shown_where_the_model_makes_them(models, digits):
    class FewSamples(FusionClassifier):
        def predict_set(self, X, coverage=0.9):
            raise InputError("there are too few calibration samples")

    late = models["late"]
    found = late.explain(digits.test[:3], coverage=0.95)
    expected = late.classes_[late.predict_set(digits.test[:1], coverage=0.95)[0]]
    assert found[0].prediction_set == tuple(expected.tolist())
    assert f"coverage 0.95 is {{{', '.join(map(str, expected))}}}" in found.text(0)
    few = FewSamples("late")
    vars(few).update(vars(late))
    assert "too few calibration samples" in few.explain(digits.test[:3]).text(0)
    del few.calibration_
    assert "conformal" not in few.explain(digits.test[:1]).text(0)


def test_tensors_and_mappings_are_read(models, digits):
    X = {name: torch.from_numpy(np.asarray(digits.test[:3][name])) for name in NAMES}
    found = models["late"].explain(X)
    assert isinstance(found, Explanation)
    expected = models["late"].explain(digits.test[:3])
    np.testing.assert_allclose(found.contributions.values, expected.contributions.values, atol=1e-6)


def test_a_modality_that_is_left_out_is_missing(models, digits):
    X = {name: digits.test[:3][name] for name in NAMES[:2]}
    found = models["late"].explain(X)
    assert found.present.tolist() == [[True, True, False, False]] * 3
    assert (found.contributions.values[:, 2:] == 0).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value": "acuracy"}, "unknown value 'acuracy': did you mean 'accuracy'"),
        ({"value": "output"}, "value='output' is not for classification"),
        ({"of": 11}, "unknown class 11"),
        ({"of": [1, 2]}, r"of must be one label, or labels \[n\] = \[3\], got shape \[2\]"),
        ({"value": "accuracy", "of": 1}, "leave of= out"),
        ({"value": "nll", "y": [1, 2]}, "y has 2 targets, the samples are 3"),
        ({"coverage": 1.0}, "explain: coverage must be a number > 0 and < 1, got 1.0"),
        ({"permutations": 0}, "explain: permutations must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_input_is_named(models, digits, given, message):
    with pytest.raises(InputError, match=message):
        models["late"].explain(digits.test[:3], **given)


@pytest.mark.parametrize("method", ["concat", "late"])
def test_no_rows_are_refused(models, digits, method):
    with pytest.raises(InputError, match="explain: there are no rows: give at least one sample"):
        models[method].explain(digits.test[:0])


def test_metrics_need_targets(models, digits):
    X = Samples.of({name: digits.test[:3][name] for name in NAMES})
    with pytest.raises(InputError, match="compares with the true targets: give y"):
        models["late"].explain(X, value="accuracy")


def test_rows_outside_are_named(models, digits):
    found = models["late"].explain(digits.test[:3])
    assert found[-1] == found[2]
    assert len(list(found)) == len(found) == 3
    for row in (3, -4, "a"):
        with pytest.raises(InputError, match="row must be a whole number from 0 to 2"):
            found[row]
    with pytest.raises(UnknownNameError):
        models["late"].explain({"top": np.zeros((1, 16))})


def test_pictures_are_written(models, digits, tmp_path):
    found = models["bayes-robust"].explain(digits.test[:2])
    found.figure(1, tmp_path / "why.png")
    found.figure(1, tmp_path / "why.svg")
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "why.svg").read_text()
    with pytest.raises(InputError, match=r"must end in .svg or .png, got 'why.pdf'"):
        found.figure(1, tmp_path / "why.pdf")
