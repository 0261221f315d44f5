"""`BayesFusion`: on opinions in every form, on scikit-learn experts, and what it says to bad input."""

import pickle
import warnings

import numpy as np
import pandas
import polars
import pytest
import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from consilience import BayesFusion, Samples, load_data
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.priors import estimate_expert_priors, estimate_target_prior
from consilience.core.errors import InputError, UnknownNameError


def dependent(n=900, seed=0, prior=(0.5, 0.3, 0.2)):
    """Opinions by name, labels, and the truth."""
    data = load_data("gaussians", n=n, dependence=0.6, separation=0.8, prior=prior, seed=seed)
    opinions = data.extra["truth"].opinions(data.samples)
    return {name: opinions[:, place] for place, name in enumerate(data.samples.names)}, data.samples.y, data


@pytest.fixture(scope="module")
def fitted():
    opinions, y, _ = dependent()
    return BayesFusion().fit(opinions, y)


def test_it_is_the_rule_on_opinions(fitted):
    opinions, y, _ = dependent()
    stacked = np.stack(list(opinions.values()), axis=1)
    rule = BayesRule(3, 3, calibration="auto").double().fit(stacked, y)
    expected = rule(torch.from_numpy(stacked)).numpy()
    np.testing.assert_array_equal(fitted.predict_log_proba(opinions), expected)
    np.testing.assert_allclose(fitted.predict_proba(opinions).sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.predict(opinions), expected.argmax(axis=1))
    assert fitted.score(opinions, y) == np.mean(expected.argmax(axis=1) == y)


def test_every_form_of_opinions_gives_the_same(fitted):
    opinions, y, _ = dependent()
    expected = fitted.predict_log_proba(opinions)
    stacked = np.stack(list(opinions.values()), axis=1)
    from_array = BayesFusion().fit(stacked, y)
    assert from_array.modalities_ == ("m1", "m2", "m3")
    np.testing.assert_allclose(from_array.predict_log_proba(stacked), expected)
    np.testing.assert_allclose(fitted.predict_log_proba(dict(reversed(opinions.items()))), expected)
    probabilities = {name: np.exp(one) for name, one in opinions.items()}
    by_probability = BayesFusion(from_probabilities=True).fit(probabilities, y)
    np.testing.assert_allclose(by_probability.predict_log_proba(probabilities), expected, atol=1e-6)
    tensors = {name: torch.from_numpy(one) for name, one in opinions.items()}
    for given in (tensors, torch.from_numpy(stacked)):
        for said in (fitted.predict_log_proba(given), fitted.predict(given), fitted.trust(given)):
            assert isinstance(said, torch.Tensor)
    np.testing.assert_allclose(fitted.predict_log_proba(tensors), expected)


def test_missing_in_every_form_gives_the_same(fitted):
    opinions, _, _ = dependent(60, seed=1)
    present = np.random.default_rng(0).random((60, 3)) < 0.6
    expected = fitted.predict_proba(opinions, present=present)
    by_name = dict(zip(opinions, present.T))
    np.testing.assert_array_equal(fitted.predict_proba(opinions, present=by_name), expected)
    hidden = {name: np.where(by_name[name][:, None], one, np.nan) for name, one in opinions.items()}
    np.testing.assert_array_equal(fitted.predict_proba(hidden), expected)
    gone = {name: one for name, one in opinions.items() if name != "m2"}
    nobody = {"m2": np.zeros(60, dtype=bool)}
    np.testing.assert_array_equal(fitted.predict_proba(gone), fitted.predict_proba(opinions, present=nobody))
    tensors = {name: torch.from_numpy(one) for name, one in gone.items()}
    np.testing.assert_array_equal(fitted.predict_proba(tensors), fitted.predict_proba(gone))


def test_trust_sums_to_one_over_what_is_present(fitted):
    opinions, _, _ = dependent(40, seed=1)
    present = np.random.default_rng(0).random((40, 3)) < 0.5
    trust = fitted.trust(opinions, present=present)
    np.testing.assert_allclose(trust.sum(axis=1), present.any(axis=1))
    assert (trust[~present] == 0).all()


