"""The time limit of `fit`: one for everything that is trained in it."""

import numpy as np
import pytest

from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier, FusionRegressor
from consilience.estimators.fit_time import FitTime
from consilience.training import time_limit
from consilience.training.loop import TrainingRun
from consilience.training.stacked_training import Stack
from consilience.training.time_limit import Deadline, said_before, saying_once


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock(monkeypatch):
    """Every epoch, and every part of a training in lockstep, takes a tenth of a second."""
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    for kind, name in ((Stack, "train_epoch"), (TrainingRun, "_train_batches")):
        plain = getattr(kind, name)

        def slow(self, *rest, plain=plain, **more):
            clock.time += 0.1
            return plain(self, *rest, **more)

        monkeypatch.setattr(kind, name, slow)
    return clock


def samples_of(n=90):
    random = np.random.default_rng(0)
    y = np.arange(n) % 3
    return Samples.of({"a": random.normal(size=(n, 4)) + y[:, None], "b": random.normal(size=(n, 3)) - y[:, None]}, y)


def fit(method="late", kind=FusionClassifier, **more):
    chosen = {"device": "cpu", "encoders": None, "patience": None, "steps": 5000, "validation": 0.2}
    return kind(method, **{**chosen, **more}).fit(samples_of())


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"calibration": 3},
        {"calibration": 3, "refit": True},
        {"refit": True},
        {"impute": "m2vae", "calibration": 2},
        {"training": {"time_limit": 20}, "calibration": 3},
        {"method": "bayes", "settings": {"folds": 2}, "calibration": 2, "refit": True},
    ],
)
def test_it_is_the_limit_of_everything_that_is_trained(clock, caplog, given):
    if "training" not in given:
        given = {**given, "time_limit": 20}
    model = fit(**given)
    assert 15 < clock.time - 100 <= 24
    assert any(log.out_of_time for log in model.model_.logs)
    assert caplog.text.count("the time limit of 20 s ended") == 1


def test_folds_of_auto_say_once_what_is_left_out(clock, caplog):
    fit("auto", encoders="auto", settings={"folds": 2}, time_limit=1e-6, calibration=2)
    assert caplog.text.count("left out") == 1
    assert "there was no time within 1e-06 s" in caplog.text


def test_a_limit_that_is_not_reached_changes_nothing():
    test = samples_of(30)
    given = {"steps": 20, "calibration": 2, "kind": FusionRegressor, "refit": True}
    plain, limited = fit(**given), fit(**given, time_limit=1e6)
    assert np.array_equal(plain.predict_interval(test), limited.predict_interval(test))


def test_what_one_does_not_need_is_left_to_others(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    time = FitTime(Deadline(60), folds=2, imputes=True)
    assert time.of_imputer().seconds == 10
    clock.time += 5
    first = time.of_model(refit=True)
    assert (first.seconds, first.kept) == pytest.approx((0.45 * 11, 0.55 * 11))
    assert (first.anew().seconds, first.anew(refit=False).seconds) == pytest.approx((4.95, 11))
    clock.time += 5
    time.keep_for_refit()
    assert time.of_fold().seconds == pytest.approx(50 * 2 / 4.55)
    clock.time += 100
    assert time.of_fold().seconds == 0
    assert FitTime(None, 2).of_fold() is None


def test_without_a_block_every_warning_is_said():
    assert not said_before("a")
    with saying_once():
        assert not said_before("a")
        with saying_once():
            assert said_before("a")
            assert not said_before("b")
        assert said_before("b")
    assert not said_before("a")
