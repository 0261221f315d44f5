"""The expert that is a logistic regression, compared with scikit-learn's and with a search by hand."""

import copy
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from consilience.core.errors import InputError, TrustWarning
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.methods import Spec
from consilience.methods.opinions import linear_expert
from consilience.methods.opinions.linear_expert import STRENGTHS, LinearExpert, path_of_solutions, solving_seconds
from consilience.methods.opinions.unimodal import Unimodal
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model
from consilience.training.trainer import split_folds
from contracts.contract import some_missing


def samples_of(n=120, seed=0, classes=3, noise=1.5):
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centre = np.random.default_rng(99).normal(size=(classes, 5))
    return Samples.of(
        {"a": centre[y] + noise * random.normal(size=(n, 5)), "b": random.normal(size=(n, 3)) + y[:, None]}, y
    )


def fit(train, name="unimodal:a", encoders=None, **training):
    trainer = Trainer(**{"epochs": 2, "device": "cpu", **training})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return Model.fit(name, train, encoders=encoders or {"a": "linear"}, trainer=trainer)


def expert_of(train, **training):
    """An untrained expert of "a", the function that builds another, and a trainer."""
    task = Task.of(train.y)
    trainer = Trainer(Preparation.fit(train, task), **{"device": "cpu", **training})
    make = partial(Unimodal, Spec(trainer.preparation.modalities, task, {"a": "linear"}), "a")
    return make(), make, trainer


def outputs(model, samples):
    return model.predict(samples, device="cpu").output


def by_hand(x, y, strength, weight=None):
    solver = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000)
    return solver.fit(np.asarray(x, dtype=np.float64), y, sample_weight=weight)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_opinion_is_that_of_scikit_learn(classes):
    train, test = samples_of(classes=classes), samples_of(50, 1, classes=classes)
    model = fit(train)
    assert isinstance(model.method, LinearExpert)
    x, new = (model.preparation.batch(part)["a"].numpy() for part in (train, test))
    alone = by_hand(x, train.y, model.method.strength)
    np.testing.assert_allclose(outputs(model, test).softmax(1), alone.predict_proba(new), atol=2e-3)
    weights = model.method.head.weight.detach().numpy()
    if classes == 2:
        np.testing.assert_allclose((weights[1] - weights[0])[None], alone.coef_, atol=5e-3)
    else:
        np.testing.assert_allclose(weights, alone.coef_, atol=5e-3)


@pytest.mark.parametrize(("noise", "n"), [(0.3, 60), (1.5, 90), (6.0, 120)])
def test_the_penalty_has_the_lowest_held_out_loss(noise, n):
    train = samples_of(n, noise=noise)
    expert, _, trainer = expert_of(train, seed=3)
    expert.fit(train, None, trainer)
    x = trainer.preparation.batch(train)["a"].numpy()
    fold_of = split_folds(train, expert.task, 5, 3)
    losses = []
    for strength in STRENGTHS:
        p = np.zeros((n, 3))
        for fold in range(5):
            solver = by_hand(x[fold_of != fold], train.y[fold_of != fold], strength)
            p[fold_of == fold] = solver.predict_proba(x[fold_of == fold])
        losses.append(log_loss(train.y, p))
    assert expert.strength == STRENGTHS[int(np.argmin(losses))]


def test_different_tables_want_different_penalties():
    found = set()
    for noise in (0.3, 6.0):
        found.add(fit(samples_of(120, noise=noise)).method.strength)
    assert len(found) == 2


