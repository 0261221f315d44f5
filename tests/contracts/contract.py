"""What every registered method must pass, whatever it is. A new method gets these tests by registering."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from consilience import methods
from consilience.core.errors import UnsupportedError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.data import DataSet, load_data
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model

# Built-in sets in the order they are tried: the first that a method can read is the one it is tested on. Of sequences
# with numbers to predict there is none: the numbers of the classes stand in.
AS_NUMBERS = " as numbers"
SETS = {
    "classification": ("digits", "captions", "sequences"),
    "regression": ("progressive-synthetic", "sequences" + AS_NUMBERS),
}
OPTIONS = {"sequences": {"n": 400}, "captions": {"n": 400}}
# Methods that give the same model with every seed, of which one reads no modality.
NOT_RANDOM = ("linear", "boosted", "majority")
READS_NOTHING = "majority"


@cache
def built_in(name: str) -> DataSet:
    """A built-in set, loaded once."""
    source = name.removesuffix(AS_NUMBERS)
    data = load_data(source, **OPTIONS.get(source, {}))
    if source == name:
        return data
    numbers = np.unique(data.samples.y, return_inverse=True)[1].astype(np.float64)
    return replace(data, samples=Samples.of(data.samples, numbers), task="regression")


def prepared(samples: Samples, kind: str) -> tuple[Preparation, Task]:
    """The preparation and task a model would learn from these samples."""
    task = Task.of(samples.y, kind)
    return Preparation.fit(samples, task), task


def member(name: str, modalities: Sequence[str]) -> str:
    """A family stands for its first member on a set with these modalities."""
    if not name.endswith(":"):
        return name
    return name + methods.registry()[name].arguments(modalities)[0]


def cases() -> list[tuple[str, str, str]]:
    """Every method with every task it serves and the set it is tested on: (method, task, set)."""
    found = []
    for name, cls in methods.registry().items():
        for kind in cls.tasks:
            for candidate in SETS[kind]:
                data = built_in(candidate)
                preparation, task = prepared(data.train, kind)
                if cls.reason_against(methods.Spec(preparation.modalities, task)) is None:
                    found.append((member(name, data.train.names), kind, candidate))
                    break
            else:
                raise AssertionError(f"method {name!r} can read no built-in set for {kind}: add one it can read")
    return found


def small(data: DataSet, n: int = 300) -> tuple[Samples, Samples]:
    """Some training and some test samples."""
    return data.train[:n], data.test[:100]


def fit(name: str, kind: str, train: Samples, **training: object) -> Model:
    """Train a little."""
    trainer = Trainer(**{"epochs": 2, "batch_size": 32, "lr": 3e-3, "device": "cpu", **training})  # type: ignore[arg-type]
    return Model.fit(name, train, None, task=kind, trainer=trainer)  # type: ignore[arg-type]


_FITTED: dict[tuple[str, str, int], Model] = {}


def fitted(name: str, kind: str, data: DataSet) -> Model:
    """A model trained a little on complete samples: once, for all requirements that only look at it."""
    key = (name, kind, id(data))
    if key not in _FITTED:
        _FITTED.clear()  # requirements come method by method: one model in memory is enough
        _FITTED[key] = fit(name, kind, small(data)[0])
    return _FITTED[key]


def score(model: Model, samples: Samples) -> float:
    """Accuracy, or the share of variance explained."""
    predicted = model.task.decode(model.predict(samples, device="cpu").output.numpy())
    if model.task.classification:
        return float(np.mean(predicted == samples.y))
    residual, spread = np.square(predicted - samples.y).sum(), np.square(samples.y - samples.y.mean()).sum()
    return float(1 - residual / spread)


def some_missing(samples: Samples, share: float = 0.4, seed: int = 0) -> Samples:
    """The same samples with modalities taken away at random, never all of a sample's."""
    draw = np.random.default_rng(seed).random(samples.present.shape)
    keep = (draw >= share) | (draw == draw.max(axis=1, keepdims=True))
    return samples.replaced({}, present=samples.present & keep)


def learns(name: str, kind: str, data: DataSet) -> None:
    """Better than guessing, by a margin that luck does not give."""
    train, test = data.train[:600], data.test
    asked = 0.2
    if kind == "classification":
        chance = np.unique(test.y, return_counts=True)[1].max() / len(test)
        asked = chance + 3 * np.sqrt(chance * (1 - chance) / len(test))
    if name == READS_NOTHING:
        common = np.unique(train.y, return_counts=True) if kind == "classification" else None
        expected = 0.0 if common is None else np.mean(test.y == common[0][common[1].argmax()])
        assert abs(score(fit(name, kind, train), test) - expected) < 0.01
        return
    # Most need little; the others get what they need.
    assert any(score(fit(name, kind, train, epochs=epochs), test) > asked for epochs in (2, 8, 16))


def every_parameter_trains(name: str, kind: str, data: DataSet) -> None:
    """Every parameter gets a gradient and moves, and no weight hides outside `parameters()`."""
    train, _ = small(data)
    preparation, task = prepared(train, kind)
    torch.manual_seed(0)
    method = methods.build(name, methods.Spec(preparation.modalities, task))
    hidden = [
        f"{path}.{attribute}"
        for path, module in method.named_modules()
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        for one in (value if isinstance(value, list | tuple) else [value])
        if isinstance(one, torch.Tensor) and one.requires_grad
    ]
    assert not hidden, f"weights that no optimizer will see: {hidden}"
    batch = preparation.batch(train, slice(0, 64))
    method.train()
    losses = method.objective(method(batch), batch, methods.Step())
    if not list(method.parameters()):  # what is learned at once may be in buffers of any size
        assert not method.trains_by_gradients
        before = {path: one.clone() for path, one in method.named_buffers()}
        method.fit(train, None, Trainer(preparation, device="cpu"))
        assert any(not torch.equal(before[path], one) for path, one in method.named_buffers())
        return
    torch.stack(list(losses.values())).sum().backward()
    silent = [path for path, one in method.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0]
    assert not silent, f"parameters without a gradient: {silent}"
    before = {path: one.detach().clone() for path, one in method.named_parameters()}
    method.fit(train, None, Trainer(preparation, epochs=2, device="cpu"))
    still = [path for path, one in method.named_parameters() if torch.equal(before[path], one)]
    assert not still, f"parameters that training does not move: {still}"


