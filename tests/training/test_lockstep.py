"""Cross-fitting in lockstep, compared with loops over folds and with models trained one by one."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience.core.errors import InputError, TrainingError, UnsupportedError
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.encoders import build_encoder
from consilience.methods import Spec
from consilience.methods.opinions.late import Late
from consilience.methods.opinions.qmf import Qmf
from consilience.methods.opinions.unimodal import Unimodal
from consilience.preparation import Preparation
from consilience.training import Callback, Trainer, lockstep
from consilience.training.lockstep import cross_fit_in_lockstep, reason_alone
from consilience.training.stacked_training import Stack
from consilience.training.training_settings import resolve
from training.toys import Straight

FOLDS = 4


def samples_of(n=80, seed=0, classes=3):
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return Samples.of(
        {"a": random.normal(size=(n, 4)) + y[:, None], "b": random.normal(size=(n, 2)) - 0.5 * y[:, None]}, y
    )


def setting(samples, cls=Straight, modality=None, kind=None, **training):
    """A trainer, and a function that builds a method."""
    task = Task.of(samples.y, kind)
    preparation = Preparation.fit(samples, task)
    given = {"batch_size": 16, "lr": 0.02, "steps": 60, "device": "cpu", **training}
    spec = Spec(preparation.modalities, task)
    return Trainer(preparation, **given), lambda: cls(spec) if modality is None else cls(spec, modality)


def fit(samples, cls=Straight, modality=None, folds=FOLDS, **training):
    """The trainer, the method of all samples and what cross-fitting returns."""
    trainer, make = setting(samples, cls, modality, **training)
    torch.manual_seed(7)
    method = make()
    return trainer, method, cross_fit_in_lockstep(method, make, samples, trainer, folds)


def folds_stay(monkeypatch):
    """The same folds, whatever the labels are."""
    monkeypatch.setattr(lockstep, "split_folds", lambda samples, task, folds, seed: np.arange(len(samples)) % folds)


def log_loss(output, y, weight=None):
    losses = functional.cross_entropy(output.double(), torch.as_tensor(y), reduction="none").numpy()
    return np.average(losses, weights=weight)


@pytest.mark.parametrize(("cls", "modality"), [(Straight, None), (Unimodal, "a"), (Late, None)])
def test_held_out_outputs_are_those_of_each_folds_model(cls, modality):
    train = samples_of()
    trainer, _, found = fit(train, cls, modality)
    expected = torch.zeros_like(found.held_out)
    for fold, method in enumerate(found.methods):
        rows = np.flatnonzero(found.fold_of == fold)
        assert np.bincount(train.y[rows], minlength=3).min() >= len(rows) // 3 - 1  # stratified
        expected[rows] = trainer.predict(method, train.select(rows)).output
    torch.testing.assert_close(found.held_out, expected, rtol=1e-5, atol=1e-5)
    assert found.loss == pytest.approx(log_loss(found.held_out, train.y), rel=1e-5)
    (log,) = trainer.logs
    assert log.finished
    assert not log.interrupted
    assert min(row["validation_loss"] for row in log.rows) == found.loss == log.rows[log.best_epoch]["validation_loss"]


@pytest.mark.parametrize("average", [None, 0.9])
def test_every_model_learns_what_it_would_learn_alone(average):
    """Each model of the stack by a loop of its own, over the same batches, until the step of the lowest loss."""
    train = samples_of()
    trainer, make = setting(train, optimizer="sgd", lr=0.1, average=average, seed=3)
    torch.manual_seed(7)
    method = make()
    start = {name: weight.clone() for name, weight in method.state_dict().items()}
    found = cross_fit_in_lockstep(method, make, train, trainer, FOLDS)
    steps = trainer.logs[0].best_step
    assert steps > 5
    whole = trainer.preparation.batch(train)
    x, y = torch.cat([whole["a"], whole["b"]], dim=1), whole.y
    for trial, trained in enumerate((*found.methods, method)):
        rows = np.arange(len(train)) if trial == FOLDS else np.flatnonzero(found.fold_of != trial)
        torch.manual_seed(trainer.seed * FOLDS + trial)
        model = torch.nn.Linear(6, 3)
        if trial == FOLDS:
            model.load_state_dict({"weight": start["map.weight"], "bias": start["map.bias"]})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mean, seen = None, []
        batches = lockstep.endless_batches(rows, 16, trainer.seed, trial)
        for step, batch in zip(range(steps), batches):
            seen += batch.tolist()
            optimizer.zero_grad()
            functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            now = torch.cat([model.weight, model.bias[:, None]], dim=1).detach().clone()
            # A plain mean until a moving one has as many steps to average over.
            share = 1.0 if average is None else 1 / (step + 1) if step + 1 < 10 else 1 - average
            mean = now if mean is None else (1 - share) * mean + share * now
        assert set(seen) <= set(rows.tolist())
        assert sorted(seen[: len(rows)]) == rows.tolist()  # every row before any comes again
        kept = torch.cat([trained.map.weight, trained.map.bias[:, None]], dim=1)
        torch.testing.assert_close(kept.detach(), mean, rtol=1e-4, atol=1e-5)


def test_weights_count_in_the_pooled_loss():
    train = samples_of()
    weight = np.where(np.arange(80) % 2, 3.0, 0.5)
    _, _, found = fit(Samples.of(train, weight=weight))
    assert found.loss == pytest.approx(log_loss(found.held_out, train.y, weight), rel=1e-5)
    _, _, plain = fit(train)
    assert not torch.equal(found.held_out, plain.held_out)


def test_labels_of_samples_of_weight_0_do_not_matter(monkeypatch):
    folds_stay(monkeypatch)
    train = samples_of()
    weight = np.where(np.arange(80) < 20, 0.0, 1.0)
    other = np.where(weight == 0, (train.y + 1) % 3, train.y)
    first, second = (fit(Samples.of(train, y, weight=weight)) for y in (train.y, other))
    assert torch.equal(first[2].held_out, second[2].held_out)
    assert first[2].loss == second[2].loss
    assert torch.equal(first[1].map.weight, second[1].map.weight)


def test_samples_without_the_modality_do_not_matter(monkeypatch):
    """Neither what is stored for it nor their labels; their output is the bias of their fold's model."""
    folds_stay(monkeypatch)
    train = samples_of()
    missing = np.arange(80) % 5 == 0
    present = np.stack([~missing, np.ones(80, dtype=bool)], axis=1)
    garbage = {"a": np.where(missing[:, None], 1e6, train["a"]), "b": train["b"]}
    one, other = (
        fit(Samples.of(values, y, present=present), Unimodal, "a")
        for values, y in ((train, train.y), (garbage, np.where(missing, (train.y + 1) % 3, train.y)))
    )
    assert torch.equal(one[2].held_out, other[2].held_out)
    assert one[2].loss == other[2].loss
    biases = torch.stack([method.head.bias.detach() for method in one[2].methods])
    torch.testing.assert_close(one[2].held_out[missing], biases[np.flatnonzero(missing) % FOLDS])
    assert one[2].loss == pytest.approx(log_loss(one[2].held_out, train.y, ~missing), rel=1e-5)


