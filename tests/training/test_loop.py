"""The loop against independent computations: numpy gradient descent, hand-written loops, other ways to the same end."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from consilience.core.errors import InputError, TrainingError
from consilience.core.samples import Modality, Samples
from consilience.core.targets import Task
from consilience.methods import Spec, Step, build
from consilience.methods.opinions.late import Late
from consilience.training import Phase
from consilience.training.devices import epoch_seed, lay_out
from consilience.training.modality_dropout import hide_some
from consilience.training.training_log import validate
from training.toys import Explosive, Straight, make, make_samples, prepare, same, trainer, weights

FULL = {"batch_size": 1000, "optimizer": "sgd"}


def numbers(samples):
    """Standardised inputs `[n, 5]` and targets in float64, by numpy alone."""
    x = np.concatenate([samples["a"], samples["b"]], axis=1)
    weight = np.ones(len(x)) if samples.weight is None else samples.weight
    mean = np.average(x, axis=0, weights=weight)
    x = (x - mean) / np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    return x, samples.y, weight / weight.sum()


def descend(samples, start, rates):
    """Gradient descent on a linear regression in closed form: the weights `[6]` and the loss before each step."""
    x, y, share = numbers(samples)
    mean = share @ y
    y = (y - mean) / np.sqrt(share @ (y - mean) ** 2)
    x = np.c_[x, np.ones(len(x))]
    w = np.append(start["map.weight"].numpy().astype(float), start["map.bias"].numpy().astype(float))
    losses = []
    for rate in rates:
        residual = x @ w - y
        losses.append(share @ residual**2)
        w = w - rate * 2 * x.T @ (share * residual)
    return w, losses


def flat(state):
    return torch.cat([state["map.weight"].flatten(), state["map.bias"]]).double().numpy()


@pytest.mark.parametrize("weighted", [False, True])
def test_full_batch_descent_is_the_closed_form(weighted):
    weight = np.random.default_rng(1).random(64) + 0.1 if weighted else None
    samples = make_samples(regression=True, weight=weight)
    preparation = prepare(samples)
    module = make(Straight, preparation)
    expected, losses = descend(samples, weights(module), [0.1] * 5)
    log = trainer(preparation, epochs=5, lr=0.1, **FULL).run(module, samples)
    np.testing.assert_allclose(flat(weights(module)), expected, atol=1e-5)
    np.testing.assert_allclose([row["task"] for row in log.rows], losses, atol=1e-5)
    assert [(row["phase"], row["epoch"]) for row in log.rows] == [("fit", epoch) for epoch in range(5)]
    assert log.finished
    assert not log.interrupted


def test_softmax_regression_is_the_closed_form():
    samples = make_samples()
    preparation = prepare(samples)
    module = make(Straight, preparation)
    x, y, _ = numbers(samples)
    w, b = (weights(module)[name].double().numpy() for name in ("map.weight", "map.bias"))
    for _ in range(4):
        logits = x @ w.T + b
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[y]
        w, b = w - 0.2 * error.T @ x / len(x), b - 0.2 * error.mean(axis=0)
    trainer(preparation, epochs=4, lr=0.2, **FULL).run(module, samples)
    np.testing.assert_allclose(weights(module)["map.weight"], w, atol=1e-5)
    np.testing.assert_allclose(weights(module)["map.bias"], b, atol=1e-5)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adagrad", "rmsprop"])
def test_batches_equal_a_hand_written_loop(name):
    samples = make_samples(70)
    preparation = prepare(samples)
    module, twin = make(Straight, preparation), make(Straight, preparation)
    momentum = {"momentum": 0.5} if name in ("sgd", "rmsprop") else {}
    trainer(preparation, optimizer=name, weight_decay=0.01, seed=5, **momentum).run(module, samples)
    classes = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "adagrad": "Adagrad", "rmsprop": "RMSprop"}
    optimizer = getattr(torch.optim, classes[name])(twin.parameters(), lr=0.05, weight_decay=0.01, **momentum)
    x, y, _ = numbers(samples)
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y)
    for epoch in range(3):
        order = torch.randperm(70, generator=torch.Generator().manual_seed(epoch_seed(5, 0, epoch)))
        for rows in order.tensor_split(5):
            optimizer.zero_grad()
            functional.cross_entropy(twin.map(x[rows]), y[rows]).backward()
            optimizer.step()
    for key, value in weights(twin).items():
        torch.testing.assert_close(weights(module)[key], value, atol=1e-5, rtol=1e-4)


def test_seeds_and_epochs_shuffle_differently():
    seeds = {epoch_seed(seed, phase, epoch) for seed in range(5) for phase in range(3) for epoch in range(50)}
    assert len(seeds) == 5 * 3 * 50


@pytest.mark.parametrize("n", [64, 70])
def test_accumulation_equals_larger_batches(n):
    weight = np.random.default_rng(1).random(n)
    samples = make_samples(n, weight=weight)
    preparation = prepare(samples)
    found = []
    for batch_size, accumulate in [(16, 1), (8, 2), (4, 4)]:
        module = make(Straight, preparation)
        log = trainer(preparation, batch_size=batch_size, accumulate=accumulate).run(module, samples)
        found.append((weights(module), [row["task"] for row in log.rows]))
    for state, losses in found[1:]:
        for name, value in found[0][0].items():
            torch.testing.assert_close(state[name], value, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(losses, found[0][1], rtol=1e-5)


def test_accumulation_equals_larger_batches_where_modalities_are_missing():
    present = np.random.default_rng(2).random((60, 2)) < 0.5
    samples = make_samples(60).replaced({}, present=present)
    preparation = prepare(samples)
    states = []
    for batch_size, accumulate in [(30, 1), (15, 2)]:
        module = make(Late, preparation)
        trainer(preparation, batch_size=batch_size, accumulate=accumulate, optimizer="sgd").run(module, samples)
        states.append(weights(module))
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("clip", [0.01, 1000.0])
def test_clipping_bounds_the_norm_of_the_gradient(clip):
    samples = make_samples(regression=True)
    preparation = prepare(samples)
    module, free = make(Straight, preparation), make(Straight, preparation)
    before = flat(weights(module))
    trainer(preparation, epochs=1, lr=0.5, clip=clip, **FULL).run(module, samples)
    trainer(preparation, epochs=1, lr=0.5, **FULL).run(free, samples)
    step, unclipped = flat(weights(module)) - before, flat(weights(free)) - before
    expected = min(0.5 * clip, np.linalg.norm(unclipped))
    assert np.linalg.norm(step) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(step / np.linalg.norm(step), unclipped / np.linalg.norm(unclipped), atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        ({"schedule": "cosine"}, [0.5 * (1 + math.cos(math.pi * epoch / 8)) for epoch in range(8)]),
        (
            {"schedule": "cosine", "warmup": 2},
            [0.5, 1, *(0.5 * (1 + math.cos(math.pi * epoch / 6)) for epoch in range(6))],
        ),
        # Validation has its best in the first epoch; patience=None means plateaus of 5 epochs: halved after epoch 6.
        ({"schedule": "plateau", "patience": None}, [1, 1, 1, 1, 1, 1, 0.5, 0.5]),
        ({"schedule": "plateau", "patience": 8}, [1, 1, 1, 1, 1, 0.5, 0.5, 0.5]),
        ({"schedule": "plateau", "patience": 8, "warmup": 2}, [0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5]),
    ],
)
def test_rates_follow_the_schedule(settings, factors):
    samples = make_samples(regression=True)
    preparation = prepare(samples)
    module = make(Straight, preparation)
    with torch.no_grad():
        module.map.weight.zero_()
    # On the opposite targets every step makes it worse.
    opposite = Samples.of({"a": samples["a"], "b": samples["b"]}, 2 * samples.y.mean() - samples.y)
    start = weights(module)
    log = trainer(preparation, epochs=8, lr=0.2, **FULL, **settings).run(module, samples, opposite)
    assert log.best_epoch == 0
    _, losses = descend(samples, start, [0.2 * factor for factor in factors])
    np.testing.assert_allclose([row["task"] for row in log.rows], losses, atol=1e-5)


def test_weights_equal_repetition():
    times = np.random.default_rng(2).integers(0, 4, size=64)
    once = make_samples(weight=times)
    repeated = make_samples()[np.repeat(np.arange(64), times)]
    assert len(repeated) == times.sum()
    outputs = []
    for samples in (once, repeated):
        preparation = prepare(samples)
        module = make(Late, preparation)
        trainer(preparation, epochs=4, **FULL).run(module, samples)
        outputs.append(trainer(preparation).predict(module, make_samples(seed=9)).output)
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-4)


def noisy_validation():
    samples = make_samples(48)
    return samples, prepare(samples), make_samples(40, seed=7)


def test_early_stopping_restores_exactly_the_best_weights():
    samples, preparation, validation = noisy_validation()
    settings = {"lr": 0.5, "batch_size": 8, "optimizer": "sgd"}
    module = make(Straight, preparation)
    log = trainer(preparation, epochs=30, patience=3, **settings).run(module, samples, validation)
    losses = [row["validation_loss"] for row in log.rows]
    assert log.best_epoch == int(np.argmin(losses))
    assert log.best_epoch > 0
    assert len(losses) == log.best_epoch + 1 + 3 < 30
    until = make(Straight, preparation)
    trainer(preparation, epochs=log.best_epoch + 1, patience=None, **settings).run(until, samples)
    assert same(weights(module), weights(until))


def test_without_patience_every_epoch_runs_and_the_best_weights_still_win():
    samples, preparation, validation = noisy_validation()
    module = make(Straight, preparation)
    run = trainer(preparation, epochs=12, patience=None, lr=0.5, batch_size=8, optimizer="sgd")
    log = run.run(module, samples, validation)
    assert len(log.rows) == 12
    again = validate(module, module, run.loader(validation, torch.device("cpu")), 256)
    assert again["validation_loss"] == pytest.approx(min(row["validation_loss"] for row in log.rows), rel=1e-6)


def test_without_validation_the_last_weights_stay():
    samples, preparation, _ = noisy_validation()
    states = []
    for epochs in (6, 7):
        module = make(Straight, preparation)
        log = trainer(preparation, epochs=epochs, patience=1, schedule="plateau", lr=3.0).run(module, samples)
        assert (len(log.rows), log.best_epoch) == (epochs, None)
        states.append(weights(module))
    assert not same(*states)


def test_validation_figures_are_weighted_means():
    weight = np.random.default_rng(3).random(50)
    samples = make_samples(50, weight=weight)
    preparation = prepare(samples)
    module = make(Straight, preparation)
    row = trainer(preparation, epochs=1, lr=1e-12).run(module, samples, samples).rows[0]
    x, y, share = numbers(samples)
    logits = x @ weights(module)["map.weight"].numpy().T + weights(module)["map.bias"].numpy()
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(50), y]
    assert row["validation_loss"] == pytest.approx(share @ losses, rel=1e-5)
    assert row["validation_accuracy"] == pytest.approx(share @ (logits.argmax(axis=1) == y), rel=1e-6)
    assert row["task"] == pytest.approx(share @ losses, rel=1e-5)


def test_phases_train_only_their_parameters_and_are_visible():
    samples = make_samples()
    preparation = prepare(samples)
    module = make(Straight, preparation)
    states, seen = {}, []

    def watch(step: Step) -> None:
        seen.append((step.phase, step.epoch, step.epochs))
        states.setdefault(step.phase, weights(module))
        assert module.map.bias.requires_grad == (step.phase == "bias")
        assert module.map.weight.requires_grad == (step.phase == "weight")

    module.trap = watch
    start = weights(module)
    phases = [
        Phase("weight", epochs=2, parameters=lambda module: [module.map.weight]),
        Phase("bias", lr=0.3, parameters=lambda module: [module.map.bias]),
    ]
    log = trainer(preparation, **FULL).run(module, samples, phases=phases)
    assert seen == [("weight", epoch, 2) for epoch in range(2)] + [("bias", epoch, 3) for epoch in range(3)]
    assert [row["phase"] for row in log.rows] == ["weight"] * 2 + ["bias"] * 3
    end, between = weights(module), states["bias"]
    assert torch.equal(start["map.bias"], between["map.bias"])
    assert not torch.equal(start["map.weight"], between["map.weight"])
    assert torch.equal(between["map.weight"], end["map.weight"])
    assert not torch.equal(between["map.bias"], end["map.bias"])
    assert all(parameter.requires_grad for parameter in module.parameters())
    # The second phase has its own rate, and meets no gradients left over from the first.
    x, y, _ = numbers(samples)
    logits = torch.from_numpy(x).float() @ between["map.weight"].T
    bias = between["map.bias"].clone().requires_grad_()
    for _ in range(3):
        functional.cross_entropy(logits + bias, torch.from_numpy(y)).backward()
        bias.data -= 0.3 * bias.grad
        bias.grad = None
    torch.testing.assert_close(end["map.bias"], bias.detach(), atol=1e-6, rtol=1e-5)


def test_gradients_from_before_do_not_count():
    samples = make_samples()
    preparation = prepare(samples)
    fresh, used = make(Straight, preparation), make(Straight, preparation)
    used.map.weight.grad = torch.full_like(used.map.weight, 100.0)
    for module in (fresh, used):
        trainer(preparation).run(module, samples)
        assert all(parameter.grad is None for parameter in module.parameters())
    assert same(weights(fresh), weights(used))


def test_what_the_user_froze_stays_frozen():
    samples = make_samples()
    preparation = prepare(samples)
    module = make(Straight, preparation)
    module.map.bias.requires_grad_(False)
    before = weights(module)
    trainer(preparation, weight_decay=0.1).run(module, samples)
    assert torch.equal(before["map.bias"], module.map.bias)
    assert not torch.equal(before["map.weight"], module.map.weight)
    assert not module.map.bias.requires_grad


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (lambda module: [], "phase 'odd' of Straight has no parameters to train"),
        (
            lambda module: [torch.nn.Parameter(torch.zeros(4, 2))],
            r"that Straight does not have, of shapes \[\(4, 2\)\]",
        ),
    ],
)
def test_phases_with_nothing_to_train_are_errors(parameters, message):
    samples = make_samples()
    preparation = prepare(samples)
    with pytest.raises(InputError, match=message):
        trainer(preparation).run(make(Straight, preparation), samples, phases=[Phase("odd", parameters=parameters)])


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": 0.0}, {"lr": float("nan")}])
def test_phases_check_their_settings(wrong):
    with pytest.raises(InputError, match=f"phase 'odd': {next(iter(wrong))} must be"):
        Phase("odd", **wrong)


def test_a_loss_that_is_not_finite_names_term_and_epoch():
    samples = make_samples()
    preparation = prepare(samples)
    with pytest.raises(TrainingError, match=r"Explosive: the loss term 'fuse' became nan in epoch 2.*lr \(now 0.05\)"):
        trainer(preparation).run(make(Explosive, preparation), samples)


def test_a_failed_run_still_leaves_the_best_weights():
    samples = make_samples()
    preparation = prepare(samples)
    module, one_epoch = make(Explosive, preparation), make(Straight, preparation)
    with pytest.raises(TrainingError):
        trainer(preparation).run(module, samples, samples)
    trainer(preparation, epochs=1).run(one_epoch, samples)
    assert same(weights(module), weights(one_epoch))


@pytest.mark.filterwarnings("ignore:overflow")
def test_weights_that_blow_up_in_the_last_step_are_noticed():
    samples = make_samples(regression=True)
    preparation = prepare(samples)
    with pytest.raises(TrainingError, match=r"the weights 'map.weight' are not finite after the last step"):
        trainer(preparation, epochs=1, lr=1e39, **FULL).run(make(Straight, preparation), samples)


def test_a_validation_loss_that_is_not_finite_is_noticed():
    samples = make_samples(regression=True)
    preparation = prepare(samples)
    with pytest.raises(TrainingError, match=r"the loss term 'validation_loss' became (inf|nan) in epoch 1"):
        trainer(preparation, epochs=1, lr=1e38, **FULL).run(make(Straight, preparation), samples, samples)


def test_only_this_librarys_own_convolutions_are_laid_out_otherwise():
    modalities = {name: Modality(name, "image", (3, 8, 8)) for name in ("ours", "theirs")}
    spec = Spec(modalities, Task.of_labels(np.arange(2)), {"theirs": Deep()})
    module = build("concat", spec)
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    lay_out(module, torch.channels_last)
    ours, theirs = (module.encoders[name] for name in modalities)
    assert ours.stages["conv2"][0].weight.is_contiguous(memory_format=torch.channels_last)
    assert all(weight.is_contiguous() for weight in theirs.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in module.state_dict().items())
    lay_out(module, torch.contiguous_format)
    assert all(weight.is_contiguous() for weight in module.parameters())


class Deep(nn.Module):
    """A module that a layout of four dimensions does not fit."""

    def __init__(self):
        super().__init__()
        self.flat, self.deep = nn.Conv2d(3, 4, 3), nn.Conv3d(1, 2, 3)

    def forward(self, x):
        maps = self.flat(x)
        return maps.view(len(x), -1) + self.deep(maps[:, None]).mean()


def test_hidden_modalities():
    torch.manual_seed(0)
    present = torch.rand(4000, 3) < 0.7
    hidden = hide_some(present, 0.4)
    left = present & ~hidden
    assert torch.equal(left.any(dim=1), present.any(dim=1))
    # Of two that are there: each is hidden with probability 0.4, but never both (the one with the larger draw stays).
    two = present.sum(1) == 2
    share = (hidden & present)[two].sum(1).float().mean().item()
    assert share == pytest.approx(1 - 0.6**2, abs=0.04)


def test_modality_dropout_hides_in_training_only():
    samples = make_samples()
    preparation = prepare(samples)
    seen = {True: [], False: []}

    class Watching(Straight):
        def forward(self, batch):
            seen[self.training].append(batch.present.float().mean().item())
            assert all((batch[name][~batch.present_in(name)] == 0).all() for name in batch.names)
            return super().forward(batch)

    trainer(preparation, modality_dropout=0.6).run(make(Watching, preparation), samples, samples)
    assert set(seen[False]) == {1.0}
    assert np.mean(seen[True]) == pytest.approx(0.5 + 0.4**2 / 2, abs=0.1)
