"""Training on one CPU without Lightning Fabric, against the same training with it."""

import pytest

from consilience.methods.opinions.late import Late
from consilience.training import trainer as training
from consilience.training.devices import build_fabric
from consilience.training.one_device import OneDevice
from training.toys import At, Straight, make, make_samples, prepare, same, trainer, weights

SAMPLES, VALIDATION = make_samples(50), make_samples(40, seed=7)
PREPARATION = prepare(SAMPLES)


def use_fabric(patch):
    from lightning_fabric import Fabric

    patch.setattr(training, "build_fabric", lambda settings: Fabric(accelerator="cpu", devices=1, precision="32-true"))


def timeless(log):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in log.rows]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clip": 0.1},
        {"accumulate": 2, "optimizer": "sgd", "momentum": 0.9},
        {"schedule": "cosine", "warmup": 1.0, "optimizer": "adamw", "weight_decay": 0.1, "average": 0.9},
        {"modality_dropout": 0.3, "augment": "gaussian:0..1@0.5"},
    ],
)
def test_the_same_as_with_fabric(monkeypatch, settings):
    alone, expected = make(Late, PREPARATION), make(Late, PREPARATION)
    assert isinstance(build_fabric(trainer(PREPARATION, **settings)), OneDevice)
    log = trainer(PREPARATION, **settings).run(alone, SAMPLES, VALIDATION)
    use_fabric(monkeypatch)
    assert timeless(log) == timeless(trainer(PREPARATION, **settings).run(expected, SAMPLES, VALIDATION))
    assert same(weights(alone), weights(expected))


def test_a_checkpoint_written_with_fabric_is_continued(monkeypatch, tmp_path):
    settings = {"checkpoint_seconds": 0, "clip": 1.0}
    whole, broken, resumed = (make(Straight, PREPARATION) for _ in range(3))
    trainer(PREPARATION, **settings).run(whole, SAMPLES, VALIDATION)
    broken.trap = At(RuntimeError("power cut"), epoch=1, batch=1)
    with monkeypatch.context() as patch:
        use_fabric(patch)
        with pytest.raises(RuntimeError, match="power cut"):
            trainer(PREPARATION, checkpoint=tmp_path, **settings).run(broken, SAMPLES, VALIDATION)
    trainer(PREPARATION, checkpoint=tmp_path, **settings).run(resumed, SAMPLES, VALIDATION)
    assert same(weights(resumed), weights(whole))


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"precision": "64"}, {"devices": 2}, {"strategy": "ddp"}])
def test_everything_else_is_trained_with_fabric(settings):
    assert not isinstance(build_fabric(trainer(PREPARATION, **settings)), OneDevice)
