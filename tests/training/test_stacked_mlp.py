"""The objective of stacked perceptrons by batched products, compared with that of each method alone."""

import numpy as np
import pytest
import torch

from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Spec, Step
from consilience.methods.fusion.early import Early
from consilience.methods.opinions.late import Late
from consilience.methods.opinions.unimodal import Unimodal
from consilience.preparation import Preparation
from consilience.training.stacked_data import Trials, trial_batch
from consilience.training.stacked_mlp import batched_objective
from training.toys import Straight

MODELS = 3


def prepared(missing, weighted, n=20):
    random = np.random.default_rng(0)
    y = np.arange(n) % 3
    present = random.random((n, 2)) < 0.7 if missing else None
    weight = random.uniform(0.5, 2, n) if weighted else None
    samples = Samples.of(
        {"a": random.normal(size=(n, 4)), "b": random.normal(size=(n, 2))}, y, present=present, weight=weight
    )
    return samples, Preparation.fit(samples, Task.of(y))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["unimodal", "early", "linear head"])
def test_objective_and_gradient_are_those_of_each_model(kind, missing, weighted):
    samples, preparation = prepared(missing, weighted)
    names = ["a", "b"] if kind == "early" else ["a"]
    hidden = {"name": "mlp", "hidden": [] if kind == "linear head" else [8, 5], "dropout": 0.0}
    spec = Spec({name: preparation.modalities[name] for name in names}, preparation.task)
    torch.manual_seed(0)
    if kind == "early":
        methods = [Early(spec, encoder=hidden) for _ in range(MODELS)]
    else:
        methods = [Unimodal(Spec(spec.modalities, spec.task, {"a": hidden}), "a") for _ in range(MODELS)]
    whole = preparation.batch(samples)
    columns = [whole.names.index(name) for name in names]
    rows = torch.stack([torch.randperm(20)[:12] for _ in range(MODELS)])
    data = Trials(
        {name: whole[name][rows] for name in names},
        whole.y[rows],
        present=whole.present[rows][..., columns] if missing else None,
        weight=whole.weight[rows] if weighted else None,
    )
    stacked = {
        name: torch.stack([dict(method.named_parameters())[name].detach() for method in methods]).requires_grad_()
        for name, _ in methods[0].named_parameters()
    }
    losses = batched_objective(methods[0].train())(stacked, data)["task"]
    losses.sum().backward()
    for trial, method in enumerate(methods):
        present = None if data.present is None else data.present[trial]
        weight = None if data.weight is None else data.weight[trial]
        values = {name: value[trial] for name, value in data.values.items()}
        batch = trial_batch(values, data.y[trial], present, weight, data.complete)
        own = method.objective(method(batch), batch, Step())["task"]
        own.backward()
        torch.testing.assert_close(losses[trial], own, rtol=1e-5, atol=1e-6)
        for name, parameter in method.named_parameters():
            torch.testing.assert_close(stacked[name].grad[trial], parameter.grad, rtol=1e-4, atol=1e-6)


class Doubled(Unimodal):
    """An expert with an objective of its own."""

    def objective(self, prediction, batch, step):
        return {"task": 2 * super().objective(prediction, batch, step)["task"]}


def test_methods_that_are_more_than_one_perceptron_have_none():
    samples, preparation = prepared(False, False)
    spec = Spec(preparation.modalities, preparation.task)
    assert batched_objective(Late(spec)) is None
    assert batched_objective(Straight(spec)) is None
    assert batched_objective(Doubled(spec, "a")) is None
    numbers = Task.of(samples["a"][:, 0], "regression")
    assert batched_objective(Unimodal(Spec(preparation.modalities, numbers), "a")) is None
    assert batched_objective(Unimodal(spec, "a")) is not None