def saves_and_loads(name: str, kind: str, data: DataSet) -> None:
    """A saved model gives the same numbers, bit for bit."""
    _, test = small(data)
    model = fitted(name, kind, data)
    with tempfile.TemporaryDirectory() as folder:
        again, _ = load_model(model.save(Path(folder) / "model"))
    assert torch.equal(again.predict(test, device="cpu").output, model.predict(test, device="cpu").output)


def seeds_reproduce(name: str, kind: str, data: DataSet) -> None:
    """The same seed gives the same model, another seed another one, and the global random state is left alone."""
    train, test = small(data, 80)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first, second, other = (fit(name, kind, train, seed=one).predict(test, device="cpu").output for one in (0, 0, 1))
    assert torch.equal(first, second)
    assert torch.equal(first, other) == (name in NOT_RANDOM)
    assert torch.equal(torch.get_rng_state(), state)


def survives_missing(name: str, kind: str, data: DataSet) -> None:
    """Modalities missing in training and at test, per sample, for all samples, or all of a sample's."""
    train, test = small(data)
    model = fit(name, kind, some_missing(train))
    for samples in (test, some_missing(test, seed=1)):
        prediction = model.predict(samples, device="cpu")
        assert torch.isfinite(prediction.output).all()
        if prediction.weights is not None:
            assert torch.isfinite(prediction.weights).all()
            assert (prediction.weights[~torch.from_numpy(samples.present)] == 0).all()
    for absent in test.names:
        present = [other for other in test.names if other != absent]
        if present:
            assert torch.isfinite(model.predict(test.only(present), device="cpu").output).all()
    nothing = test.replaced({}, present=np.zeros_like(test.present))
    assert torch.isfinite(model.predict(nothing, device="cpu").output).all()


def ignores_what_is_absent(name: str, kind: str, data: DataSet) -> None:
    """What an absent slot holds reaches no output."""
    _, test = small(data)
    model = fitted(name, kind, data)
    samples = some_missing(test)
    numeric = [one for one in samples.names if samples[one].dtype.kind == "f"]
    garbage = {one: np.where(_rows(samples, one), samples[one], np.nan) for one in numeric}
    with_garbage = samples.replaced(garbage)
    expected = model.predict(samples, device="cpu").output
    assert torch.equal(model.predict(with_garbage, device="cpu").output, expected)


def _rows(samples: Samples, name: str) -> np.ndarray:
    present = samples.present_in(name)
    return present.reshape(-1, *[1] * (samples[name].ndim - 1))


def samples_do_not_mix(name: str, kind: str, data: DataSet) -> None:
    """At test time a sample's prediction does not depend on the others in its batch, nor on their order."""
    _, test = small(data)
    model = fitted(name, kind, data)
    whole = model.predict(test, device="cpu").output
    order = np.random.default_rng(0).permutation(len(test))
    torch.testing.assert_close(model.predict(test[order], device="cpu").output, whole[order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.predict(test, batch_size=7, device="cpu").output, whole, rtol=1e-5, atol=1e-5)


def trains_in_bf16(name: str, kind: str, data: DataSet) -> None:
    """Mixed precision trains to finite numbers."""
    train, test = small(data, 100)
    model = fit(name, kind, train, precision="bf16", epochs=1)
    assert torch.isfinite(model.predict(test, device="cpu").output).all()


def counts_modalities(name: str, kind: str, data: DataSet) -> None:
    """Every number of modalities from its least on works; fewer is a clear error."""
    train, _ = small(data, 100)
    cls, argument = methods.find(name)
    for count in range(1, len(train.names) + 1):
        fewer = train.only(train.names[:count])
        preparation, task = prepared(fewer, kind)
        spec = methods.Spec(preparation.modalities, task)
        if argument is not None and argument not in fewer.names and argument in train.names:
            continue
        if count >= cls.min_modalities:
            if cls.reason_against(spec) is not None:
                assert count < len(train.names)  # it asks for a sequence, say, and these few have none
                continue
            method = methods.build(name, spec)
            assert method(preparation.batch(fewer, slice(0, 4))).output.shape == (4, task.outputs)
        else:
            with pytest.raises(UnsupportedError, match=str(cls.min_modalities)):
                methods.build(name, spec)


def refuses_other_tasks(name: str, kind: str, data: DataSet) -> None:
    """A task the method does not serve is a clear error."""
    cls, _ = methods.find(name)
    train, _ = small(data, 50)
    for other in {"classification", "regression"} - set(cls.tasks):
        y = np.arange(len(train)) % 2 if other == "classification" else np.linspace(0, 1, len(train))
        task = Task.of(y, other)  # type: ignore[arg-type]
        preparation = Preparation.fit(train, task)
        with pytest.raises(UnsupportedError, match=other):
            methods.build(name, methods.Spec(preparation.modalities, task))


CONTRACT = (
    learns,
    every_parameter_trains,
    saves_and_loads,
    seeds_reproduce,
    survives_missing,
    ignores_what_is_absent,
    samples_do_not_mix,
    trains_in_bf16,
    counts_modalities,
    refuses_other_tasks,
)
