"""Metrics of ranking against scikit-learn, and concordance against counting all pairs."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from consilience.core.errors import InputError
from consilience.evaluation import auroc, average_precision, concordance
from consilience.evaluation.ranking_metrics import resample_auroc, resample_average_precision, resample_concordance

SEEDS = st.integers(0, 10**6)


def draw(seed, classes, n=60, ties=False):
    """Labels, probabilities, many of them equal with `ties`, and weights."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    p = rng.dirichlet(np.full(classes, 0.5), n)
    if ties:
        p = (p * 4).round() + 1
        p /= p.sum(axis=1, keepdims=True)
    return y, p, rng.uniform(0.1, 3, n)


@given(SEEDS, st.integers(2, 5), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_areas_agree_with_scikit_learn(seed, classes, ties, weighted):
    y, p, weight = draw(seed, classes, ties=ties)
    more = {"sample_weight": weight if weighted else None}
    ours = {"weight": weight if weighted else None}
    score = p[:, 1] if classes == 2 else p
    area = sklearn_metrics.roc_auc_score(y, score, multi_class="ovr", **more)
    assert auroc(y, p, **ours) == pytest.approx(area)
    targets = y if classes == 2 else np.eye(classes)[y]
    precision = sklearn_metrics.average_precision_score(targets, score, **more)
    assert average_precision(y, p, **ours) == pytest.approx(precision)


def test_classes_name_the_columns_and_classes_without_samples_do_not_count():
    y, p, _ = draw(0, 3)
    names = np.array(["b", "c", "a"])
    for metric in (auroc, average_precision):
        assert metric(names[y], p, classes=names) == pytest.approx(metric(y, p))
        some = y < 2
        kept = [metric(np.where(y[some] == k, 1, 0), np.stack([1 - p[some, k], p[some, k]], axis=1)) for k in (0, 1)]
        assert metric(y[some], p[some]) == pytest.approx(np.mean(kept))
    assert np.isnan(auroc([1, 1], [[0.5, 0.5], [0.1, 0.9]]))
    assert average_precision([1, 1], [[0.5, 0.5], [0.1, 0.9]]) == 1
    assert np.isnan(average_precision([0, 0], [[0.5, 0.5], [0.1, 0.9]]))
    with pytest.raises(InputError, match="sum to one"):
        auroc([0, 1], [[1.0, 1.0], [0.0, 1.0]])


def by_pairs(y, prediction, weight):
    """Harrell's index, one pair after the other."""
    concordant = comparable = 0.0
    for i, j in combinations(range(len(y)), 2):
        if y[i] == y[j]:
            continue
        both = weight[i] * weight[j]
        comparable += both
        order = np.sign(y[i] - y[j]) * np.sign(prediction[i] - prediction[j])
        concordant += both * {1: 1.0, 0: 0.5, -1: 0.0}[order]
    return concordant / comparable


@given(SEEDS, st.integers(2, 40), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_concordance_agrees_with_counting_all_pairs(seed, n, tied_targets, tied_predictions, weighted):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n) if tied_targets else rng.normal(size=n)
    y[0], y[1] = 0, 1
    prediction = rng.integers(0, 4, n) if tied_predictions else rng.normal(size=n)
    weight = rng.integers(0, 3, n) + (np.arange(n) < 2) if weighted else np.ones(n)
    found = concordance(y, prediction, weight=weight)
    assert found == pytest.approx(by_pairs(y, prediction, weight), abs=1e-12)
    turned = concordance(y, -prediction.astype(float), weight=weight)
    assert found + turned == pytest.approx(1)


def test_the_area_of_two_classes_is_a_concordance():
    y, p, weight = draw(3, 2, ties=True)
    assert concordance(y, p[:, 1], weight=weight) == pytest.approx(auroc(y, p, weight=weight))


def test_concordance_of_several_targets_is_their_mean_and_of_equal_ones_undefined():
    rng = np.random.default_rng(0)
    y, prediction = rng.normal(size=(2, 20, 2))
    each = [concordance(y[:, k], prediction[:, k]) for k in (0, 1)]
    assert concordance(y, prediction) == pytest.approx(np.mean(each))
    assert np.isnan(concordance([1.0, 1.0], [0.0, 1.0]))
    assert np.isnan(concordance([1.0], [0.0]))


@pytest.mark.parametrize("resample", [resample_auroc, resample_average_precision])
def test_a_resample_without_a_class_has_no_value(resample):
    y, p, _ = draw(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = resample(y, p)(np.stack([np.ones(60), y == 0, np.zeros(60)]).astype(float))
    assert np.isfinite(found[0])
    assert np.isnan(found[1:]).all()


def test_a_resample_of_one_sample_has_no_concordance():
    drawn = np.array([[0.0, 5.0, 0.0], [1.0, 1.0, 1.0]])
    assert np.isnan(resample_concordance([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])(drawn)).tolist() == [True, False]
