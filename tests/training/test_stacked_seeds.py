"""Seeds trained side by side: the models that each seed would have given alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from consilience.core.errors import TrainingError, UnsupportedError
from consilience.core.samples import MappedRows, Samples
from consilience.methods.fusion.concat import Concat
from consilience.training import Log, Model, Trainer
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
        expected = alone.method.state_dict()
        assert any("running_mean" in key for key in expected)
        for key, weight in model.method.state_dict().items():
            torch.testing.assert_close(weight, expected[key], atol=1e-4, rtol=1e-3)
        log, other = model.logs[0], alone.logs[0]
        assert (log.best_epoch, log.finished) == (other.best_epoch, True)
        for row, wanted in zip(log.rows, other.rows, strict=True):
            assert row.keys() == wanted.keys()
            for key in row.keys() - {"phase", "seconds"}:
                assert row[key] == pytest.approx(wanted[key], rel=1e-3)


def test_a_loss_that_broke_is_said_with_its_seed():
    fine = {"phase": "fit", "epoch": 0, "task": 0.5, "validation_loss": 0.6, "seconds": 1.0}
    broken = {**fine, "epoch": 1, "task": math.nan}
    check_finite("concat", SEEDS, [Log([fine]), Log([fine])], lr=0.1)
    with pytest.raises(TrainingError, match="with seed 3 the loss term 'task' became nan in epoch 2"):
        check_finite("concat", SEEDS, [Log([fine]), Log([fine, broken])], lr=0.1)


def lacking(samples):
    present = np.ones((len(samples), 2), dtype=bool)
    present[3, 0] = False
    return Samples.of(samples, present=present)


@pytest.mark.parametrize(
    ("name", "train", "changed", "reason"),
    [
        ("gradient-blend", TRAIN, {}, "its training is more than one run of the loop"),
        ("qmf", TRAIN, {}, "its training is more than one run"),
        ("concat", TRAIN, {"accumulate": 2}, "accumulate = 2 is for one training at a time"),
        ("concat", TRAIN, {"average": "mean"}, "average = 'mean' is for one training at a time"),
        ("concat", TRAIN, {"precision": "64"}, "precision must be '32' or 'bf16', not '64'"),
        ("concat", lacking(TRAIN), {}, "some of its samples lack a modality"),
        ("concat", Samples.of(TRAIN, weight=np.ones(24)), {}, "weights or lengths of their own"),
    ],
)
def test_what_needs_a_training_of_its_own_is_refused(name, train, changed, reason):
    with pytest.raises(UnsupportedError, match=f"method '{name}' cannot be trained side by side: .*{reason}"):
        fit_together(name, [(train, VALIDATION)], [0], trainer=replace(TRAINER, **changed))


def test_sets_of_different_sizes_are_no_trials():
    parts = [(TRAIN, VALIDATION), (TRAIN[:20], VALIDATION)]
    assert reason_alone("concat", parts, TRAINER) == "its seeds have sets of different sizes"
    assert reason_alone("pro:concat", parts[:1], TRAINER) is None


def test_a_method_that_stops_by_a_part_of_validation_is_trained_alone(monkeypatch):
    monkeypatch.setattr(Concat, "ignored_worst", 0.01)
    assert reason_alone("concat", [(TRAIN, VALIDATION)], TRAINER) == "its worst validation samples are not to stop it"
