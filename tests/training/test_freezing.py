"""Frozen parts are bit-identical until their step, and then move; alone, resumed, cross-fitted."""

import logging
import re

import numpy as np
import pytest
import torch

from consilience import methods
from consilience.core.errors import InputError
from consilience.methods import Spec
from consilience.training import Callback, Phase, Trainer
from consilience.training.freezing import Freezing
from consilience.training.lockstep import reason_alone
from consilience.training.parts import parts_of
from consilience.training.stacked_seeds import reason_alone as reason_alone_of_seeds
from consilience.training.training_settings import TrainingSettings, read_freeze, resolve
from tiny_models import tiny_bert
from training.test_parts import pretrained
from training.toys import make_samples, prepare, same, weights

SAMPLES, VALIDATION = make_samples(64), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)
IN_EPOCH = 4


def build(name="concat", dropout=0.2):
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        encoders = {each: {"name": "mlp", "hidden": [8, 6], "dropout": dropout} for each in "ab"}
        own = {"dropout": dropout} if name == "concat" else {}
        return methods.build(name, Spec(PREPARATION.modalities, PREPARATION.task, encoders), own)


class Course(Callback):
    """The weights after every step, and which encoders are in training mode."""

    def __init__(self):
        self.weights, self.modes = [], []

    def on_train_start(self, run):
        self.weights.append(weights(run.module))

    def on_step_end(self, run):
        self.weights.append(weights(run.module))
        self.modes.append({name: encoder.training for name, encoder in run.module.encoders.items()})


def settings(**given):
    return {"epochs": 4, "batch_size": 16, "lr": 0.01, "device": "cpu", "patience": None, **given}


def first_moves(method, course):
    """Name of each parameter → the step, from 0, that first changed it."""
    return {
        name: next(
            step
            for step, (before, after) in enumerate(zip(course.weights, course.weights[1:]))
            if not torch.equal(before[name], after[name])
        )
        for name, _ in method.named_parameters()
    }


def train(method, phases=None, samples=SAMPLES, validation=None, **given):
    course = Course()
    log = Trainer(PREPARATION, callbacks=[course], **settings(**given)).run(method, samples, validation, phases)
    return course, log


@pytest.mark.parametrize(
    ("freeze", "expected"),
    [
        ({"a": 2}, {"a": 2 * IN_EPOCH}),
        ({"a": "5steps", "b": "2 epochs"}, {"a": 5, "b": 2 * IN_EPOCH}),
        ({"head": 1, "fusion": 1}, {"head": IN_EPOCH, "fusion": IN_EPOCH}),
    ],
)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "rmsprop"])
def test_parts_stay_as_they_are_until_their_step(freeze, expected, optimizer):
    """Weight decay and momentum would move what is only given no gradient of its own."""
    method = build()
    course, _ = train(method, freeze=freeze, optimizer=optimizer, weight_decay=0.1)
    parts = parts_of(method)
    for name, step in first_moves(method, course).items():
        assert step == expected.get(parts[name], 0), name
    assert all(weight.requires_grad for weight in method.parameters())


def test_layer_by_layer_the_last_one_first():
    method = build()
    course, _ = train(method, freeze={"a": "1..3"})
    moved, stages = first_moves(method, course), list(method.encoders["a"].stages)
    assert len(stages) == 2
    for name, step in moved.items():
        if name.startswith("encoders.each.0.stages."):
            assert step == (3 if f".{stages[0]}." in name else 1) * IN_EPOCH, name


def test_a_frozen_encoder_is_in_evaluation_mode():
    course, _ = train(build(), freeze={"a": "6steps"})
    assert [mode["a"] for mode in course.modes] == [False] * 6 + [True] * 10
    assert all(mode["b"] for mode in course.modes)


def test_until_then_training_is_that_of_a_model_whose_encoder_never_trains():
    """Independent of the freezing: the same with a phase that leaves the encoder out."""
    method, other = build(dropout=0.0), build(dropout=0.0)
    train(method, freeze={"a": 3}, epochs=3)
    train(
        other,
        [
            Phase(
                parameters=lambda module: [
                    weight for name, weight in module.named_parameters() if not name.startswith("encoders.each.0.")
                ]
            )
        ],
        epochs=3,
    )
    assert same(weights(method), weights(other))


def test_freezing_counts_the_epochs_of_earlier_phases():
    method = build()
    course, _ = train(method, [Phase("one", epochs=1), Phase("two", epochs=2)], freeze={"a": 2})
    parts = parts_of(method)
    assert {step for name, step in first_moves(method, course).items() if parts[name] == "a"} == {2 * IN_EPOCH}


