"""`refit=True`: the model is trained once more on all samples, for the steps that early stopping found."""

import numpy as np
import pandas as pd
import pytest
import torch

import consilience as cs
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier, FusionRegressor
from consilience.estimators.fusion import hold_out_rows
from consilience.training import Model, Trainer, time_limit
from consilience.training.step_counts import found_steps


def samples_of(n=120, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    a, b = random.normal(size=(n, 4)), random.normal(size=(n, 3))
    a[:, :2] += np.array([[1.5, 0], [0, 1.5], [-1, -1]])[y]
    return Samples.of({"a": a, "b": b + y[:, None]}, y)


def fit(train=None, method="late", **more):
    chosen = {"steps": 60, "least_steps": 0, "patience": 3, "device": "cpu", "encoders": None, "validation": 0.25}
    return FusionClassifier(method, **{**chosen, **more}).fit(samples_of() if train is None else train)


def weights(model):
    return torch.cat([weight.flatten() for weight in model.model_.method.state_dict().values()])


@pytest.mark.parametrize("method", ["late", "concat", "best-unimodal"])
def test_it_is_a_training_on_all_samples_for_the_steps_of_the_first(method):
    train = samples_of()
    first, final = fit(train, method), fit(train, method, refit=True)
    assert len(final.model_.logs) >= 2 * len(first.model_.logs)
    held = hold_out_rows(train, 0.25, "classification", 0)
    steps = found_steps(first.model_.logs)
    alone = Model.fit(
        method, train[~held], train[held], trainer=Trainer(steps=60, least_steps=0, patience=3, device="cpu")
    )
    assert found_steps(alone.logs) == steps
    again = Model.fit(
        method, train, trainer=Trainer(steps=60, least_steps=0, patience=3, device="cpu", refit_steps=steps)
    )
    test = samples_of(30, 1)
    assert torch.equal(again.predict(test, device="cpu").output, final.model_.predict(test, device="cpu").output)
    assert not torch.equal(weights(first), weights(final))
    assert final.model_.rows == 120


def test_off_by_default():
    assert len(fit().model_.logs) == 1
    assert FusionClassifier().refit is False


def test_a_method_that_learns_from_all_samples_anyway_is_not_trained_twice():
    settings = {"folds": 2}
    first, final = (fit(method="bayes", settings=settings, refit=refit) for refit in (False, True))
    assert torch.equal(weights(first), weights(final))
    assert len(first.model_.logs) == len(final.model_.logs)


def test_sets_are_calibrated_with_the_first_model():
    test = samples_of(300, 1)
    first, final = fit(samples_of(300)), fit(samples_of(300), refit=True)
    assert final.calibration_.source == "validation"
    mask = np.ones((1, 2), dtype=bool)
    assert final.calibration_.quantiles("aps", mask, 0.9) == first.calibration_.quantiles("aps", mask, 0.9)
    held = final.predict_set(test)[np.arange(300), test.y]
    assert 0.8 < held.mean() < 1


def test_folds_of_a_calibration_are_refitted_too():
    model = fit(refit=True, calibration=2)
    assert model.calibration_.source == "cross-fitting"


def test_what_it_needs():
    train, validation = samples_of(), samples_of(60, 1)
    with pytest.raises(InputError, match="give validation a share"):
        fit(train, refit=True, validation=validation)
    with pytest.raises(InputError, match="calibration='validation' keeps them out"):
        fit(train, refit=True, calibration="validation")
    assert len(fit(train, refit=True, validation=None).model_.logs) == 1  # nothing was held out


def test_saved_and_resumed(tmp_path):
    test = samples_of(30, 1)
    model = fit(refit=True, training={"checkpoint": str(tmp_path / "checkpoint")})
    again = cs.load(model.save(tmp_path / "model"))
    assert again.refit is True
    assert np.array_equal(again.predict_proba(test), model.predict_proba(test))
    resumed = fit(refit=True, training={"checkpoint": str(tmp_path / "checkpoint")})
    assert np.array_equal(resumed.predict_proba(test), model.predict_proba(test))


def test_it_reads_new_files_and_frames_as_the_first_model_did(tmp_path):
    samples = samples_of()
    frame = pd.DataFrame(samples["a"], columns=["a1", "a2", "a3", "a4"]).assign(b=samples["b"][:, 0], y=samples.y)
    file = tmp_path / "table.csv"
    frame.to_csv(file, index=False)
    train = cs.load_data(file, target="y", modalities={"a": ["a1", "a2", "a3", "a4"], "b": ["b"]}).train
    model = fit(train, refit=True)
    there = model.model_.read(file)
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(there))
    again = cs.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert np.array_equal(again.predict_proba(again.model_.read(file)), model.predict_proba(there))


def test_a_time_limit_counts_for_both_trainings(monkeypatch):
    assert started(monkeypatch, refit=True, time_limit=1000.0) == {1000.0, 450.0}  # of all, and of the first


def test_nothing_is_kept_for_a_refit_that_does_not_come(monkeypatch):
    given = {"method": "bayes", "settings": {"folds": 2}, "steps": 20, "time_limit": 1000.0}
    assert max(started(monkeypatch, **given, refit=True) - {1000.0}) == max(started(monkeypatch, **given) - {1000.0})
    assert started(monkeypatch, refit=True, validation=None, time_limit=1000.0) == {1000.0}


def test_the_warning_names_the_limit_of_the_user(caplog):
    fit(refit=True, time_limit=1e-3, patience=None)
    assert caplog.text.count("the time limit of 0.001 s ended its training early") == 1


def started(monkeypatch, **given):
    """The seconds of all deadlines that `fit` starts, while the clock stands still."""
    seconds = set()
    start = time_limit.Deadline.start
    with monkeypatch.context() as patch:
        patch.setattr(time_limit, "now", lambda: 0.0)
        patch.setattr(time_limit.Deadline, "start", lambda self: (seconds.add(self.seconds), start(self))[1])
        fit(**given)
    return seconds


def test_missing_modalities_that_are_filled_in_and_a_regression():
    train = samples_of()
    present = {"a": np.arange(120) % 5 != 0}
    model = fit(Samples.of(train, present=present), refit=True, impute="m2vae")
    assert np.isfinite(model.predict_proba(train.only(["b"]))).all()
    number = FusionRegressor("concat", refit=True, steps=50, device="cpu").fit(train, train.y.astype(float))
    assert number.model_.rows == 120
