"""Classification metrics against scikit-learn and torchmetrics, and the invariances every metric has."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from torchmetrics.functional.classification import multiclass_calibration_error

from consilience.core.errors import InputError
from consilience.evaluation import (
    accuracy,
    balanced_accuracy,
    brier,
    brier_score_loss,
    ece,
    macro_f1,
    nll,
    reliability_bins,
)
from consilience.evaluation.classification import RunningScores

ON_LABELS = {
    accuracy: sklearn_metrics.accuracy_score,
    balanced_accuracy: sklearn_metrics.balanced_accuracy_score,
    macro_f1: lambda *args, **more: sklearn_metrics.f1_score(*args, average="macro", zero_division=0, **more),
}
ON_PROBABILITIES = (nll, brier, ece)


def draw(seed, n=60, classes=4):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return rng, y, rng.dirichlet(np.full(classes, 0.5), n)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_metrics_of_labels_agree_with_scikit_learn(seed, weighted, named):
    rng, y, p = draw(seed)
    weight = rng.uniform(0.1, 3, len(y)) if weighted else None
    prediction = p.argmax(axis=1)
    if named:
        names = np.array(["gull", "tern", "skua", "auk"])
        y, prediction = names[y], names[prediction]
    for ours, theirs in ON_LABELS.items():
        assert ours(y, prediction, weight=weight) == pytest.approx(theirs(y, prediction, sample_weight=weight))


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_nll_and_brier_agree_with_scikit_learn(seed, weighted):
    rng, y, p = draw(seed)
    weight = rng.uniform(0.1, 3, len(y)) if weighted else None
    more = {"sample_weight": weight, "labels": np.arange(4)}
    assert nll(y, p, weight=weight) == pytest.approx(sklearn_metrics.log_loss(y, p, **more))
    score = sklearn_metrics.brier_score_loss(y, p, scale_by_half=False, **more)
    assert brier(y, p, weight=weight) == pytest.approx(score)
    assert brier_score_loss(y, p, weight=weight) == pytest.approx(sklearn_metrics.brier_score_loss(y, p, **more))
    two = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True)
    half = sklearn_metrics.brier_score_loss(y % 2, two[:, 1], sample_weight=weight)
    assert brier_score_loss(y % 2, two, weight=weight) == pytest.approx(half)
    assert brier(y % 2, two, weight=weight) == pytest.approx(2 * half)


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("seed", range(5))
def test_ece_agrees_with_torchmetrics(seed, bins):
    _, y, p = draw(seed, n=500)
    theirs = multiclass_calibration_error(torch.tensor(p), torch.tensor(y), num_classes=4, n_bins=bins, norm="l1")
    assert ece(y, p, bins=bins) == pytest.approx(theirs.item(), abs=1e-6)


def test_ece_of_a_calibrated_and_of_an_overconfident_forecast():
    y = np.array([0, 0, 0, 1])
    assert ece(y, np.tile([0.75, 0.25], (4, 1))) == pytest.approx(0)
    assert ece(y, np.tile([1.0, 0.0], (4, 1))) == pytest.approx(0.25)


def test_a_bin_contains_its_upper_edge():
    p = [[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]]
    bins = reliability_bins([0, 1, 0], p, bins=4)
    assert bins.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert bins.share == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert np.isnan(bins.confidence[0])
    assert np.isnan(bins.accuracy[0])
    assert bins.confidence[1:].tolist() == [0.5, 0.75, 1]
    assert bins.accuracy[1:].tolist() == [1, 0, 1]


def test_confidence_a_rounding_error_above_one_stays_in_the_last_bin():
    assert reliability_bins([0], [[1.0 + 1e-7, 0.0]]).share[-1] == 1


def test_certain_and_wrong_costs_the_documented_36_nats():
    p = [[1.0, 0.0], [1.0, 0.0]]
    assert nll([0, 0], p) == 0
    assert nll([0, 1], p) == pytest.approx(-np.log(np.finfo(float).eps) / 2)
    assert brier([1, 1], p) == 2


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_order_does_not_matter_and_weights_are_repetition(seed):
    rng, y, p = draw(seed, n=30)
    prediction = p.argmax(axis=1)
    order = rng.permutation(len(y))
    times = rng.integers(0, 4, len(y))
    times[0] = 1
    again = np.repeat(np.arange(len(y)), times)
    for metric, given_to_it in [(metric, prediction) for metric in ON_LABELS] + [
        (metric, p) for metric in ON_PROBABILITIES
    ]:
        assert metric(y[order], given_to_it[order]) == pytest.approx(metric(y, given_to_it))
        repeated = metric(y[again], given_to_it[again])
        assert metric(y, given_to_it, weight=times) == pytest.approx(repeated, abs=1e-12)


def test_a_class_without_weight_is_no_class():
    for metric in (balanced_accuracy, macro_f1):
        assert metric([0, 1, 2], [0, 1, 3], weight=[1, 1, 0]) == 1


def test_classes_name_the_columns_in_any_order():
    _, y, p = draw(3)
    names = np.array(["d", "b", "a", "c"])
    for metric in ON_PROBABILITIES:
        assert metric(names[y], p, classes=names) == pytest.approx(metric(y, p))
        assert metric(names[y].astype(object), p, classes=list(names)) == pytest.approx(metric(y, p))


def test_tensors_are_accepted_in_any_precision():
    _, y, p = draw(4)
    tensor = torch.tensor(p, dtype=torch.float32, requires_grad=True)
    assert nll(torch.tensor(y), tensor) == pytest.approx(nll(y, p), rel=1e-5)
    assert accuracy(torch.tensor(y), tensor.argmax(dim=1)) == accuracy(y, p.argmax(axis=1))
    assert brier(torch.tensor([0, 1]), torch.tensor([[0.5, 0.5], [0.25, 0.75]]).bfloat16()) == 0.3125


@pytest.mark.parametrize(
    ("y", "probabilities", "classes", "words"),
    [
        ([0, 1], [[0.5, 0.4], [0.5, 0.5]], None, "row 0 .*sums to 0.9.*softmax"),
        ([0, 1], [[0.5, 0.5], [1.5, -0.5]], None, "≥ 0 .*row 1"),
        ([0, 1], [[0.5, 0.5], [np.nan, 1.0]], None, "NaN or infinity .row 1"),
        ([0, 1], [0.5, 0.5], None, r"\[n, class\].*\[2\]"),
        ([0, 1], [[0.5, 0.5]], None, "2 true labels but 1 probabilities"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], None, "label 2 .row 1. is no column"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], None, "give classes"),
        (["a", "z"], [[0.5, 0.5], [0.5, 0.5]], ["a", "b"], "label 'z' .row 1. is not among the classes"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], ["a", "b", "c"], "2 different labels"),
        (["a", "b"], [[0.5, 0.5], [0.5, 0.5]], ["a", "a"], "2 different labels"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.5]], ["a", "b"], "both as text"),
    ],
)
def test_probabilities_that_do_not_fit_are_refused(y, probabilities, classes, words):
    for metric in ON_PROBABILITIES:
        with pytest.raises(InputError, match=words):
            metric(y, probabilities, classes=classes)


@pytest.mark.parametrize(
    ("y", "prediction", "weight", "words"),
    [
        ([0, 1], [0], None, "2 true labels but 1 predictions"),
        ([0, 1], ["a", "b"], None, "can never be equal"),
        ([0, 1], [0.5, 1.0], None, "predicted labels: .*continuous"),
        ([0.5, 1], [0, 1], None, "true labels: .*continuous"),
        ([0, 1], [[0, 1], [1, 0]], None, "predicted labels: .*shape"),
        ([], [], None, "empty"),
        ([0, 1], [0, 1], [1, -1], "weights must be finite and ≥ 0"),
        ([0, 1], [0, 1], [0, 0], "all zero"),
        ([0, 1], [0, 1], [1], "1 rows"),
    ],
)
def test_labels_and_weights_that_do_not_fit_are_refused(y, prediction, weight, words):
    for metric in ON_LABELS:
        with pytest.raises(InputError, match=words):
            metric(y, prediction, weight=weight)


def test_a_diagram_without_bins_is_refused():
    with pytest.raises(InputError, match="at least one bin"):
        ece([0, 1], [[0.5, 0.5], [0.5, 0.5]], bins=0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_into_batches_gives_the_scores_of_the_whole(seed, cuts):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.full(4, 0.3), size=60), rng.integers(0, 4, 60)
    scores = RunningScores(bins=7)
    for rows in np.split(np.arange(60), sorted(cuts)):
        scores.update(y[rows], p[rows])
    assert scores.samples == 60
    assert scores.accuracy == pytest.approx(accuracy(y, p.argmax(axis=1)))
    assert scores.nll == pytest.approx(nll(y, p))
    assert scores.ece == pytest.approx(ece(y, p, bins=7))
    whole = reliability_bins(y, p, bins=7)
    for name in ("edges", "share", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(scores.bins, name), getattr(whole, name))


def test_nothing_seen_is_nothing_known():
    scores = RunningScores()
    assert scores.samples == 0
    assert all(math.isnan(score) for score in (scores.accuracy, scores.nll, scores.ece))
    assert not scores.bins.share.any()
