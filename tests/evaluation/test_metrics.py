"""The registry of metrics, and `evaluate`."""

import numpy as np
import pytest

from consilience.core.errors import InputError, UnknownNameError, UnsupportedError
from consilience.evaluation import METRICS, Metric, accuracy, evaluate, find_metric, nll
from consilience.evaluation.metrics import ALSO_CALLED

Y = np.array(["b", "a", "b", "a"])
P = np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
PREDICTION = np.array(["b", "a", "a", "a"])


def test_the_usual_metrics_of_a_classification():
    measured = evaluate("classification", Y, PREDICTION, P, classes=["a", "b"])
    assert list(measured) == ["accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece"]
    assert measured["accuracy"] == accuracy(Y, PREDICTION)
    assert measured["nll"] == nll(Y, P, classes=["a", "b"])
    assert all(type(value) is float for value in measured.values())


def test_without_probabilities_only_labels_are_judged():
    assert list(evaluate("classification", Y, PREDICTION)) == ["accuracy", "balanced_accuracy", "macro_f1"]


def test_the_usual_metrics_of_a_regression_leave_sentiment_out():
    y = np.array([-1.0, 0.0, 2.0])
    assert list(evaluate("regression", y, y)) == ["mse", "mae", "pearson"]
    measured = evaluate("regression", y, np.array([-1.0, -1.0, 2.0]), metrics=["acc2", "acc2_nonzero"])
    assert measured == pytest.approx({"acc2": 2 / 3, "acc2_nonzero": 1.0})


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.task == "regression"])
def test_a_metric_says_whether_it_judges_several_targets(name):
    two = np.array([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.0]])
    assert find_metric(name, "regression", targets=1) is METRICS[name]
    if METRICS[name].one_target:
        with pytest.raises(UnsupportedError, match=f"{name!r} cannot judge 2 targets: acc2, acc2_nonzero, acc7 judge"):
            find_metric(name, "regression", targets=2)
        with pytest.raises(InputError, match="got 2 targets"):
            METRICS[name](two, two)
    else:
        assert find_metric(name, "regression", targets=2)(two, two) in (0.0, pytest.approx(1.0))


def test_weights_reach_every_metric():
    weight = np.array([1.0, 1.0, 0.0, 1.0])
    weighted = evaluate("classification", Y, PREDICTION, P, classes=["a", "b"], weight=weight)
    kept = weight > 0
    assert weighted == pytest.approx(evaluate("classification", Y[kept], PREDICTION[kept], P[kept], classes=["a", "b"]))


@pytest.mark.parametrize("name", METRICS)
def test_the_registry_says_which_way_is_better(name):
    metric = find_metric(name)
    if metric.task == "classification":
        y = np.array([0, 1, 0, 1, 1])
        sure = np.array([[0.95, 0.05], [0.05, 0.95]])[y]
        good = metric(y, y, sure)
        bad = metric(y, 1 - y, 1 - sure)
    else:
        y = np.array([-2.0, -1.0, 0.5, 1.0, 3.0])
        good, bad = metric(y, y), metric(y, -y)
    assert good > bad if metric.larger_is_better else good < bad


def test_a_metric_of_ones_own():
    def errors(y, prediction, weight=None):
        return float(np.sum(np.asarray(y) != prediction))

    own = Metric("errors", "classification", errors, larger_is_better=False)
    assert evaluate("classification", Y, PREDICTION, metrics=[own, "accuracy"]) == {"errors": 1.0, "accuracy": 0.75}
    assert evaluate("classification", Y, PREDICTION, metrics="accuracy") == {"accuracy": 0.75}


def test_metrics_are_found_by_the_names_of_scikit_learn():
    assert find_metric("roc_auc") is METRICS["auroc"]
    assert all(name in METRICS for name in ALSO_CALLED.values())
    assert not ALSO_CALLED.keys() & METRICS.keys()
    measured = evaluate("classification", Y, PREDICTION, P, metrics=["log_loss", "macro_recall"], classes=["a", "b"])
    assert list(measured) == ["nll", "balanced_accuracy"]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'accuracy'"):
        evaluate("classification", Y, PREDICTION, metrics=["acuracy"])
    with pytest.raises(UnsupportedError, match="'mse' serves regression, not classification; for that: accuracy"):
        evaluate("classification", Y, PREDICTION, metrics=["mse"])
    with pytest.raises(InputError, match="'nll' needs probabilities"):
        evaluate("classification", Y, PREDICTION, metrics=["nll"])
    with pytest.raises(InputError, match="'accuracy' needs predictions"):
        evaluate("classification", Y, None, P, metrics=["accuracy"])
    with pytest.raises(UnknownNameError, match="unknown task_kind 'ranking'"):
        evaluate("ranking", Y, PREDICTION)


@pytest.mark.parametrize("name", METRICS)
def test_a_resampled_metric_is_the_metric_of_the_repeated_samples(name):
    """What the bootstrap computes in one matrix product, against drawing the rows and calling the metric."""
    metric, rng = METRICS[name], np.random.default_rng(3)
    if metric.task == "classification":
        y, probabilities = rng.integers(0, 4, 60), rng.dirichlet(np.ones(4), 60)
        given = probabilities if metric.needs_probabilities else probabilities.argmax(axis=1)
    else:
        y, given = rng.integers(-3, 4, 60) * 1.0, rng.normal(0, 2, 60)
    counts = rng.multinomial(60, np.full(60, 1 / 60), 25)
    resampled = metric.resampler(y, given)(counts.astype(float))
    by_hand = [metric.function(np.repeat(y, row), np.repeat(given, row, axis=0)) for row in counts]
    np.testing.assert_allclose(resampled, by_hand, rtol=1e-9)
    assert metric.per_sample == (metric.combine is None and metric.resample is None)
    assert not metric.called
    own = Metric(name, metric.task, metric.function, metric.needs_probabilities)
    np.testing.assert_allclose(own.resampler(y, given)(counts.astype(float)), by_hand, rtol=1e-9)


def test_a_resample_without_spread_has_no_correlation():
    resampled = METRICS["pearson"].resampler(np.arange(3.0), np.array([1.0, 2.0, 4.0]))
    assert np.isnan(resampled(np.array([[0.0, 3.0, 0.0]]))).all()


def test_a_mean_over_samples_gives_its_terms():
    with pytest.raises(InputError, match="metric 'own' is per_sample, so it needs terms"):
        Metric("own", "regression", lambda y, prediction, weight=None: 0.0, per_sample=True)


@pytest.mark.parametrize(
    ("task", "suggested"), [("classification", "accuracy"), ("regression", "acc2"), (None, "accuracy")]
)
def test_the_metric_suggested_is_one_of_the_task(task, suggested):
    with pytest.raises(UnknownNameError, match=f"unknown metric 'acc': did you mean '{suggested}'"):
        find_metric("acc", task)