@pytest.mark.parametrize("labels", [["b", "a", "c"], [10, 30, 20], [True, False]])
def test_labels_are_the_users_own(labels):
    rng = np.random.default_rng(0)
    y = rng.integers(0, len(labels), 300)
    opinions = {name: np.eye(len(labels))[y] + rng.normal(size=(300, len(labels))) for name in ("m1", "m2")}
    named = np.array(labels)[y]
    model = BayesFusion(classes=labels).fit(opinions, named)
    assert model.classes_.tolist() == labels
    plain = BayesFusion().fit(opinions, y)
    np.testing.assert_array_equal(model.predict_proba(opinions), plain.predict_proba(opinions))
    np.testing.assert_array_equal(model.predict(opinions), np.array(labels)[plain.predict(opinions)])


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_tables_say_which_column_is_which_class(frame):
    rng = np.random.default_rng(0)
    names = ["dog", "cat", "cow"]
    y = rng.integers(0, 2, 200)  # of a cow there is no sample
    opinions = {name: 2 * np.eye(3)[y] + rng.normal(size=(200, 3)) for name in ("image", "sound")}
    tables = {name: frame({one: z[:, place] for place, one in enumerate(names)}) for name, z in opinions.items()}
    model = BayesFusion().fit(tables, np.array(names)[y])
    assert model.classes_.tolist() == names
    plain = BayesFusion().fit(opinions, y)
    np.testing.assert_array_equal(model.predict_proba(tables), plain.predict_proba(opinions))
    np.testing.assert_array_equal(model.predict_proba(opinions), plain.predict_proba(opinions))
    reordered = {name: table[names[::-1]] for name, table in tables.items()}
    with pytest.raises(InputError, match=r"columns of the opinions must be \('dog', 'cat', 'cow'\), got \('cow'"):
        model.predict(reordered)
    with pytest.raises(InputError, match="must name the same classes in the same order"):
        model.predict({**tables, "sound": reordered["sound"]})
    with pytest.raises(InputError, match="label 'ox' is not one of them"):
        BayesFusion().fit(tables, np.where(y, "ox", "dog"))
    assert BayesFusion(classes=["dog", "ox", "cow"]).fit(tables, np.where(y, "ox", "dog")).columns_ == tuple(names)


def test_columns_that_name_numbers_or_nothing():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 100)
    z = {name: np.eye(3)[y] + rng.normal(size=(100, 3)) for name in ("a", "b")}

    def tables(columns):
        return {name: pandas.DataFrame(one, columns=columns) for name, one in z.items()}

    assert BayesFusion().fit(tables(["7", "5", "6"]), np.array([7, 5, 6])[y]).classes_.tolist() == [7, 5, 6]
    assert BayesFusion().fit(tables(["9", "5", "6"]), np.array([5, 5, 6])[y]).classes_.tolist() == [9, 5, 6]
    assert BayesFusion().fit(tables(["p0", "p1", "p2"]), np.array([7, 5, 6])[y]).classes_.tolist() == [5, 6, 7]
    assert BayesFusion().fit(tables(range(3)), y + 1).classes_.tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="cannot be read as labels like 5"):
        BayesFusion().fit(tables(["other", "5", "6"]), np.array([5, 5, 6])[y])


def test_a_class_without_samples_is_still_a_class():
    opinions, y, _ = dependent(300)
    rows = y < 2
    model = BayesFusion().fit({name: one[rows] for name, one in opinions.items()}, y[rows])
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.isfinite(model.predict_log_proba(opinions)).all()


@pytest.mark.parametrize("reliability", [None, "auto"])
@pytest.mark.parametrize("kappa", ["gaussian", "copula"])
def test_what_was_never_heard_together_is_fused_as_if_independent(kappa, reliability):
    X, y, _ = dependent(120)
    first, second = list(X)[:2]
    two, turns = {name: X[name] for name in (first, second)}, np.arange(120) % 2 == 0
    apart = BayesFusion(kappa, reliability=reliability).fit(two, y, {first: turns, second: ~turns})
    plain = BayesFusion("none", reliability=reliability).fit(two, y, {first: turns, second: ~turns})
    np.testing.assert_allclose(apart.predict_proba(two), plain.predict_proba(two), atol=1e-12)
    never = BayesFusion(kappa, reliability=reliability).fit(two, y, {second: np.zeros(120, bool)})
    assert np.isfinite(never.predict_log_proba(two)).all()
    assert (never.predict(two) != never.predict({first: X[first]})).any()


