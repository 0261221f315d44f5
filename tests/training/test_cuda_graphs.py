"""Recorded steps: what they refuse anywhere, and on a CUDA device that they learn what steps one by one learn."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from consilience.core.errors import InputError
from consilience.data import load_data
from consilience.methods.latent.trained_latent_model import TrainedLatent
from consilience.training import Model, Trainer
from consilience.training.cuda_graphs import copy_of, shape_of, tensors_of
from training.toys import make_samples, prepare, train_waiting

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"precision": "16"}, "precision must be '32' or .*got '16'"),
        ({"optimizer": "adagrad"}, "optimizer must be 'adam' or .*got 'adagrad'"),
        ({"accumulate": 2}, "accumulate must be 1, got 2"),
        ({"devices": 2}, "devices must be 1, got 2"),
        ({"strategy": "ddp"}, "strategy must be 'auto', got 'ddp'"),
    ],
)
def test_what_cannot_be_recorded_is_refused(settings, said):
    with pytest.raises(InputError, match=f"with cuda_graphs=True {said}"):
        Trainer(cuda_graphs=True, **settings)


def test_on_a_processor_it_changes_nothing():
    data = load_data("digits")
    rows = [
        Model.fit("late", data.train[:80], trainer=Trainer(epochs=2, device="cpu", cuda_graphs=asked)).logs[0].rows
        for asked in (False, True)
    ]
    for one, other in zip(*rows):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_a_copy_has_the_same_shape_and_memory_of_its_own():
    samples = make_samples(12)
    batch = prepare(samples).batch(samples)
    batch.index = torch.arange(12)
    copied = copy_of(batch)
    assert shape_of(copied) == shape_of(batch)
    for one, other in zip(tensors_of(copied), tensors_of(batch), strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()
    assert shape_of(batch.part(0, 5)) != shape_of(batch)
    assert shape_of(batch.hiding(torch.zeros_like(batch.present))) != shape_of(batch)  # nothing is known to be complete


@on_cuda
@pytest.mark.parametrize("augment", ["gaussian:0..1", ["drop:0..3@0.5", "swapped:10@0.2"]], ids=str)
def test_augmented_steps_are_recorded_as_well(augment):
    data = load_data("digits")
    how = {"epochs": 3, "batch_size": 50, "optimizer": "sgd", "lr": 1e-2, "augment": augment, "device": "cuda"}
    logs = [
        Model.fit("concat", data.train[:520], data.validation, trainer=Trainer(**how, cuda_graphs=asked)).logs[0].rows
        for asked in (False, True)
    ]
    for one, other in zip(*logs, strict=True):
        assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-3)


@on_cuda
@pytest.mark.parametrize("average", [None, "mean"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("method", ["concat", "qmf", "tmc", "pro:lowrank"])
def test_recorded_steps_learn_what_steps_one_by_one_learn(method, optimizer, average):
    data = load_data("digits")
    how = {"epochs": 3, "batch_size": 50, "optimizer": optimizer, "lr": 1e-2, "clip": 1.0, "device": "cuda"}
    how["average"] = average
    logs = [
        Model.fit(method, data.train[:520], data.validation, trainer=Trainer(**how, cuda_graphs=asked)).logs[0].rows
        for asked in (False, True)
    ]
    for one, other in zip(*logs, strict=True):
        for name in one.keys() - {"phase", "seconds"}:
            assert other[name] == pytest.approx(one[name], rel=2e-2, abs=1e-3), name


@on_cuda
@pytest.mark.parametrize("objective", ["m2vae", "jmvae", "mvae", "mmvae", "mopoe", "mvtcae"])
def test_recorded_latent_models_learn_as_well(objective):
    data = load_data("digits")
    ends = []
    for asked in (False, True):
        trainer = Trainer(epochs=6, batch_size=64, device="cuda", cuda_graphs=asked)
        ends.append(TrainedLatent.fit(data.train, data.validation, objective=objective, trainer=trainer).logs[0].rows)
    first, last = ends[0][0]["validation_loss"], ends[0][-1]["validation_loss"]
    # They draw differently, and so differ by far less than they learned.
    assert abs(ends[1][-1]["validation_loss"] - last) < 0.2 * abs(first - last)


@on_cuda
def test_a_step_that_waits_for_the_device_is_refused_with_advice():
    # In a process of its own, whose random numbers it leaves in the middle of a recording.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        said = pool.submit(train_waiting).result()
    assert re.search(r"Waiting: a step of it cannot be recorded.*cuda_graphs=False", said)