def test_cross_fitting():
    """Held-out opinions are those of the experts of the folds; the expert of all samples is as if it were alone."""
    train = samples_of()
    expert, make, trainer = expert_of(train)
    found = expert.cross_fit(make, train, None, trainer, 4)
    assert len(found.methods) == 4
    for fold, other in enumerate(found.methods):
        rows = np.flatnonzero(found.fold_of == fold)
        torch.testing.assert_close(
            found.held_out[rows], trainer.predict(other, train.select(rows)).output, rtol=1e-4, atol=1e-5
        )
        x = trainer.preparation.batch(train)["a"].numpy()
        alone = by_hand(x[found.fold_of != fold], train.y[found.fold_of != fold], expert.strength)
        np.testing.assert_allclose(found.held_out[rows].softmax(1), alone.predict_proba(x[rows]), atol=2e-3)
    assert found.loss == pytest.approx(log_loss(train.y, found.held_out.double().softmax(1)), rel=1e-5)
    assert len(trainer.logs) == 1
    x = trainer.preparation.batch(train)["a"].numpy()
    probability = trainer.predict(expert, train).output.softmax(1)
    np.testing.assert_allclose(probability, by_hand(x, train.y, expert.strength).predict_proba(x), atol=2e-3)
    assert expert._fold_of is None
    with pytest.raises(InputError, match=r"folds must be between 2 and 3 \(the samples\), got 4"):
        expert.cross_fit(make, train[:3], None, trainer, 4)


def test_fitting_again_chooses_again():
    easy, hard = samples_of(noise=0.3), samples_of(noise=6.0)
    expert, _, trainer = expert_of(easy)
    expert.fit(easy, None, trainer)
    first = expert.strength
    _, _, other = expert_of(hard)
    expert.fit(hard, None, other)
    assert expert.strength != first


def test_only_the_ratios_of_weights_matter_and_those_of_weight_0_not_at_all(monkeypatch):
    monkeypatch.setattr(
        linear_expert, "split_folds", lambda samples, task, folds, seed: np.arange(len(samples)) % folds
    )
    train, test = samples_of(), samples_of(40, 1)
    weight = np.where(np.arange(120) % 5 == 0, 0.0, 1 + np.arange(120) % 2)
    other = np.where(weight == 0, (train.y + 1) % 3, train.y)
    first, scaled = (outputs(fit(Samples.of(train, weight=weight * scale)), test) for scale in (1.0, 7.0))
    torch.testing.assert_close(first, scaled, rtol=1e-4, atol=1e-4)
    assert torch.equal(first, outputs(fit(Samples.of(train, other, weight=weight)), test))
    model = fit(Samples.of(train, weight=weight))
    x, used = model.preparation.batch(train)["a"].numpy(), weight > 0
    scale = weight[used] * used.sum() / weight.sum()
    alone = by_hand(x[used], train.y[used], model.method.strength, scale)
    new = model.preparation.batch(test)["a"].numpy()
    np.testing.assert_allclose(first.softmax(1), alone.predict_proba(new), atol=2e-3)


def test_samples_without_the_modality_are_left_out():
    train = some_missing(samples_of())
    here = train.present_in("a")
    model = fit(train)
    garbage = train.replaced({"a": np.where(here[:, None], train["a"], np.nan)})
    assert torch.equal(outputs(fit(garbage), train), outputs(model, train))
    x = model.preparation.batch(train)["a"].numpy()
    alone = by_hand(x[here], train.y[here], model.method.strength)
    np.testing.assert_allclose(outputs(model, train)[here].softmax(1), alone.predict_proba(x[here]), atol=2e-3)
    assert torch.equal(outputs(model, train)[~here][0], model.method.head.bias.detach())


def test_classes_that_few_or_no_samples_have():
    train = samples_of()
    rare = Samples.of(train, np.where(np.arange(120) == 4, 3, train.y))  # held out, it is unknown
    output = outputs(fit(rare, "bayes"), train)
    assert output.isfinite().all()
    expert, _, trainer = expert_of(train)
    some = train[train.y != 1]
    expert.fit(some, None, trainer)
    p = trainer.predict(expert, train).output.softmax(1)
    assert (p[:, 1] < 0.05).all()
    x = trainer.preparation.batch(some)["a"].numpy()
    inner = trainer.predict(expert, some).output[:, [0, 2]].softmax(1)
    np.testing.assert_allclose(inner, by_hand(x, some.y, expert.strength).predict_proba(x), atol=2e-3)
    expert.fit(train[train.y == 1], None, trainer)
    assert (trainer.predict(expert, train).output.argmax(1) == 1).all()
    expert.fit(train[:1], None, trainer)  # nothing can be held out
    assert expert.strength == STRENGTHS[0]
    assert (trainer.predict(expert, train).output.argmax(1) == train.y[0]).all()