def test_a_modality_that_no_sample_has():
    train = samples_of()
    trainer, make = setting(train, Unimodal, "a")
    method, without = make(), train.replaced({}, present=np.tile([False, True], (80, 1)))
    found = cross_fit_in_lockstep(method, make, without, trainer, FOLDS)
    assert found.held_out.isfinite().all()
    assert torch.equal(found.held_out[0], found.methods[found.fold_of[0]].head.bias)
    assert trainer.predict(method, train).output.isfinite().all()


def test_a_class_that_some_folds_never_see():
    train = samples_of()
    y = np.where(np.arange(80) == 5, 3, train.y)
    _, method, found = fit(Samples.of(train, y))
    assert found.held_out.shape == (80, 4)
    assert found.held_out.isfinite().all()
    assert method.map.weight.isfinite().all()


def test_fewer_samples_than_folds():
    with pytest.raises(InputError, match=r"folds must be between 2 and 3 \(the samples\), got 4"):
        fit(samples_of(3))


@pytest.mark.parametrize("n", [4, 7, 33])
def test_few_samples_and_folds_of_unequal_size(n):
    train = samples_of(n)
    trainer, _, found = fit(train)
    for fold, method in enumerate(found.methods):
        rows = np.flatnonzero(found.fold_of == fold)
        torch.testing.assert_close(
            found.held_out[rows], trainer.predict(method, train.select(rows)).output, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("training", "taken"),
    [
        ({"patience": "auto", "least_steps": 0}, 200),  # 1.6 × 60 + 100 = 196, looked at every 10 steps
        ({"patience": "auto", "least_steps": 250}, 250),
        ({"patience": "auto"}, 300),  # the least that early stopping waits for by default
        ({"patience": "auto", "steps": 85, "least_steps": 0}, 85),
        ({"patience": 3}, 80),  # epochs of 5 steps
        ({"patience": 3, "least_steps": 110}, 110),
        ({"patience": 1, "epochs": 4, "steps": None}, 20),
        ({"patience": None, "epochs": 47, "steps": None}, 235),
        ({"patience": None, "steps": 7}, 7),
    ],
)
def test_when_training_stops(monkeypatch, training, taken):
    """The loss is lowest after 60 steps, whatever is learned."""
    steps = []
    step = Stack._step
    monkeypatch.setattr(Stack, "_step", lambda self: steps.append(1) or step(self))

    def pretend(losses, weight, share):
        return abs(len(steps) - 60.0)

    monkeypatch.setattr(lockstep, "mean_without_worst", pretend)
    trainer, method, found = fit(samples_of(100), batch_size=20, folds=5, **{"steps": 1000, **training})
    assert len(steps) == taken
    best = min(taken, 60)
    assert trainer.logs[0].best_step == best
    assert found.loss == abs(best - 60)
    # The weights that are kept are those of the best step.
    steps.clear()
    _, shorter, _ = fit(samples_of(100), batch_size=20, folds=5, patience=None, steps=best)
    torch.testing.assert_close(method.map.weight, shorter.map.weight)


