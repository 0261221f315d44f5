"""Seeds trained side by side: the models that each seed would have given alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from consilience.core.errors import TrainingError, UnsupportedError
from consilience.core.samples import MappedRows, Samples
from consilience.methods.fusion.concat import Concat
from consilience.training import Callback, Log, Model, Trainer
from consilience.training.stacked_seeds import check_finite, fit_together, reason_alone

SEEDS = (0, 3)
TRAINER = Trainer(epochs=2, batch_size=8, lr=0.005, optimizer="sgd", momentum=0.5, weight_decay=1e-3, device="cpu")
BASE = np.random.default_rng(0).integers(0, 256, size=(9, 1, 16, 16), dtype=np.uint8)


def drawn(n, seed):
    """Small images, and larger ones that several samples share: convolutions, whose norms keep running statistics."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    image = random.normal(y[:, None, None, None], 1, size=(n, 1, 8, 8)).astype(np.float32)
    return Samples.of({"image": image, "audio": MappedRows(BASE, random.integers(0, 9, size=n))}, y)


TRAIN, VALIDATION = drawn(24, 1), drawn(12, 2)


@pytest.mark.parametrize(
    ("name", "settings", "clip", "parts"),
    [
        ("pro:lowrank", {"dropout": 0.0, "into": "conv2"}, 0.5, [(TRAIN, VALIDATION)] * 2),
        ("mfas", {"dropout": 0.0}, None, [(TRAIN, VALIDATION), (drawn(24, 5), drawn(12, 6))]),
    ],
    ids=("shared data, clipped", "each its own data"),
)
def test_they_are_the_models_of_single_trainings(name, settings, clip, parts):
    trainer = replace(TRAINER, clip=clip)
    models = fit_together(name, parts, SEEDS, settings=settings, trainer=trainer)
    for model, seed, (train, validation) in zip(models, SEEDS, parts):
        alone = Model.fit(name, train, validation, settings=settings, trainer=replace(trainer, seed=seed))
        assert any("running_mean" in key for key in alone.method.state_dict())
        assert_same(model, alone, 1e-3)


def assert_same(model, alone, tolerance):
    """The same weights, the same best epoch and the same figures in every epoch."""
    expected = alone.method.state_dict()
    for key, weight in model.method.state_dict().items():
        torch.testing.assert_close(weight, expected[key], atol=tolerance / 10, rtol=tolerance)
    log, other = model.logs[0], alone.logs[0]
    assert (log.best_epoch, log.finished) == (other.best_epoch, True)
    for row, wanted in zip(log.rows, other.rows, strict=True):
        assert row.keys() == wanted.keys()
        for key in row.keys() - {"phase", "seconds"}:
            assert row[key] == pytest.approx(wanted[key], rel=tolerance)


def test_a_loss_that_broke_is_said_with_its_seed():
    fine = {"phase": "fit", "epoch": 0, "task": 0.5, "validation_loss": 0.6, "seconds": 1.0}
    broken = {**fine, "epoch": 1, "task": math.nan}
    check_finite("concat", SEEDS, [Log([fine]), Log([fine])], lr=0.1)
    with pytest.raises(TrainingError, match="with seed 3 the loss term 'task' became nan in epoch 2"):
        check_finite("concat", SEEDS, [Log([fine]), Log([fine, broken])], lr=0.1)