def test_label_shift_is_found_and_mended():
    opinions, y, _ = dependent(3000, prior=(0.8, 0.1, 0.1))
    rng = np.random.default_rng(0)
    half = np.arange(1500)
    model = BayesFusion().fit({name: one[half] for name, one in opinions.items()}, y[half])
    target = np.array([0.1, 0.2, 0.7])
    rows = np.concatenate(
        [rng.choice(np.flatnonzero((y == c) & (np.arange(3000) >= 1500)), int(600 * target[c])) for c in range(3)]
    )
    test = {name: one[rows] for name, one in opinions.items()}

    def log_loss(target_prior):
        model.set_params(target_prior=target_prior)
        return -model.predict_log_proba(test)[np.arange(len(rows)), y[rows]].mean()

    known, found, ignored = log_loss(target), log_loss("em"), log_loss(None)
    assert found < known + 0.02
    assert known < ignored - 0.1


def test_em_on_samples_that_nobody_speaks_of_is_the_prior(fitted):
    opinions, _, _ = dependent(10, seed=1)
    model = clone(fitted).set_params(target_prior="em").fit(*dependent()[:2])
    nobody = np.zeros((10, 3), dtype=bool)
    np.testing.assert_allclose(model.predict_proba(opinions, present=nobody), np.tile(model.rule_.prior, (10, 1)))


def test_experts_who_speak_otherwise_than_in_fitting_are_believed_less():
    opinions, y, _ = dependent(1600)
    fitting = {name: one[:800] for name, one in opinions.items()}
    clean = {name: one[800:] for name, one in opinions.items()}
    rng = np.random.default_rng(0)
    broken = rng.random(800) < 0.5
    loud = {**clean, "m2": np.where(broken[:, None], 30 * rng.normal(size=(800, 3)), clean["m2"])}

    def log_loss(model, test):
        return -model.predict_log_proba(test)[np.arange(800), y[800:]].mean()

    plain = BayesFusion(calibration="temperature").fit(fitting, y[:800])
    careful = BayesFusion(calibration="temperature", reliability="auto").fit(fitting, y[:800])
    assert log_loss(careful, loud) < log_loss(plain, loud) - 0.5
    assert log_loss(careful, clean) < log_loss(plain, clean) + 0.03
    trust = careful.trust(loud)[:, 1]
    assert trust[broken].mean() < 0.5 * trust[~broken].mean()
    np.testing.assert_allclose(careful.trust(loud).sum(axis=1), 1)


def test_it_is_a_scikit_learn_estimator(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "rule_")
    with pytest.raises(NotFittedError):
        copy.predict(dependent(20)[0])
    again = pickle.loads(pickle.dumps(fitted))
    opinions = dependent(20, seed=3)[0]
    np.testing.assert_array_equal(again.predict_proba(opinions), fitted.predict_proba(opinions))
    trees = BayesFusion(experts={"a": RandomForestClassifier(n_estimators=5)})
    assert clone(trees).get_params()["experts__a"].n_estimators == 5


def test_experts_of_scikit_learn_are_cross_fitted_and_then_trained_on_all():
    data = load_data("digits")
    train, test = data.train[:400], data.test
    forest = RandomForestClassifier(n_estimators=30, random_state=0)
    model = BayesFusion(experts=forest).fit(train, train.y)
    assert set(model.experts_) == set(train.names)
    assert model.experts_["top_left"] is not forest
    alone = clone(forest).fit(train["top_left"], train.y)
    np.testing.assert_array_equal(
        model.experts_["top_left"].predict_proba(test["top_left"]), alone.predict_proba(test["top_left"])
    )
    best = max(clone(forest).fit(train[name], train.y).score(test[name], test.y) for name in train.names)
    assert model.score(test, test.y) > best + 0.1
    # A forest is perfect on what it was trained on: temperatures learned from that would be far below 1.
    assert (model.rule_.temperature.numpy() > 0.3).all()


def test_on_real_digits_it_beats_the_theorem_and_concatenation():
    data = load_data("digits")
    train, test = data.train, data.test
    expert = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))

    def log_loss(log_posterior):
        return -log_posterior[np.arange(len(test)), test.y].mean()

    def joined(samples):
        return np.concatenate([samples[name] for name in samples.names], axis=1)

    ours = BayesFusion(experts=expert).fit(train, train.y)
    theorem = BayesFusion("none", calibration=None, experts=expert).fit(train, train.y)
    concat = clone(expert).fit(joined(train), train.y)
    losses = [log_loss(ours.predict_log_proba(test)), log_loss(theorem.predict_log_proba(test))]
    assert losses[0] < 0.6 * losses[1]
    assert losses[0] < log_loss(concat.predict_log_proba(joined(test)))