def test_ctrl_c_keeps_the_best(monkeypatch):
    calls = []
    train_epoch = Stack.train_epoch

    def interrupt(self, *rest, **more):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return train_epoch(self, *rest, **more)

    monkeypatch.setattr(Stack, "train_epoch", interrupt)
    trainer, method, found = fit(samples_of())
    assert found is None
    assert trainer.interrupted
    best = trainer.logs[0].best_step
    assert best > 0
    trainer_of_all, make = setting(samples_of())
    assert cross_fit_in_lockstep(make(), make, samples_of(), replace(trainer_of_all, logs=trainer.logs)) is None
    assert len(calls) == 5  # nothing was trained after the interruption
    _, shorter, _ = fit(samples_of(), steps=best)
    torch.testing.assert_close(method.map.weight, shorter.map.weight)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        fit(samples_of(), on_interrupt="raise")


def test_ctrl_c_before_anything_was_judged(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Stack, "train_epoch", interrupt)
    trainer, method, found = fit(samples_of())
    torch.manual_seed(7)
    untrained = setting(samples_of())[1]()
    assert found is None
    assert torch.equal(method.map.weight, untrained.map.weight)
    assert trainer.logs[0].best_step is None


def test_seeds_reproduce_also_in_threads():
    train = samples_of()
    state = torch.get_rng_state()
    first, again, other = (fit(train, Unimodal, "a", seed=seed)[2].held_out for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(7)  # as `fit` does before it builds the method; cross-fitting leaves the state as it was
    setting(train, Unimodal, "a")[1]()
    left = torch.get_rng_state()
    fit(train, Unimodal, "a")
    assert torch.equal(torch.get_rng_state(), left)
    torch.set_rng_state(state)
    trainer, make = setting(train, Unimodal, "a")
    torch.manual_seed(7)
    methods = [make() for _ in range(2)]
    methods[1].load_state_dict(methods[0].state_dict())

    def work(method):
        return cross_fit_in_lockstep(method, make, train, replace(trainer, logs=[]), FOLDS).held_out

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(work, methods):
            assert torch.equal(found, first)


def test_noise_and_hidden_modalities_are_for_training_only():
    train = samples_of()
    plain, noisy, again, hidden = (
        fit(train, **training)[2].held_out
        for training in ({}, {"augment": "gaussian:0..2"}, {"augment": "gaussian:0..2"}, {"modality_dropout": 0.5})
    )
    assert torch.equal(noisy, again)
    assert not torch.equal(noisy, plain)
    assert not torch.equal(hidden, plain)
    trainer, _, found = fit(train, augment="gaussian:0..2")
    rows = np.flatnonzero(found.fold_of == 1)
    torch.testing.assert_close(
        found.held_out[rows], trainer.predict(found.methods[1], train.select(rows)).output, rtol=1e-5, atol=1e-5
    )


def test_a_regression():
    train = samples_of()
    numbers = np.stack([train["a"].sum(axis=1), train["b"][:, 0]], axis=1)
    train = Samples.of(train, numbers)
    trainer, _, found = fit(train, kind="regression", lr=0.1)
    target = trainer.preparation.task.encode(train.y)
    assert found.held_out.shape == (80, 2)
    assert found.loss == pytest.approx(np.square(found.held_out.numpy() - target).mean(), rel=1e-4)
    assert found.loss < 0.3 * np.square(target).mean()


def test_bf16_trains():
    _, method, found = fit(samples_of(), Unimodal, "a", precision="bf16")
    assert found.held_out.dtype == torch.float32
    assert found.loss < np.log(3)
    assert method.head.weight.dtype == torch.float32


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(TrainingError, match="training Straight: the loss term"):
        fit(samples_of(), optimizer="sgd", lr=1e38)


class BatchNormed(Straight):
    def __init__(self, spec):
        super().__init__(spec)
        self.norm = torch.nn.BatchNorm1d(3)


class Unstackable(Straight):
    def forward(self, batch):
        prediction = super().forward(batch)
        if float(prediction.output.sum()) > 1e9:  # no number of a stack is a single one
            raise AssertionError
        return prediction


@pytest.mark.parametrize(
    ("cls", "training", "says"),
    [
        (Straight, {"precision": "64"}, "precision must be '32' or"),
        (Straight, {"schedule": "plateau"}, "schedule must be"),
        (Straight, {"accumulate": 2}, "accumulate must be 1"),
        (Straight, {"callbacks": [Callback()]}, "callbacks and checkpoints"),
        (Straight, {"checkpoint": "folder"}, "callbacks and checkpoints"),
        (Straight, {"augment": "a=swapped:1@0.2"}, "is swapped in training, and some samples lack it"),
        (BatchNormed, {}, "statistics of batches"),
        (Qmf, {}, "history of losses"),
    ],
)
def test_what_cannot_be_stacked(cls, training, says):
    train = samples_of()
    train = train.replaced({}, present=np.tile([True, True], (80, 1)) & (np.arange(80) > 0)[:, None])
    trainer, make = setting(train, cls, **training)
    method = make()
    assert says in reason_alone(method, train, trainer)
    with pytest.raises(UnsupportedError, match="in lockstep: "):
        cross_fit_in_lockstep(method, make, train, trainer, FOLDS)
    assert not trainer.logs


def test_what_torch_cannot_stack_is_named():
    with pytest.raises(UnsupportedError, match=r"torch\.func cannot stack an operation of Unstackable"):
        fit(samples_of(), Unstackable)


def test_encoders_and_experts_that_are_not_stacked():
    train = samples_of()
    trainer, make = setting(train, Unimodal, "a")
    method = make()
    assert reason_alone(method, train, trainer) is None
    method.encoder = build_encoder(trainer.preparation.modalities["a"], torch.nn.Linear(4, 5))
    assert "not faster in a stack" in reason_alone(method, train, trainer)
    method.trains_by_gradients = False
    assert "not trained by gradients" in reason_alone(method, train, trainer)


@pytest.mark.parametrize(
    ("training", "samples", "batch", "lr", "average"),
    [
        ({}, 300, 32, 3e-3, 0.99),
        ({}, 50_000, 256, 3e-3, 0.99),  # 4000 steps are more than a few epochs
        ({"optimizer": "sgd"}, 300, 32, 1e-2, None),
        ({"lr": 0.1}, 300, 32, 0.1, None),
        ({"batch_size": 8, "average": "mean"}, 300, 8, 3e-3, "mean"),
    ],
)
def test_settings_that_are_left_open(training, samples, batch, lr, average):
    found = resolve(lockstep._filled_in(Trainer(**training), samples), samples)
    assert (found.batch_size, found.lr, found.average) == (batch, lr, average)


def test_held_out_values_are_not_copied():
    train = samples_of()
    trainer, _ = setting(train)
    data = lockstep.repeat(trainer.preparation.batch(train), train.names, FOLDS + 1)
    held = [np.flatnonzero(np.arange(80) % FOLDS == fold)[: 20 - fold] for fold in range(FOLDS)]
    judged = lockstep.held_out_trials(data, held)
    assert judged.values["a"].data_ptr() == data.values["a"].data_ptr()
    assert judged.values["a"].stride(0) == 0
    for fold, rows in enumerate(held):
        part = judged.rows(slice(0, len(rows)))
        assert torch.equal(part.values["b"][fold], data.values["b"][0][rows])
        assert torch.equal(part.y[fold], data.y[0][rows])


def test_stopped_by_rows_and_judged_by_groups():
    """Trained for as many steps as single rows say; each group is held out of the models that judge it."""
    train = Samples.of(samples_of(), group=np.arange(80) // 5)
    by_rows, _, alone = fit(train.ordered_by(None, None), steps=200)
    steps = by_rows.logs[0].best_step
    trainer, _, found = fit(train, steps=200, stop_by_rows=True)
    (log,) = trainer.logs
    assert log.best_step == log.rows[-1]["steps"] == steps
    assert all(len(set(found.fold_of[train.group == group])) == 1 for group in range(16))
    expected = torch.zeros_like(found.held_out)
    for fold, each in enumerate(found.methods):
        rows = np.flatnonzero(found.fold_of == fold)
        expected[rows] = trainer.predict(each, train.select(rows)).output
    torch.testing.assert_close(found.held_out, expected, rtol=1e-5, atol=1e-5)
    assert not np.array_equal(found.fold_of, alone.fold_of)
    again = fit(train, steps=200, stop_by_rows=True)[2]
    assert torch.equal(again.held_out, found.held_out)


def test_without_groups_stopping_by_rows_changes_nothing():
    _, _, found = fit(samples_of(), stop_by_rows=True)
    assert torch.equal(found.held_out, fit(samples_of())[2].held_out)
