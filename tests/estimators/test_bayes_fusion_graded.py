"""`BayesFusion(reliability="graded")`: trust learned from spoilt opinions, with all that the estimator promises."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from consilience import BayesFusion, load_data
from consilience.core.errors import InputError, UnknownNameError


def drawn(n, seed=0):
    data = load_data("gaussians", n=n, dependence=0.3, separation=1.2, prior=[0.5, 0.3, 0.2], seed=seed)
    return data.extra["truth"].opinions(data.samples), data.samples.y


@pytest.fixture(scope="module")
def graded():
    return BayesFusion(reliability="graded").fit(*drawn(600))


@pytest.fixture(scope="module")
def plain():
    return BayesFusion().fit(*drawn(600))


def log_loss(model, opinions, y, **given):
    return -model.predict_log_proba(opinions, **given)[np.arange(len(y)), y].mean()


def test_broken_experts_do_less_harm_and_sound_samples_are_answered_as_before(graded, plain):
    opinions, y = drawn(1000, seed=1)
    random = np.random.default_rng(0)
    broken = random.random(1000) < 0.5
    loud, swapped = opinions.copy(), opinions.copy()
    loud[broken, 1] = 30 * random.normal(size=(broken.sum(), 3))
    swapped[broken, 1] = opinions[random.permutation(np.flatnonzero(broken)), 1]
    assert log_loss(graded, loud, y) < log_loss(plain, loud, y) - 0.5
    assert log_loss(graded, swapped, y) < log_loss(plain, swapped, y) - 0.05
    assert log_loss(graded, opinions, y) < log_loss(plain, opinions, y) + 0.02
    assert (graded.predict(opinions) == plain.predict(opinions)).mean() > 0.98
    trust = graded.trust(loud)
    np.testing.assert_allclose(trust.sum(axis=1), 1)
    assert trust[broken, 1].mean() < 0.5 * trust[~broken, 1].mean()


def test_the_posterior_moves_with_the_class_shares(graded):
    opinions, _ = drawn(200, seed=1)
    p, prior, target = graded.predict_proba(opinions), graded.rule_.prior.numpy(), np.array([0.1, 0.2, 0.7])
    moved = p * target / prior
    other = BayesFusion(reliability="graded", target_prior=target).fit(*drawn(600))
    np.testing.assert_allclose(other.predict_proba(opinions), moved / moved.sum(axis=1, keepdims=True), atol=1e-12)
    other.set_params(target_prior="em")
    shares = other.estimate_target_prior(opinions)
    moved = p * shares / prior
    np.testing.assert_allclose(other.predict_proba(opinions), moved / moved.sum(axis=1, keepdims=True), atol=1e-12)
    nobody = np.zeros(opinions.shape[:2], dtype=bool)
    np.testing.assert_allclose(graded.predict_proba(opinions, present=nobody), np.tile(prior, (200, 1)), atol=1e-12)


def test_a_full_prediction_has_the_posterior_and_the_trust(graded):
    opinions, _ = drawn(20, seed=1)
    found = graded.full_prediction(opinions)
    np.testing.assert_array_equal(found.output.numpy(), graded.predict_log_proba(opinions))
    weights = found.weights.numpy()
    np.testing.assert_allclose(weights / weights.sum(axis=1, keepdims=True), graded.trust(opinions))


def test_samples_of_weight_zero_are_left_out():
    opinions, y = drawn(160)
    weight = np.ones(160)
    weight[100:] = 0
    garbage = np.where(weight[:, None, None] > 0, opinions, 1e3)
    groups = np.arange(160) // 2
    weighed = BayesFusion(reliability="graded").fit(garbage, y, sample_weight=weight, groups=groups)
    fewer = BayesFusion(reliability="graded").fit(
        opinions[:100], y[:100], sample_weight=np.ones(100), groups=groups[:100]
    )
    np.testing.assert_allclose(weighed.predict_proba(opinions), fewer.predict_proba(opinions))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_very_few_samples(n):
    opinions, _ = drawn(10)
    model = BayesFusion(reliability="graded", classes=[0, 1, 2]).fit(opinions[:n], np.arange(n) % 3)
    assert np.isfinite(model.predict_log_proba(opinions)).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("missing", [[], [2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("experts", [1, 3])
def test_two_groups_one_expert_and_experts_that_are_always_missing(experts, missing):
    opinions, y = drawn(60)
    opinions, present = opinions[:, :experts], ~np.isin(np.arange(3), missing)[:experts]
    given = np.tile(present, (60, 1))
    model = BayesFusion(reliability="graded").fit(opinions, y, given, groups=np.arange(60) % 2)
    assert np.isfinite(model.predict_log_proba(opinions)).all()
    assert np.isfinite(model.trust(opinions)).all()


def test_trained_experts_and_gradients_switched_off():
    digits = load_data("digits")
    train = digits.train[:300]
    model = BayesFusion(experts=LogisticRegression(), reliability="graded", folds=2)
    with torch.no_grad():
        model.fit(train, train.y)
    assert model.score(digits.test, digits.test.y) > 0.85
    with torch.inference_mode():
        again = BayesFusion(experts=LogisticRegression(), reliability="graded", folds=2).fit(train, train.y)
    np.testing.assert_allclose(again.predict_proba(digits.test), model.predict_proba(digits.test))


def test_threads_share_a_model_and_fit_without_each_other(graded):
    opinions, y = drawn(600)
    state = torch.get_rng_state()
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: graded.predict_proba(opinions), range(3)))
        models = list(pool.map(lambda _: BayesFusion(reliability="graded").fit(opinions, y), range(2)))
    for found in (*answers, *(model.predict_proba(opinions) for model in models)):
        np.testing.assert_allclose(found, graded.predict_proba(opinions))
    assert torch.equal(torch.get_rng_state(), state)


def test_it_must_be_asked_for_before_fitting(plain):
    opinions, y = drawn(60)
    for fitted, asked in ((None, "graded"), ("auto", "graded"), ("graded", "auto")):
        model = BayesFusion(reliability=fitted).fit(opinions, y).set_params(reliability=asked)
        with pytest.raises(InputError, match=f"reliability is '{asked}', but the fusion was fitted without it"):
            model.predict(opinions)
    with pytest.raises(UnknownNameError, match="did you mean 'graded'"):
        BayesFusion(reliability="grade").fit(opinions, y)
