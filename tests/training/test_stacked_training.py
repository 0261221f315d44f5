"""Training side by side: every trial learns what it would have learned alone."""

import copy
import math

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError, TrainingError
from consilience.core.modalities import Modality
from consilience.core.targets import Task
from consilience.methods import Spec, Step, build
from consilience.training.stacked_data import Trials, trial_batch
from consilience.training.stacked_training import train_side_by_side
from consilience.training.training_settings import TrainingSettings

TRIALS = 3
SHAPE = {"name": "mlp", "hidden": [4, 4], "dropout": 0.0, "normalise": False}
TRAINING = {"epochs": 12, "batch_size": 10, "lr": 0.05, "patience": 2, "seed": 5}


def training(**changed):
    return TrainingSettings(**{**TRAINING, **changed})


def made(name="pro:concat", **settings):
    modalities = {name: Modality(name, "vector", (2,)) for name in "ab"}
    spec = Spec(modalities, Task.of_numbers(np.array([-1.0, 1.0])), dict.fromkeys(modalities, SHAPE))
    methods = []
    for seed in range(TRIALS):
        torch.manual_seed(seed)
        methods.append(build(name, spec, {"width": None, **settings}))
    return methods


def drawn(samples, seed):
    numbers = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(TRIALS, samples, 2, generator=numbers) for _ in "ab")
    noise = torch.randn(TRIALS, samples, 1, generator=numbers)
    return Trials({"a": a, "b": b}, a[..., :1] * b[..., :1] + noise)


TRAIN, VALIDATION = drawn(24, 0), drawn(12, 1)


def one_batch(trials, trial, rows=slice(None)):
    return trial_batch({name: value[trial][rows] for name, value in trials.values.items()}, trials.y[trial][rows])


def alone(method, trial, schedule):
    """The plainest training loop: returns the lowest validation loss, its epoch and its weights."""
    method = copy.deepcopy(method)
    optimizer = torch.optim.Adam(method.parameters(), lr=TRAINING["lr"])
    order = torch.Generator().manual_seed(TRAINING["seed"])
    best = (math.inf, 0, None)
    for epoch in range(TRAINING["epochs"]):
        if schedule == "cosine":
            share = (1 + math.cos(math.pi * epoch / TRAINING["epochs"])) / 2
            optimizer.param_groups[0]["lr"] = TRAINING["lr"] * share
        for rows in torch.randperm(TRAIN.samples, generator=order).split(TRAINING["batch_size"]):
            batch = one_batch(TRAIN, trial, rows)
            optimizer.zero_grad()
            sum(method.objective(method(batch), batch, Step(epoch, TRAINING["epochs"])).values()).backward()
            optimizer.step()
        batch = one_batch(VALIDATION, trial)
        with torch.no_grad():
            loss = torch.nn.functional.mse_loss(method(batch).output, batch.y).item()
        if loss < best[0]:
            best = (loss, epoch + 1, copy.deepcopy(method.state_dict()))
        if epoch + 1 - best[1] >= TRAINING["patience"]:
            break
    return best


@pytest.mark.parametrize(
    ("name", "settings", "schedule"),
    [
        ("concat", {}, "cosine"),
        # The penalty is on weights that the objective itself reads: they must be each trial's own.
        ("pro:concat", {"mode": "concat", "step_loss": 0.5, "link_penalty": 0.3}, "constant"),
    ],
)
def test_it_is_a_loop_over_single_trainings(name, settings, schedule):
    methods = made(name, **settings)
    together = train_side_by_side(methods, TRAIN, VALIDATION, training(schedule=schedule))
    lasted = set()
    for trial, method in enumerate(methods):
        loss, epoch, weights = alone(method, trial, schedule)
        assert together.losses[trial].item() == pytest.approx(loss, abs=1e-5)
        assert together.epochs[trial].item() == epoch
        for key, weight in together.trained(trial).state_dict().items():
            torch.testing.assert_close(weight, weights[key], atol=1e-5, rtol=1e-4)
        lasted.add(epoch)
    assert len(lasted) > 1  # trials that end at different times are what makes it worth testing


def test_half_precision_learns_about_the_same():
    whole, half = (
        train_side_by_side(made("concat"), TRAIN, VALIDATION, training(precision=precision))
        for precision in ("32", "bf16")
    )
    assert not torch.equal(whole.losses, half.losses)
    torch.testing.assert_close(whole.losses, half.losses, rtol=0.05, atol=0)


def test_without_patience_no_trial_ends():
    together = train_side_by_side(made("concat"), TRAIN, VALIDATION, training(patience=None, epochs=9))
    validation = torch.tensor([[row["validation_loss"] for row in log.rows] for log in together.logs]).T
    assert validation.shape == (9, TRIALS)
    torch.testing.assert_close(together.losses, validation.min(dim=0).values)
    assert together.epochs.tolist() == (validation.argmin(dim=0) + 1).tolist()


def test_errors_are_measured_trial_by_trial():
    trained = train_side_by_side(made(), TRAIN, VALIDATION, training())
    torch.testing.assert_close(trained.measure(VALIDATION), trained.losses)
    test = drawn(2500, 2)  # more than are measured at once
    for trial, error in enumerate(trained.measure(test)):
        batch = one_batch(test, trial)
        with torch.no_grad():
            output = trained.trained(trial)(batch).output
        torch.testing.assert_close(error, (output - batch.y).square().mean())


def test_the_methods_themselves_are_left_as_they_were():
    methods = made()
    before = copy.deepcopy(methods[1].state_dict())
    train_side_by_side(methods, TRAIN, VALIDATION, training())
    for key, weight in methods[1].state_dict().items():
        assert torch.equal(weight, before[key])


def test_what_does_not_fit_is_refused():
    methods = made("concat")
    with pytest.raises(InputError, match="got 2 methods, data of 3 trials"):
        train_side_by_side(methods[:2], TRAIN, VALIDATION)
    with pytest.raises(InputError, match="schedule must be 'constant' or 'cosine', got 'plateau'"):
        train_side_by_side(methods, TRAIN, VALIDATION, training(schedule="plateau"))
    with pytest.raises(InputError, match="precision must be '32' or 'bf16' or 'bf16-mixed', got '64'"):
        train_side_by_side(methods, TRAIN, VALIDATION, training(precision="64"))
    with pytest.raises(InputError, match="one seed for each of 3 trials, got 2"):
        train_side_by_side(methods, TRAIN, VALIDATION, seeds=[0, 1])
    with pytest.raises(InputError, match="accumulate needs a seed for each trial"):
        train_side_by_side(methods, TRAIN, VALIDATION, training(accumulate=2))


def test_a_loss_that_is_never_finite_is_said():
    broken = Trials(TRAIN.values, TRAIN.y.clone())
    broken.y[1] = math.inf
    with pytest.raises(TrainingError, match=r"trials \[1\] was never finite"):
        train_side_by_side(made("concat"), broken, VALIDATION, training())