def test_experts_may_differ_read_text_and_lack_probabilities():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    words = np.array([["rain", "cold"], ["sun", "warm"]])
    texts = [f"{words[c, rng.integers(2)] if rng.random() < 0.8 else 'wind'} today" for c in y]
    numbers = rng.normal(size=(200, 2)) + y[:, None]
    X = {"report": texts, "sensor": numbers}
    experts = {"report": make_pipeline(CountVectorizer(), MultinomialNB()), "sensor": LinearSVC()}
    labels = np.where(y, "fair", "foul")
    model = BayesFusion(experts=experts).fit(X, labels)
    assert model.classes_.tolist() == ["fair", "foul"]
    assert model.score(X, labels) > 0.85
    missing = {"report": [None] * 5 + texts[5:], "sensor": numbers}
    proba = model.predict_proba(missing)
    assert np.isfinite(proba).all()
    np.testing.assert_array_equal(model.trust(missing)[:5], [[0.0, 1.0]] * 5)
    np.testing.assert_array_equal(model.predict_proba({"sensor": numbers})[:5], proba[:5])


def test_experts_learn_from_those_who_have_their_modality():
    data = load_data("gaussians", n=300, seed=0)
    present = np.random.default_rng(0).random((300, 3)) < 0.7
    X = Samples.of(data.samples, present=present)
    model = BayesFusion(experts=LinearDiscriminantAnalysis()).fit(X, data.samples.y)
    rows = present[:, 1]
    alone = LinearDiscriminantAnalysis().fit(X["m2"][rows], data.samples.y[rows])
    np.testing.assert_allclose(model.experts_["m2"].coef_, alone.coef_)


def test_an_expert_perfect_on_the_fitting_data_is_suspected():
    opinions, y, _ = dependent(200)
    with pytest.warns(UserWarning, match="'m2' is right on every sample given to fit.*out-of-fold"):
        BayesFusion().fit({**opinions, "m2": 9.0 * np.eye(3)[y]}, y)


OPINIONS, Y, _ = dependent(60)


@pytest.mark.parametrize(
    ("settings", "opinions", "y", "message"),
    [
        ({}, {"a": np.zeros((6, 3)), "b": np.zeros((6, 2))}, [0, 1] * 3, "differ in their classes"),
        ({}, {"a": np.zeros((6, 3)), "b": np.zeros((5, 3))}, [0, 1] * 3, "differ in their rows"),
        ({}, np.zeros((6, 3)), [0, 1] * 3, r"\[n, modality, class\]"),
        ({}, {}, [0], "at least one expert"),
        ({}, OPINIONS, Y[:-1], "59 labels, the opinions have 60 rows"),
        ({}, OPINIONS, Y + 1.5, "continuous"),
        ({}, OPINIONS, np.where(np.arange(60) == 9, 7, Y), "on 3 classes, y has 4 labels .0, 1, 2, 7."),
        ({}, OPINIONS, None, "requires y"),
        ({"classes": [0, 1]}, OPINIONS, Y, "name the opinions' 3 columns"),
        ({"classes": [0, 1, 1]}, OPINIONS, Y, "name each class once"),
        ({"classes": [0, 1, 1], "experts": LogisticRegression()}, OPINIONS, Y, "name each class once"),
        ({"classes": [0, 1, 5]}, OPINIONS, Y, "label 2 .* is not one of the classes"),
        ({"from_probabilities": True}, OPINIONS, Y, "sum to one"),
        ({"prior": [0.5, 0.5]}, OPINIONS, Y, "3 classes"),
        ({"prior": [1.2, -0.1, -0.1]}, OPINIONS, Y, "≥ 0"),
        ({"prior": [0.5, 0.5, 0.0]}, OPINIONS, Y, "class 2 has share 0"),
        ({"prior": "emprical"}, OPINIONS, Y, "did you mean 'empirical'"),
        ({"target_prior": "EM"}, OPINIONS, Y, "did you mean 'em'"),
        ({"target_prior": [0.5, 0.6, 0.1]}, OPINIONS, Y, "target_prior must sum to one"),
        ({"target_prior": [0.5, 0.5]}, OPINIONS, Y, "target_prior must be one probability for each of 3 classes"),
        ({"target_prior": [1.5, -0.5, 0.0]}, OPINIONS, Y, "target_prior must be finite and ≥ 0"),
        ({"kappa": "gauss"}, OPINIONS, Y, "did you mean 'gaussian'"),
        ({"reliability": "atuo"}, OPINIONS, Y, "did you mean 'auto'"),
        ({"calibration": "temp"}, OPINIONS, Y, "did you mean 'temperature'"),
        ({"experts": {"m1": LogisticRegression()}}, OPINIONS, Y, "modality 'm2' has none"),
        ({"experts": {"m9": LogisticRegression()}}, OPINIONS, Y, "unknown modality 'm9'"),
        ({"experts": LogisticRegression(), "folds": 1}, OPINIONS, Y, "folds must be between 2 and 60"),
    ],
)
def test_bad_input_is_named(settings, opinions, y, message):
    with pytest.raises(InputError, match=message):
        BayesFusion(**settings).fit(opinions, y)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.nan, 0.0, 1.0], "opinions of 'm2' are NaN in part.*row 4"),
        ([np.inf, 0.0, 1.0], "opinions of 'm2' hold .inf.*row 4"),
        ([-np.inf] * 3, "opinions of 'm2' exclude every class .row 4."),
    ],
)
def test_opinions_that_are_none_are_named(fitted, value, message):
    opinions = {name: one.copy() for name, one in OPINIONS.items()}
    opinions["m2"][4] = value
    with pytest.raises(InputError, match=message):
        fitted.predict(opinions)