class Stop(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_start(self, run):
        if run.epoch == self.epoch:
            raise RuntimeError("stopped")


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_run_is_the_same(stop, tmp_path):
    given = settings(freeze={"a": "7steps", "b": "1..2"}, lr={"a": 1e-3, "head": 0.02}, layer_decay={"b": 0.5})
    whole, resumed = build(), build()
    Trainer(PREPARATION, **given).run(whole, SAMPLES, VALIDATION)
    with pytest.raises(RuntimeError, match="stopped"):
        Trainer(PREPARATION, checkpoint=tmp_path, checkpoint_seconds=0, callbacks=[Stop(stop)], **given).run(
            build(), SAMPLES, VALIDATION
        )
    log = Trainer(PREPARATION, checkpoint=tmp_path, checkpoint_seconds=0, **given).run(resumed, SAMPLES, VALIDATION)
    assert len(log.rows) == 4
    assert same(weights(whole), weights(resumed))


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    Trainer(PREPARATION, checkpoint=tmp_path, **settings(freeze={"a": 1})).run(build(), SAMPLES)
    with pytest.raises(InputError, match=re.escape("freeze was {'a': 1}, now {'a': 2}")):
        Trainer(PREPARATION, checkpoint=tmp_path, **settings(freeze={"a": 2})).run(build(), SAMPLES)


def test_patience_begins_when_nothing_is_frozen():
    """Weights that do not move have their lowest validation loss in the first epoch."""
    for freeze, rows in (({"a": 9}, 9 + 3), (None, 1 + 3), ({"a": "30steps"}, 8 + 3)):
        _, log = train(build(), freeze=freeze, epochs=40, patience=3, validation=VALIDATION, lr=1e-30)
        assert (log.best_epoch, len(log.rows)) == (0, rows)


def test_a_run_that_ends_too_early_says_what_stayed_frozen(caplog):
    with caplog.at_level(logging.WARNING, "consilience"):
        train(build(), freeze={"a": 9, "head": 1})
    assert "a stayed frozen, since training ended before the end of freeze=" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "consilience"):
        train(build(), [Phase("one", epochs=1), Phase("two", epochs=2)], freeze={"a": 2})
    assert not caplog.text


def test_nothing_left_to_train_is_an_error():
    with pytest.raises(InputError, match="would freeze every part"):
        train(build("unimodal:a"), freeze={"a": 1, "head": 1})


def test_a_part_without_layers_cannot_go_layer_by_layer():
    with pytest.raises(InputError, match="freeze of 'head' cannot go layer by layer"):
        train(build(), freeze={"head": "1..2"})


@pytest.mark.parametrize("when", ["0", "3..1", "1.5", "soon", "-1", "3..", "2 days"])
def test_other_forms_are_refused(when):
    with pytest.raises(InputError, match="freeze of 'a' must be a number of epochs"):
        read_freeze("a", when)
    with pytest.raises(InputError, match="freeze of 'a' must be a number of epochs"):
        Trainer(freeze={"a": when})


def test_several_processes_are_refused():
    with pytest.raises(InputError, match=re.escape("with freeze={'a': 1} devices must be 1, got 2")):
        Trainer(freeze={"a": 1}, devices=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"freeze": {"a": 1}}, "freeze must be None"),
        ({"lr": {"a": 0.1}}, "lr must be None or one number for all parts, got {'a': 0.1}"),
        ({"weight_decay": {"a": 0.1}}, "weight_decay must be one number for all parts"),
        ({"layer_decay": 0.9}, "layer_decay must be None"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing must be False"),
    ],
)
def test_models_side_by_side_and_in_lockstep_say_what_they_cannot(given, said):
    trainer = Trainer(PREPARATION, **settings(**given))
    assert said in reason_alone_of_seeds("concat", [(SAMPLES, VALIDATION)], trainer)
    assert said in reason_alone(build("unimodal:a"), SAMPLES, trainer)
    assert reason_alone(build("unimodal:a"), SAMPLES, Trainer(PREPARATION, **settings())) is None


def test_cross_fitting_trains_every_fold_with_its_parts():
    trainer = Trainer(PREPARATION, **settings(freeze={"a": 2}, lr={"a": 1e-3, "head": 0.05}))
    _, copies, _ = trainer.cross_fit(build, SAMPLES, folds=2)
    alone = build()
    trainer.run(alone, SAMPLES.select(np.flatnonzero(trainer.cross_fit(build, SAMPLES, folds=2)[2] != 0)))
    assert same(weights(copies[0]), weights(alone))


def test_as_in_keeps_rates_by_part():
    trainer = Trainer(PREPARATION, **settings(lr={"a": 1e-3}))
    log = trainer.run(build(), SAMPLES, VALIDATION)
    assert trainer.as_in(log, len(SAMPLES)).lr == {"a": 1e-3}


def test_a_frozen_bert_stays_and_samples_without_it_are_trained_on(tmp_path):
    method, samples, preparation = pretrained("late", tiny_bert, tmp_path, present={"text": [True, False, True, True]})
    before = weights(method)
    course = Course()
    given = settings(epochs=2, batch_size=2, freeze={"text": 1}, callbacks=[course])
    Trainer(preparation, **given).run(method, samples)
    inside = [name for name, part in parts_of(method).items() if part == "text"]
    assert all(torch.equal(course.weights[2][name], before[name]) for name in inside)
    assert any(not torch.equal(course.weights[-1][name], before[name]) for name in inside)


def test_an_epoch_in_which_something_thaws_is_not_recorded():
    """What is replayed trains what was trained when it was recorded."""
    method = build()
    names = [name for name, _ in method.named_parameters()]
    freezing = Freezing(method, names, resolve(TrainingSettings(freeze={"a": "6steps"}), 64), IN_EPOCH)
    assert [freezing.changes(first + 1, first + IN_EPOCH - 1) for first in (0, 4, 8)] == [False, True, False]
    assert freezing.last == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")
@pytest.mark.parametrize("freeze", [{"a": 1}, {"a": "6steps"}, {"a": "1..3", "b": 2}])
def test_recorded_steps_freeze_as_steps_one_by_one(freeze):
    found = []
    for recorded in (False, True):
        method = build(dropout=0.0)
        given = settings(epochs=5, device="cuda", freeze=freeze, lr={"a": 1e-3, "head": 0.02}, layer_decay={"b": 0.5})
        Trainer(PREPARATION, cuda_graphs=recorded, **given).run(method, SAMPLES, VALIDATION)
        found.append({name: weight.cpu() for name, weight in weights(method).items()})
    for name, weight in found[0].items():
        torch.testing.assert_close(found[1][name], weight, atol=1e-5, rtol=1e-4)
