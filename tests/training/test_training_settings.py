import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consilience.core.errors import InputError
from consilience.methods.opinions.late import Late
from consilience.training import Callback, Model, Trainer, TrainingSettings
from consilience.training.optimizers import Phase
from consilience.training.stacked_seeds import fit_together
from consilience.training.training_settings import (
    LARGEST_BATCH,
    LEARNING_RATES,
    LEAST_STEPS,
    PATIENCE_EPOCHS,
    PATIENCE_STEPS,
    SMALLEST_BATCH,
    STEPS,
    ResolvedSettings,
    resolve,
)
from training.toys import Straight, make, make_samples, prepare, same, trainer, weights


@given(st.integers(1, 10**6), st.integers(1, 5), st.sampled_from(sorted(LEARNING_RATES)))
def test_open_settings_follow_the_data(samples, accumulate, optimizer):
    found = resolve(TrainingSettings(accumulate=accumulate, optimizer=optimizer), samples)
    assert isinstance(found, ResolvedSettings)
    powers = [2**power for power in range(30)]
    nearest = min(powers, key=lambda power: abs(math.log(power * 100 / samples)))
    assert found.batch_size == np.clip(nearest, SMALLEST_BATCH, LARGEST_BATCH)
    in_epoch = len(range(0, samples, found.batch_size * accumulate))
    assert (found.epochs - 1) * in_epoch < STEPS <= found.epochs * in_epoch
    assert found.patience >= PATIENCE_EPOCHS
    assert found.patience * in_epoch >= PATIENCE_STEPS
    assert found.patience == PATIENCE_EPOCHS or (found.patience - 1) * in_epoch < PATIENCE_STEPS
    assert (found.lr, found.least_steps, found.steps) == (LEARNING_RATES[optimizer], LEAST_STEPS, None)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_what_is_resolved_stays_so(samples, others):
    found = resolve(TrainingSettings(), samples)
    assert resolve(found, others) == found


def test_what_the_user_chose_stays():
    given = {"epochs": 7, "batch_size": 5, "lr": 0.3, "patience": 2, "least_steps": 9, "clip": 1.0}
    found = resolve(Trainer(**given), 1000)
    assert {name: getattr(found, name) for name in given} == given
    assert resolve(TrainingSettings(steps=90, batch_size=10), 100).epochs == 9
    assert resolve(TrainingSettings(patience=None), 100).patience is None


