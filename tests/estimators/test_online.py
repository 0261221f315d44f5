"""`partial_fit` of estimators: against fits on pooled rows, saved and loaded, and refused where it means nothing."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import consilience as cs
from consilience.bayes import rule_update
from consilience.bayes.bayes_rule import BayesRule
from consilience.core.errors import InputError
from consilience.estimators import online


def stream(seed, n, shares=(0.5, 0.5), gain=1.0):
    rng = np.random.default_rng(seed)
    y = rng.choice(2, size=n, p=shares)
    return {name: gain * (1.5 * np.eye(2)[y] + rng.normal(size=(n, 2))) for name in ("a", "b")}, y


def test_of_opinions_it_is_near_a_fit_on_all_rows():
    (X, y), (new, labels) = stream(0, 1000), stream(1, 1500)
    model = cs.BayesFusion(kappa="none", calibration="temperature").fit(X, y)
    pooled = cs.BayesFusion(kappa="none", calibration="temperature").fit(
        {name: np.concatenate([X[name], new[name]]) for name in X}, np.concatenate([y, labels])
    )
    old = model.rule_.temperature.numpy().copy()
    for start in range(0, 1500, 500):  # in three parts
        model.partial_fit(
            {name: values[start : start + 500] for name, values in new.items()}, labels[start : start + 500]
        )
    assert model.evidence_ == pooled.evidence_ == 2502
    np.testing.assert_allclose(model.rule_.target, pooled.rule_.target, rtol=1e-9)
    np.testing.assert_allclose(model.rule_.temperature, pooled.rule_.temperature, rtol=0.02)
    assert (
        abs(model.rule_.temperature.numpy() - pooled.rule_.temperature.numpy()).max()
        < abs(old - pooled.rule_.temperature.numpy()).max()
    )


def test_both_parts_of_the_default_calibration_follow():
    (X, y), (new, labels), (test, _) = stream(0, 1000), stream(1, 1500, gain=3.0), stream(2, 500, gain=3.0)
    model = cs.BayesFusion(kappa="none").fit(X, y)
    assert model.rule_.calibration == "auto"
    before = model.predict_proba(test)
    pooled = cs.BayesFusion(kappa="none").fit(new, labels)
    plain, robust = model.rule_.plain_temperature.clone(), model.rule_.temperature.clone()
    model.partial_fit(new, labels, old_rows=0)
    assert (model.rule_.plain_temperature > 2 * plain).all()
    assert (model.rule_.temperature > 2 * robust).all()
    after, wanted = model.predict_proba(test), pooled.predict_proba(test)
    assert abs(after - wanted).max() < abs(before - wanted).max() / 2
    assert abs(after - wanted).mean() < abs(before - wanted).mean() / 3


def test_a_saved_fusion_goes_on_where_it_stopped(tmp_path):
    (X, y), (new, labels) = stream(0, 200), stream(1, 100, shares=(0.9, 0.1))
    model = cs.BayesFusion().fit(X, y)
    loaded = cs.load(model.save(tmp_path / "m"))
    for each in (model, loaded):
        each.partial_fit(new, labels)
    np.testing.assert_array_equal(model.predict_proba(new), loaded.predict_proba(new))
    again = cs.load(loaded.save(tmp_path / "n"))
    assert again.evidence_ == 302
    np.testing.assert_array_equal(again.predict_proba(new), loaded.predict_proba(new))


@pytest.mark.parametrize("method", ["bayes", "bayes-robust", "auto"])
def test_of_a_trained_method_class_shares_and_temperature_follow(method, tmp_path):
    (X, y), (new, labels) = stream(0, 200), stream(1, 400, shares=(0.95, 0.05))
    test, truth = stream(2, 400, shares=(0.95, 0.05))
    settings = {"epochs": 3, "device": "cpu", "random_state": 0}
    model = cs.FusionClassifier(method, **settings).fit(X, y)
    before = model.predict_proba(test)
    weights = {name: value.clone() for name, value in model.model_.method.state_dict().items() if "experts" in name}
    model.partial_fit(new, labels, old_rows=20)
    after = model.predict_proba(test)
    rows = np.arange(len(truth))
    assert np.log(after[rows, truth]).mean() > np.log(before[rows, truth]).mean() + 0.02
    np.testing.assert_allclose(after.sum(axis=1), 1)
    assert model.evidence_ == 420
    state = model.model_.method.state_dict()
    assert all((state[name] == value).all() for name, value in weights.items()), "no network has changed"
    loaded = cs.load(model.save(tmp_path / "m"))
    np.testing.assert_allclose(loaded.predict_proba(test), after, atol=1e-6)
    assert loaded.evidence_ == 420
    with pytest.raises(InputError, match="no calibration samples"):
        model.predict_set(test)


def test_prior_shift_alone_moves_the_posterior_by_the_ratio_of_shares():
    (X, y), (new, labels) = stream(0, 300), stream(1, 200, shares=(0.9, 0.1))
    model = cs.FusionClassifier("bayes-robust", epochs=3, device="cpu", random_state=0).fit(X, y)
    before, temperature = model.predict_proba(new), model.model_.method.rule.temperature.clone()
    model.partial_fit(new, labels)
    rule = model.model_.method.rule
    rule.learn(temperature=temperature)
    ratio = (rule.target / rule.prior).numpy().astype(float)
    expected = before * ratio / (before * ratio).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(new), expected, atol=1e-5)


def test_what_is_refused(tmp_path):
    X, y = stream(0, 60)
    late = cs.FusionClassifier("late", epochs=1, device="cpu").fit(X, y)
    with pytest.raises(AttributeError, match="partial_fit"):
        late.partial_fit(X, y)
    assert not hasattr(cs.BayesFusion(), "partial_fit"), "scikit-learn would begin with it"
    model = cs.BayesFusion().fit(X, y)
    with pytest.raises(InputError, match="7"):
        model.partial_fit(X, np.full(60, 7))
    with pytest.raises(InputError, match="old_rows"):
        model.partial_fit(X, y, old_rows=-1)
    del model.evidence_  # as of a model that an older version has saved
    with pytest.raises(InputError, match="give old_rows"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, old_rows=60)
    assert model.evidence_ == 120
    assert json.loads((model.save(tmp_path / "m") / "model.json").read_text())["evidence"] == 120


def shifted_within(model, monkeypatch, name, X, y):
    """Call partial_fit when a prediction has read the rule once and will read it again."""
    calls, method = [], getattr(BayesRule, name)

    def calibrated(rule, *arguments, **named):
        found = method(rule, *arguments, **named)
        calls.append(name)
        if len(calls) == 1:
            model.partial_fit(X, y, old_rows=0)
        return found

    monkeypatch.setattr(BayesRule, name, calibrated)
    return calls


@pytest.mark.parametrize("method", ["bayes", "bayes-robust", "auto"])
def test_a_prediction_beside_it_is_of_one_model_for_all_its_rows(method, monkeypatch):
    """More rows than a batch has, so that the rule is read before and after the update."""
    (X, y), (new, labels), (test, _) = stream(0, 200), stream(1, 300, shares=(0.9, 0.1), gain=4.0), stream(2, 700)
    model = cs.FusionClassifier(method, epochs=2, device="cpu", random_state=0, calibration=None).fit(X, y)
    before = model.predict_proba(test)
    calls = shifted_within(model, monkeypatch, "calibrated", new, labels)
    beside = model.predict_proba(test)
    assert len(calls) > 2, "the rule is read again after the update"
    np.testing.assert_array_equal(beside, before)
    assert abs(model.predict_proba(test) - before).max() > 0.01, "the next prediction is of the model after it"


@pytest.mark.parametrize("settings", [{}, {"target_prior": "em"}, {"reliability": "graded"}])
def test_a_fusion_beside_it_is_of_one_rule(settings, monkeypatch):
    (X, y), (new, labels), (test, _) = stream(0, 300), stream(1, 300, shares=(0.9, 0.1), gain=4.0), stream(2, 100)
    model = cs.BayesFusion(**settings).fit(X, y)
    before = model.predict_proba(test)
    shifted_within(model, monkeypatch, "calibrated", new, labels)
    np.testing.assert_array_equal(model.predict_proba(test), before)
    assert abs(model.predict_proba(test) - before).max() > 0.001


def test_no_set_is_of_new_probabilities_and_old_scores(monkeypatch):
    (X, y), (new, labels), (test, truth) = stream(0, 300), stream(1, 300, gain=4.0), stream(2, 200)
    model = cs.BayesFusion().fit(X, y).calibrate(test, truth)
    before = model.predict_set(test)
    shifted_within(model, monkeypatch, "calibrated", new, labels)
    with pytest.raises(InputError, match="no calibration samples"):
        model.predict_set(test)
    assert before.shape == (200, 2)


def test_an_update_that_fails_changes_nothing(monkeypatch):
    (X, y), (new, labels), (test, truth) = stream(0, 200), stream(1, 100), stream(2, 100)
    model = cs.BayesFusion().fit(X, y).calibrate(test, truth)
    before, sets = model.predict_proba(test), model.predict_set(test)
    fit, calls = rule_update.update_expert, []

    def fails(*given, **named):
        calls.append(len(calls))
        if len(calls) == 2:  # of the second expert
            raise MemoryError
        return fit(*given, **named)

    monkeypatch.setattr(rule_update, "update_expert", fails)
    with pytest.raises(MemoryError):
        model.partial_fit(new, labels)
    np.testing.assert_array_equal(model.predict_proba(test), before)
    np.testing.assert_array_equal(model.predict_set(test), sets)
    assert model.evidence_ == 202


def test_no_update_of_several_threads_is_lost(monkeypatch):
    (X, y), (test, _) = stream(0, 200), stream(9, 50)
    later = [stream(1, 40, shares=(0.9, 0.1)), stream(2, 60, shares=(0.2, 0.8))]
    one_by_one = []
    for order in (later, later[::-1]):
        model = cs.BayesFusion().fit(X, y)
        for part in order:
            model.partial_fit(*part)
        one_by_one.append(model.predict_proba(test))
    evidence, model, update = model.evidence_, cs.BayesFusion().fit(X, y), online.update_rule

    def slowly(*given, **named):
        time.sleep(0.2)  # long enough for the other thread to begin
        return update(*given, **named)

    monkeypatch.setattr(online, "update_rule", slowly)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda part: model.partial_fit(*part), later))
    assert model.evidence_ == evidence
    assert min(abs(model.predict_proba(test) - expected).max() for expected in one_by_one) < 1e-12


def test_a_forked_process_does_not_wait_for_the_update_of_another():
    (X, y), later = stream(0, 200), stream(1, 40)
    model = cs.BayesFusion().fit(X, y)
    held = threading.Event(), threading.Event()

    def hold():
        with online._updating(model):
            held[0].set()
            held[1].wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held[0].wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends it if it waits
        model.partial_fit(*later)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    held[1].set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0