def test_noise_of_the_training_makes_weights_small():
    train = samples_of(noise=0.5)
    plain, noisy = (fit(train, augment=augment).method for augment in (None, "gaussian:2..2"))
    assert noisy.head.weight.norm() < 0.8 * plain.head.weight.norm()


def test_the_path_ends_where_it_is_told_to():
    train = samples_of()
    _, _, trainer = expert_of(train)
    whole = path_of_solutions(train, "a", trainer, 3)
    assert len(whole) == len(STRENGTHS)
    norms = [np.linalg.norm(weights) for weights, _ in whole]
    assert norms == sorted(norms)
    short = path_of_solutions(train, "a", trainer, 3, up_to=1)
    assert len(short) == 2
    assert np.array_equal(short[1][0], whole[1][0])


def test_separable_classes_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TrustWarning)
        model = fit(samples_of(noise=1e-3))
    assert (outputs(model, samples_of()).argmax(1).numpy() == samples_of().y).mean() > 0.5


def test_an_interruption(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    train = samples_of()
    expert, make, trainer = expert_of(train)
    monkeypatch.setattr(linear_expert, "path_of_solutions", interrupt)
    assert expert.cross_fit(make, train, None, trainer, 3) is None
    assert trainer.interrupted
    assert fit(train, "bayes").predict(train, device="cpu").output.isfinite().all()
    with pytest.raises(KeyboardInterrupt):
        fit(train, "bayes", on_interrupt="raise")


@pytest.mark.parametrize("name", ["unimodal:a", "best-unimodal", "bayes", "bayes-robust"])
def test_methods_with_separate_experts(name, tmp_path):
    """What the contract asks of every method: seeds, missing modalities, batches, saving, copies."""
    train, test = samples_of(), samples_of(40, 2)
    model = fit(train, name)
    whole = outputs(model, test)
    assert any(isinstance(part, LinearExpert) for part in model.method.modules())
    assert torch.equal(outputs(fit(train, name), test), whole)
    order = np.random.default_rng(0).permutation(len(test))
    torch.testing.assert_close(outputs(model, test[order]), whole[order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.predict(test, batch_size=7, device="cpu").output, whole, rtol=1e-5, atol=1e-5)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), whole)
    assert torch.equal(outputs(pickle.loads(pickle.dumps(model)), test), whole)
    assert torch.equal(outputs(copy.deepcopy(model), test), whole)
    assert outputs(model, some_missing(test)).isfinite().all()


@pytest.mark.parametrize("precision", ["64", "bf16", "bf16-true"])
def test_other_precisions(precision, tmp_path):
    """Beside a network that is trained in this precision."""
    train, test = samples_of(), samples_of(40, 1)
    model = fit(train, "bayes", precision=precision)
    linear = model.method.experts["a"]
    assert linear.head.weight.dtype == (torch.float64 if precision == "64" else torch.float32)
    opinion = model.predict(test, device="cpu").opinions[:, 0]
    expected = fit(train, "bayes").predict(test, device="cpu").opinions[:, 0]
    torch.testing.assert_close(opinion.float(), expected, rtol=1e-4, atol=1e-4)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), outputs(model, test))


def test_a_regression_has_a_linear_head_trained_by_gradients():
    train = samples_of()
    numbers = Samples.of(train, train["a"] @ [1.0, -1.0, 0.5, 0.0, 2.0])
    model = fit(numbers, epochs=150, lr=0.05)
    assert type(model.method) is Unimodal
    predicted = model.task.decode(outputs(model, numbers).numpy())
    assert np.corrcoef(predicted.ravel(), numbers.y)[0, 1] > 0.99


def test_seconds_grow_with_the_table():
    assert solving_seconds(2000, 10, 3) == pytest.approx(2 * solving_seconds(1000, 10, 3))
    assert 1 < solving_seconds(50_000, 1000, 2) < 10