def test_a_patience_in_epochs_is_meant_as_it_is_given():
    assert resolve(TrainingSettings(patience=3), 1000).least_steps == 0
    assert resolve(TrainingSettings(patience=3, least_steps=50), 1000).least_steps == 50
    assert resolve(TrainingSettings(steps=40), 1000).least_steps == 40


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 3, "steps": 100}, "steps=100 and epochs=3 are two budgets; give one of them"),
        ({"steps": 100, "least_steps": 101}, "least_steps must be at most steps, 100, got 101"),
        ({"least_steps": STEPS + 1}, f"least_steps must be at most steps, {STEPS}, got {STEPS + 1}"),
        ({"least_steps": -1}, "least_steps must be a whole number ≥ 0 or None, got -1"),
        ({"steps": 0}, "steps must be a whole number ≥ 1 or None, got 0"),
        ({"patience": "never"}, "patience must be a whole number ≥ 1, 'auto' or None, got 'never'"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(InputError, match=f"training: {message}"):
        TrainingSettings(**wrong)


class Look(Callback):
    """Keeps the settings of every run."""

    def __init__(self):
        self.seen = []

    def on_train_start(self, run):
        self.seen.append(run.settings)
        assert run.describe()["epochs"] == run.settings.epochs


SAMPLES, VALIDATION = make_samples(90), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


def test_each_run_resolves_by_its_own_samples():
    look = Look()
    shared = Trainer(PREPARATION, steps=30, accumulate=2, device="cpu", callbacks=[look])
    samples = make_samples(500)
    shared.cross_fit(lambda: make(Straight, PREPARATION), samples, folds=2)
    shared.run(make(Straight, PREPARATION), samples)
    assert [settings.epochs for settings in look.seen] == [15, 15, 8]  # of 2 steps each, of 4
    assert [len(log.rows) for log in shared.logs] == [15, 15, 8]


def test_folds_are_trained_as_the_whole_was():
    look = Look()
    shared = Trainer(PREPARATION, steps=30, device="cpu", callbacks=[look], least_steps=0, patience=1)
    log = shared.run(make(Straight, PREPARATION), make_samples(500), VALIDATION)
    same = shared.as_in(log, 500)
    same.cross_fit(lambda: make(Straight, PREPARATION), SAMPLES, folds=2)
    assert {(each.batch_size, each.lr) for each in look.seen} == {(64, 1e-3)}
    assert [each.epochs for each in look.seen] == [4, log.best_epoch + 1, log.best_epoch + 1]
    unvalidated = shared.run(make(Straight, PREPARATION), make_samples(500))
    assert (shared.as_in(unvalidated, 500).epochs, shared.as_in(unvalidated, 500).steps) == (None, 30)


@pytest.mark.parametrize("least", [0, 31, 60])
def test_early_stopping_waits_for_the_least_steps(least):
    how = {"epochs": 30, "patience": 1, "lr": 3.0, "batch_size": 30, "optimizer": "sgd"}  # 3 steps an epoch
    log = trainer(PREPARATION, least_steps=least, **how).run(make(Straight, PREPARATION), SAMPLES, VALIDATION)
    losses = [row["validation_loss"] for row in log.rows]
    stale = [epoch for epoch in range(1, len(losses)) if min(losses[:epoch]) <= losses[epoch]]
    assert len(losses) < 30
    assert len(losses) == 1 + next(epoch for epoch in stale if 3 * (epoch + 1) >= least)
    assert log.best_step == 3 * (log.best_epoch + 1) == 3 * (int(np.argmin(losses)) + 1)


def test_every_phase_has_its_least_steps():
    how = {"epochs": 10, "patience": 1, "lr": 3.0, "batch_size": 30, "optimizer": "sgd", "least_steps": 15}
    phases = [Phase("first"), Phase("second")]
    log = trainer(PREPARATION, **how).run(make(Straight, PREPARATION), SAMPLES, VALIDATION, phases)
    counts = [sum(row["phase"] == name for row in log.rows) for name in ("first", "second")]
    assert min(counts) >= 5


def test_training_again_for_the_best_steps_gives_the_best_weights():
    how = {"lr": 0.5, "batch_size": 8, "optimizer": "sgd"}
    best, again = make(Straight, PREPARATION), make(Straight, PREPARATION)
    log = trainer(PREPARATION, epochs=30, patience=3, **how).run(best, SAMPLES, VALIDATION)
    assert 0 < log.best_epoch < 29
    Trainer(PREPARATION, steps=log.best_step, device="cpu", **how).run(again, SAMPLES)
    assert same(weights(best), weights(again))


def test_stacked_training_resolves_and_stops_alike():
    training = {"device": "cpu", "steps": 60, "least_steps": 30, "patience": 1, "lr": 0.1}
    samples = make_samples(360)
    parts, encoders = [(samples, VALIDATION)] * 2, {name: {"name": "mlp", "hidden": []} for name in SAMPLES.names}
    together = fit_together("late", parts, [0, 1], encoders=encoders, trainer=Trainer(**training))
    for seed, model in enumerate(together):
        how = Trainer(**training, seed=seed)
        alone = Model.fit("late", samples, VALIDATION, encoders=encoders, trainer=how).logs[0]
        assert 5 <= len(alone.rows) <= 10  # six steps an epoch
        assert (len(model.logs[0].rows), model.logs[0].best_step) == (len(alone.rows), alone.best_step)


def test_a_checkpoint_from_before_there_were_least_steps_is_continued(tmp_path):
    how = {"checkpoint": tmp_path, "checkpoint_seconds": 0, "patience": 5}
    trainer(PREPARATION, **how).run(make(Late, PREPARATION), SAMPLES)
    path = tmp_path / "run-0.pt"
    content = torch.load(path, weights_only=True)
    assert content["fingerprint"].pop("least_steps") == 0
    assert content["fingerprint"].pop("steps") is None
    torch.save(content, path)
    trainer(PREPARATION, **how).run(make(Late, PREPARATION), SAMPLES)
    with pytest.raises(InputError, match="least_steps was 0, now 7"):
        trainer(PREPARATION, least_steps=7, **how).run(make(Late, PREPARATION), SAMPLES)
