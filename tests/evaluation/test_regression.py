"""Regression metrics against scikit-learn and SciPy, MOSI's accuracies against their definition, invariances."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import (
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_pinball_loss,
    mean_squared_error,
    r2_score,
)

from consilience.core.errors import InputError, UnknownNameError
from consilience.evaluation import METRICS, acc2, acc7, mae, mape, mse, pearson, pinball, r2


def draw(seed, n=50, targets=None):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n if targets is None else (n, targets)) * 2
    return rng, y, y + rng.normal(size=y.shape)


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([None, 1, 3]))
@settings(max_examples=30, deadline=None)
def test_errors_agree_with_scikit_learn(seed, weighted, targets):
    rng, y, prediction = draw(seed, targets=targets)
    weight = rng.uniform(0.1, 3, len(y)) if weighted else None
    assert mse(y, prediction, weight=weight) == pytest.approx(mean_squared_error(y, prediction, sample_weight=weight))
    assert mae(y, prediction, weight=weight) == pytest.approx(mean_absolute_error(y, prediction, sample_weight=weight))
    relative = mean_absolute_percentage_error(y, prediction, sample_weight=weight)
    assert mape(y, prediction, weight=weight) == pytest.approx(relative)
    assert r2(y, prediction, weight=weight) == pytest.approx(r2_score(y, prediction, sample_weight=weight))
    for quantile in (0.1, 0.5, 0.9):
        expected = mean_pinball_loss(y, prediction, alpha=quantile, sample_weight=weight)
        assert pinball(y, prediction, quantile=quantile, weight=weight) == pytest.approx(expected)


def test_r2_of_a_constant_target_is_that_of_scikit_learn():
    for y in ([0.3, 0.1 + 0.2, 0.3], [1e8, 1e8, 1e8]):
        exact, wrong = np.array(y), np.array([0.3, 0.4, 0.3])
        assert (r2(y, exact), r2(np.full(3, y[0]), wrong)) == (1, 0)
        assert r2_score(np.full(3, y[0]), wrong) == 0
    assert np.isnan(METRICS["r2"].resampler([1.0, 2.0], [1.0, 3.0])(np.zeros((1, 2)))).all()


def test_squares_of_the_largest_numbers_do_not_overflow():
    _, y, prediction = draw(0)
    for scale in (2.0**1000, 2.0**-700):
        assert r2(y * scale, prediction * scale) == r2(y, prediction)
        resampled = METRICS["pearson"].resampler(y * scale, prediction)(np.ones((1, len(y))))
        assert resampled == pytest.approx([pearsonr(y, prediction).statistic])
    assert r2(y, np.where(np.arange(len(y)) == 3, 1e200, prediction)) == -np.inf
    weight = np.where(np.arange(len(y)) == 3, 0.0, 1e300)
    for without in (1e7, 1e300):  # what has no weight decides nothing
        hidden = np.where(weight > 0, y, without)
        assert r2(hidden, prediction, weight=weight) == pytest.approx(
            r2_score(y, prediction, sample_weight=weight > 0), abs=1e-12
        )
    one_far_off = np.where(np.arange(len(y)) == 3, 1e300, y)
    n = len(y)
    assert r2(one_far_off, prediction) == pytest.approx(1 - 1 / (1 - 1 / n))  # all error and all spread are of one row


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e6]), st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=20, deadline=None)
def test_r2_does_not_depend_on_units(seed, shift, scale):
    _, y, prediction = draw(seed)
    assert r2((y + shift) * scale, (prediction + shift) * scale) == pytest.approx(r2(y, prediction), rel=1e-6, abs=1e-6)


@given(st.integers(0, 10**6), st.floats(-1e3, 1e3), st.sampled_from([1e-200, 1e-3, 1.0, 1e200]))
@settings(max_examples=30, deadline=None)
def test_pearson_agrees_with_scipy_whatever_the_units(seed, shift, scale):
    _, y, prediction = draw(seed)
    expected = pearsonr(y, prediction).statistic
    assert pearson(y, prediction) == pytest.approx(expected)
    assert pearson(y, (prediction + shift) * scale) == pytest.approx(expected, abs=1e-9)
    assert pearson(y, -prediction) == pytest.approx(-expected)


def test_pearson_averages_over_targets():
    _, y, prediction = draw(0, targets=3)
    expected = np.mean([pearsonr(y[:, k], prediction[:, k]).statistic for k in range(3)])
    assert pearson(y, prediction) == pytest.approx(expected)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e300, 1e-300])
def test_pearson_with_a_constant_is_nan_without_a_warning(constant):
    _, y, _ = draw(0, n=7)
    assert np.isnan(pearson(y, np.full(7, constant)))
    assert np.isnan(pearson(np.full(7, constant), y))


def test_pearson_with_a_constant_up_to_rounding_is_nan():
    assert np.isnan(pearson([1.0, 2.0, 4.0], [0.3, 0.1 + 0.2, 0.3]))


def test_pearson_of_one_sample_is_nan_and_of_equal_vectors_one():
    assert np.isnan(pearson([1.0], [2.0]))
    assert np.isnan(pearson([1.0, 2.0], [2.0, 3.0], weight=[1, 0]))
    assert pearson([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]) == pytest.approx(1)


def test_acc7_rounds_and_clips_both_sides():
    y = [-3.0, -2.6, 3.0, 0.4, 1.0]
    prediction = [-8.0, -3.4, 2.4, -0.4, 1.6]
    assert acc7(y, prediction) == pytest.approx(3 / 5)


@given(st.lists(st.tuples(st.floats(-4, 4), st.floats(-4, 4)), min_size=1, max_size=30))
def test_sentiment_accuracies_agree_with_a_loop(pairs):
    def seven(value):
        return max(-3, min(3, round(value)))

    y, prediction = (list(side) for side in zip(*pairs))
    assert acc7(y, prediction) == pytest.approx(np.mean([seven(a) == seven(b) for a, b in pairs]))
    assert acc2(y, prediction) == pytest.approx(np.mean([(a < 0) == (b < 0) for a, b in pairs]))
    polar = [(a > 0) == (b > 0) for a, b in pairs if a != 0]
    measured = acc2(y, prediction, zeros="excluded")
    assert measured == pytest.approx(np.mean(polar)) if polar else np.isnan(measured)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_order_does_not_matter_and_weights_are_repetition(seed):
    rng, y, prediction = draw(seed, n=30)
    order = rng.permutation(len(y))
    times = rng.integers(0, 4, len(y))
    times[:3] = 1
    again = np.repeat(np.arange(len(y)), times)

    def excluded(*args, **more):
        return acc2(*args, zeros="excluded", **more)

    for metric in (mse, mae, pearson, acc7, acc2, excluded):
        assert metric(y[order], prediction[order]) == pytest.approx(metric(y, prediction))
        assert metric(y, prediction, weight=times) == pytest.approx(metric(y[again], prediction[again]))


def test_tensors_are_accepted():
    _, y, prediction = draw(1)
    assert mse(torch.tensor(y), torch.tensor(prediction, requires_grad=True)) == pytest.approx(mse(y, prediction))


@pytest.mark.parametrize(
    ("y", "prediction", "words"),
    [
        ([1.0, 2.0], [1.0], r"shape \[2, 1\], got \[1, 1\]"),
        ([1.0, 2.0], [1.0, np.nan], "predictions contain NaN or infinity .row 1"),
        ([np.inf, 2.0], [1.0, 2.0], "true targets contain NaN or infinity .row 0"),
        (["a", "b"], [1.0, 2.0], "true targets must be numbers"),
        ([], [], "n ≥ 1"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), r"\[n, target\]"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(y, prediction, words):
    for metric in (mse, mae, pearson, acc2, acc7):
        with pytest.raises(InputError, match=words):
            metric(y, prediction)


def test_sentiment_has_one_target_and_two_conventions():
    for metric in (acc2, acc7):
        with pytest.raises(InputError, match=r"one sentiment per sample.*2 targets"):
            metric(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(UnknownNameError, match="excluded, positive"):
        acc2([1.0], [1.0], zeros="dropped")