def test_prediction_wants_what_was_fitted(fitted):
    with pytest.raises(UnknownNameError, match="unknown modality 'm4'"):
        fitted.predict({**OPINIONS, "m4": OPINIONS["m1"]})
    with pytest.raises(InputError, match="the 3 classes of fitting, got 4"):
        fitted.predict({name: np.zeros((5, 4)) for name in OPINIONS})
    with pytest.raises(InputError, match="fitted on 3 experts"):
        fitted.predict(np.zeros((5, 2, 3)))
    with pytest.raises(InputError, match="label 5"):
        fitted.score(OPINIONS, np.where(Y == 2, 5, Y))


SHARES = np.array([0.9, 0.08, 0.02])


def exact_experts(n=4000, seed=0, prior=None):
    """Opinions of four exact experts that are independent given the class, under a prior; labels with other shares."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=SHARES)
    x = 1.5 * np.eye(3)[y][:, None] + rng.normal(size=(n, 4, 3))
    prior = np.full((4, 3), 1 / 3) if prior is None else np.asarray(prior)
    log_p = 1.5 * x + np.log(prior)
    truth = np.log(SHARES) + (1.5 * x).sum(axis=1)
    return log_p, y, truth - np.logaddexp.reduce(truth, axis=1, keepdims=True)


def loss(log_p, y):
    return -log_p[np.arange(len(y)), y].mean()


@pytest.mark.parametrize("calibration", ["temperature", "bias", "robust"])
@pytest.mark.parametrize("prior", ["given", "experts"])
def test_opinions_under_another_prior_are_moved_to_the_shares_of_y_before_fitting(calibration, prior):
    opinions, y, _ = exact_experts()
    test, y_test, truth = exact_experts(seed=1)
    given = np.full(3, 1 / 3) if prior == "given" else "experts"
    model = BayesFusion(calibration=calibration, prior=given, target_prior=SHARES).fit(opinions, y)
    np.testing.assert_allclose(model.rule_.temperature, 1, atol=0.15)
    assert loss(model.predict_log_proba(test), y_test) < loss(truth, y_test) + 0.02
    uniform = truth - np.log(SHARES)
    uniform -= np.logaddexp.reduce(uniform, axis=1, keepdims=True)
    if prior == "given":
        assert np.abs(model.set_params(target_prior=None).predict_proba(test) - np.exp(uniform)).mean() < 0.05


def test_experts_of_different_priors():
    priors = np.array([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3], [0.9, 0.08, 0.02]])
    opinions, y, _ = exact_experts(prior=priors)
    test, y_test, truth = exact_experts(seed=1, prior=priors)
    model = BayesFusion(prior=priors, target_prior=SHARES).fit(opinions, y)
    assert loss(model.predict_log_proba(test), y_test) < loss(truth, y_test) + 0.02
    names = ["a", "b", "c", "d"]
    named = {name: opinions[:, place] for place, name in enumerate(names)}
    again = BayesFusion(prior=dict(zip(names, priors)), target_prior=SHARES).fit(named, y)
    np.testing.assert_allclose(again.rule_.weights, model.rule_.weights)
    np.testing.assert_allclose(estimate_expert_priors(opinions, y), priors, atol=0.08)
    shares = estimate_target_prior(test, priors)
    np.testing.assert_allclose(shares, np.bincount(y_test) / len(y_test), atol=0.02)
    with pytest.raises(InputError, match="class 1 has share 0"):
        BayesFusion(prior=np.array([[0.5, 0, 0.5]] * 4)).fit(opinions, y)


def test_experts_trained_on_balanced_classes_are_warned_of():
    opinions, y, _ = exact_experts()
    with pytest.warns(UserWarning, match="far from the shares of the classes in y.*prior='experts'"):
        BayesFusion().fit(opinions, y)
    matching, y, _ = exact_experts(prior=np.tile(SHARES, (4, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesFusion().fit(matching, y)
        BayesFusion(prior="experts").fit(opinions, y)


def test_the_estimated_shares_are_those_that_predictions_use():
    opinions, y, _ = exact_experts(prior=np.tile(SHARES, (4, 1)))
    model = BayesFusion(target_prior="em").fit(opinions, y)
    shifted = opinions[np.concatenate([np.flatnonzero(y == label)[:60] for label in range(3)])]
    shares = model.estimate_target_prior(shifted)
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.08)
    em = model.predict_log_proba(shifted)
    np.testing.assert_allclose(model.set_params(target_prior=shares).predict_log_proba(shifted), em, atol=1e-9)


def test_weights_count_as_repeated_samples_do():
    opinions, y, _ = exact_experts(600, prior=np.tile(SHARES, (4, 1)))
    weight = np.random.default_rng(0).integers(0, 4, 600)
    for calibration in ("temperature", "bias"):
        weighted = BayesFusion("none", calibration=calibration).fit(opinions, y, sample_weight=weight)
        repeated = BayesFusion("none", calibration=calibration).fit(opinions.repeat(weight, axis=0), y.repeat(weight))
        np.testing.assert_allclose(weighted.predict_proba(opinions), repeated.predict_proba(opinions), atol=1e-6)
    dependent = BayesFusion().fit(opinions, y, sample_weight=weight > 0)
    left_out = BayesFusion().fit(opinions[weight > 0], y[weight > 0])
    np.testing.assert_allclose(dependent.predict_proba(opinions), left_out.predict_proba(opinions), atol=1e-9)


def test_experts_are_weighted_and_cross_fitted_by_group():
    rng = np.random.default_rng(0)
    groups = np.arange(200) // 10
    y = rng.integers(0, 2, 200)
    X = {name: np.eye(20)[groups] * (2 * y[:, None] - 1) + rng.normal(size=(200, 20)) for name in ("a", "b")}
    seen = []

    class Watched(LogisticRegression):
        def fit(self, values, labels, sample_weight=None):
            seen.append((values, sample_weight))
            return super().fit(values, labels, sample_weight)

    weight = rng.random(200) + 0.5
    BayesFusion(experts=Watched(), folds=4).fit(X, y, sample_weight=weight, groups=groups)
    group_of = {row.tobytes(): group for row, group in zip(X["a"], groups)}
    for values, counted in seen[:4]:
        trained = {group_of[row.tobytes()] for row in values}
        assert len(values) == 10 * len(trained) < 200
        assert len(counted) == len(values)
    with pytest.raises(InputError, match="LinearDiscriminantAnalysis, the expert of modality 'a', does not take it"):
        BayesFusion(experts=LinearDiscriminantAnalysis()).fit(X, y, sample_weight=weight)
    for given, message in (({"sample_weight": -weight}, "not negative"), ({"groups": groups[:3]}, r"shape \[200\]")):
        with pytest.raises(InputError, match=message):
            BayesFusion(experts=Watched()).fit(X, y, **given)
