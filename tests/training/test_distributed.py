"""Two CPU processes against one."""

import atexit
import contextlib
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from consilience.core.errors import TrainingError
from consilience.core.samples import Samples
from consilience.core.shared_objects import SharedObjects
from consilience.data import load_data
from consilience.methods.fusion.concat import Concat
from consilience.training import Model, Phase, Trainer
from consilience.training.devices import _call
from training.toys import Explosive, NoteEveryRank, NoteRank, Witness, make, make_samples, prepare, trainer, weights

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lean_processes")]
AUGMENT = ["a=gaussian:0..1", "a=swapped:10@0.2", "b=missing:10@0.3"]


def close(first, second):
    for name, value in weights(first).items():
        torch.testing.assert_close(weights(second)[name], value, atol=1e-5, rtol=1e-4)


def test_two_processes_match_one_on_uneven_weighted_batches():
    samples = make_samples(67, weight=np.random.default_rng(4).random(67) + 0.1)
    validation = make_samples(33, seed=7)
    one, two = (
        Model.fit(
            "concat",
            samples,
            validation,
            settings={"dropout": 0.0},
            encoders={name: {"name": "mlp", "hidden": [150], "dropout": 0.0} for name in samples.names},
            trainer=Trainer(
                epochs=3, batch_size=15, accumulate=2, device="cpu", devices=devices, clip=0.5, augment=AUGMENT
            ),
        )
        for devices in (1, 2)
    )
    # More weights than fit into a pipe: they must come back all the same.
    assert sum(value.nbytes for value in weights(one.method).values()) > 2**17
    close(one.method, two.method)
    for first, second in zip(one.logs[0].rows, two.logs[0].rows):
        for name in ("task", "validation_loss", "validation_accuracy"):
            assert first[name] == pytest.approx(second[name], abs=1e-5)
    assert one.logs[0].best_epoch == two.logs[0].best_epoch
    assert "MASTER_PORT" not in os.environ


def test_rates_by_part_and_layers_computed_twice_on_two_processes():
    random = np.random.default_rng(0)
    samples = Samples.of({"a": random.normal(size=(48, 3)), "b": random.normal(size=(48, 5, 2))}, np.arange(48) % 3)
    encoders = {
        "a": {"name": "mlp", "hidden": [8, 6], "dropout": 0.0},
        "b": {"name": "transformer", "width": 8, "heads": 2, "layers": 2, "dropout": 0.0},
    }
    # Adam would magnify the rounding of gradients that are 0, as of the keys' biases.
    given = {"lr": {"a": 0.01, "rest": 0.3}, "weight_decay": {"b": 0.1}, "layer_decay": {"b": 0.5}, "optimizer": "sgd"}
    one, two, plain = (
        Model.fit(
            "concat",
            samples,
            settings={"dropout": 0.0},
            encoders=encoders,
            trainer=Trainer(
                epochs=2, batch_size=12, device="cpu", devices=devices, gradient_checkpointing=twice, **settings
            ),
        ).method
        for devices, twice, settings in ((1, False, given), (2, True, given), (1, False, {"lr": 0.01}))
    )
    close(one, two)
    with pytest.raises(AssertionError):
        close(one, plain)


def test_phases_missing_modalities_and_checkpoints_on_two_processes(tmp_path):
    present = np.ones((40, 2), dtype=bool)
    present[:36, 1] = False  # in most batches a process has no sample with "b"
    samples = make_samples(40).replaced({}, present=present)
    preparation = prepare(samples)
    phases = [Phase("head", epochs=1, parameters=lambda module: module.head.parameters()), Phase("all", epochs=2)]
    modules = []
    for devices in (1, 2):
        module = make(Concat, preparation, dropout=0.0)
        folder = tmp_path / str(devices)
        run = trainer(preparation, batch_size=8, devices=devices, checkpoint=folder)
        log = run.run(module, samples, make_samples(20, seed=7), phases)
        assert [row["phase"] for row in log.rows] == ["head", "all", "all"]
        assert (folder / "run-0.pt").exists()
        modules.append(module)
    close(*modules)


def test_the_loss_history_is_gathered_also_of_a_set_on_disk_and_callbacks_are_called_in_their_processes(tmp_path):
    samples = make_samples(41)
    np.save(tmp_path / "a.npy", samples["a"])
    mapped = Samples.of({"a": np.load(tmp_path / "a.npy", mmap_mode="r"), "b": samples["b"]}, samples.y)
    preparation = prepare(samples)
    one, two = make(Witness, preparation, 41), make(Witness, preparation, 41)
    folders = [tmp_path / "first", tmp_path / "every"]
    for folder in folders:
        folder.mkdir()
    callbacks = [NoteRank(folders[0]), NoteEveryRank(folders[1])]
    for module, devices, data, called in ((one, 1, samples, []), (two, 2, mapped, callbacks)):
        # One batch an epoch: within an epoch a process knows its own losses only.
        trainer(preparation, batch_size=64, devices=devices, epochs=2, callbacks=called).run(module, data)
    assert (one.seen > 0).all()
    close(one, two)
    written = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert written[0] == ["process 0 epoch 0", "process 0 epoch 1"], "only in the first one"
    assert written[1] == [*written[0], "process 1 epoch 0", "process 1 epoch 1"], "where they want every one"


@pytest.mark.parametrize("buffer", [300, 64])
def test_two_processes_on_shards(tmp_path, buffer):
    samples = make_samples(300)
    for number, rows in enumerate(np.split(np.arange(300), 10)):
        np.save(tmp_path / f"y-{number}.npy", samples.y[rows])
        for name in samples:
            np.save(tmp_path / f"{name}-{number}.npy", samples[name][rows])
    shards = load_data(tmp_path, buffer=buffer).samples
    preparation = prepare(samples)
    resident, streamed = make(Concat, preparation, dropout=0.0), make(Concat, preparation, dropout=0.0)
    first, second = (
        trainer(preparation, batch_size=32, devices=2, epochs=6).run(module, data, make_samples(60, seed=7))
        for module, data in ((resident, samples), (streamed, shards))
    )
    if buffer == 300:  # the same order
        close(resident, streamed)
    assert second.rows[-1]["steps"] == first.rows[-1]["steps"]
    assert second.rows[-1]["validation_loss"] == pytest.approx(first.rows[-1]["validation_loss"], rel=0.1)


def test_an_error_in_a_process_comes_back():
    samples = make_samples(30)
    preparation = prepare(samples)
    with pytest.raises(TrainingError, match=r"on 2 processes failed: .*the loss term 'fuse' became nan in epoch 2"):
        trainer(preparation, devices=2).run(make(Explosive, preparation), samples)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize(("work", "status"), [(lambda fabric: {"log": 1}, 0), (lambda fabric: 1 / 0, 1)])
def test_a_process_of_ours_leaves_before_the_interpreter_is_taken_apart(work, status, tmp_path):
    handover = tmp_path / "result.pt"
    child = os.fork()
    if child == 0:
        try:
            atexit.register(os._exit, 7)  # stands for all that would follow
            with contextlib.suppress(ZeroDivisionError):
                _call(SimpleNamespace(is_global_zero=True), work, os.getppid(), handover, SharedObjects(()))
            atexit._run_exitfuncs()
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
    assert handover.exists() == (status == 0)