def vectors(n, seed):
    """Three vectors of which a quarter of the samples lack each, never all, and weights."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    values = {name: random.normal(y[:, None], 2, size=(n, 3)) for name in "abc"}
    present = random.random((n, 3)) < 0.75
    present[~present.any(axis=1), 0] = True
    return Samples.of(values, y, present=present, weight=random.random(n) + 0.1)


ENCODER = {"name": "mlp", "hidden": [6], "dropout": 0.0}


@pytest.mark.parametrize("shared", [True, False], ids=("shared data", "each its own data"))
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("concat", {}),
        ("late", {"schedule": "cosine", "warmup": 1.5, "clip": 0.5}),
        ("tmc", {"average": "mean"}),
        ("pro:concat", {"average": 0.8, "optimizer": "adam", "momentum": 0.0}),
        ("tensor", {"accumulate": 2}),
        ("lowrank", {"patience": 1, "epochs": 6, "lr": 0.05}),
    ],
)
def test_missing_modalities_and_weights_give_the_models_of_single_trainings(name, changed, shared):
    parts = [(vectors(30, 1), vectors(20, 2)), (vectors(30, 1 if shared else 3), vectors(20, 2 if shared else 4))]
    parts = [parts[0], parts[0]] if shared else parts
    trainer = replace(TRAINER, **{"epochs": 3, **changed})
    settings = {"dropout": 0.0} if name not in ("late", "tmc") else {}
    encoders = dict.fromkeys("abc", ENCODER)
    models = fit_together(name, parts, SEEDS, settings=settings, encoders=encoders, trainer=trainer)
    for model, seed, (train, validation) in zip(models, SEEDS, parts):
        alone = Model.fit(
            name, train, validation, settings=settings, encoders=encoders, trainer=replace(trainer, seed=seed)
        )
        assert_same(model, alone, 1e-4)


def test_hidden_modalities_train(monkeypatch):
    parts = [(vectors(30, 1), vectors(20, 2))] * 2
    trainer = replace(TRAINER, modality_dropout=0.5)
    hidden = fit_together("concat", parts, SEEDS, trainer=trainer)
    whole = fit_together("concat", parts, SEEDS, trainer=TRAINER)
    assert hidden[0].logs[0].rows[0]["task"] != whole[0].logs[0].rows[0]["task"]
    monkeypatch.setattr("consilience.training.stacked_training.hide_some", lambda present, _: torch.zeros_like(present))
    none = fit_together("concat", parts, SEEDS, trainer=trainer)
    assert none[0].logs[0].rows[-1]["task"] == pytest.approx(whole[0].logs[0].rows[-1]["task"], rel=1e-4)


def lacking(samples):
    present = np.ones((len(samples), 2), dtype=bool)
    present[3, 0] = False
    return Samples.of(samples, present=present)


@pytest.mark.parametrize(
    ("name", "train", "changed", "reason"),
    [
        ("gradient-blend", TRAIN, {}, "its training is more than one run of the loop"),
        ("qmf", TRAIN, {}, "its training is more than one run"),
        ("concat", TRAIN, {"strategy": "ddp"}, "strategy must be 'auto', got 'ddp'"),
        ("concat", TRAIN, {"schedule": "plateau"}, "schedule must be 'constant' or 'cosine', got 'plateau'"),
        ("concat", TRAIN, {"precision": "64"}, "precision must be '32' or 'bf16' or 'bf16-mixed', got '64'"),
        ("concat", TRAIN, {"callbacks": [Callback()]}, "callbacks and checkpoints belong to one model"),
        ("concat", lacking(TRAIN), {}, "lack modality 'image', whose encoder normalises over the samples of a batch"),
        ("concat", TRAIN, {"modality_dropout": 0.2}, "lack modality 'image', whose encoder normalises"),
    ],
)
def test_what_needs_a_training_of_its_own_is_refused(name, train, changed, reason):
    with pytest.raises(UnsupportedError, match=f"method '{name}' cannot be trained side by side: .*{reason}"):
        fit_together(name, [(train, VALIDATION)], [0], trainer=replace(TRAINER, **changed))


def test_operations_that_cannot_be_stacked_are_named(monkeypatch):
    forward = Concat.forward

    def asks_for_a_value(self, batch):
        prediction = forward(self, batch)
        return prediction if prediction.output.sum().item() < 1e9 else None

    monkeypatch.setattr(Concat, "forward", asks_for_a_value)
    with pytest.raises(UnsupportedError, match=r"'concat' .*: torch.func cannot stack one of its operations \(vmap"):
        fit_together("concat", [(vectors(30, 1), vectors(20, 2))], [0], trainer=TRAINER)


def test_sets_of_different_sizes_are_no_trials():
    parts = [(TRAIN, VALIDATION), (TRAIN[:20], VALIDATION)]
    assert reason_alone("concat", parts, TRAINER) == "its seeds have sets of different sizes"
    assert reason_alone("pro:concat", parts[:1], TRAINER) is None


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"x": np.eye(6, 3), "t": ["a", "b"] * 3, "y": [0, 1] * 3}, "modalities of different shapes"),
        ({"x": np.eye(6, 2), "t": ["a", "b c"] * 3, "y": [0, 1] * 3}, "modalities of different shapes"),
        ({"x": np.eye(6, 2), "t": ["a", "b"] * 3, "y": [0, 1, 2] * 2}, "different numbers of classes"),
    ],
)
def test_seeds_whose_models_differ_in_shape_are_no_trials(second, reason):
    first = Samples.of({"x": np.eye(6, 2), "t": ["a", "b"] * 3}, [0, 1] * 3)
    other = Samples.of({name: second[name] for name in "xt"}, second["y"])
    with pytest.raises(UnsupportedError, match=f"'concat' cannot be trained side by side: its seeds have {reason}"):
        fit_together("concat", [(first, first), (other, other)], [0, 1], trainer=TRAINER)


def test_the_worst_validation_samples_are_ignored_as_in_a_single_training(monkeypatch):
    monkeypatch.setattr(Concat, "ignored_worst", 0.05)
    part = (vectors(30, 1), vectors(40, 2))
    trainer = replace(TRAINER, epochs=4)
    settings = {"settings": {"dropout": 0.0}, "encoders": dict.fromkeys("abc", ENCODER)}
    models = fit_together("concat", [part, part], SEEDS, trainer=trainer, **settings)
    assert_same(models[1], Model.fit("concat", *part, trainer=replace(trainer, seed=SEEDS[1]), **settings), 1e-4)
