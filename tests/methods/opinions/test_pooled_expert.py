"""The expert that pools a network, a logistic regression and trees; the fit of the weights against brute force."""

import copy
import itertools
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.metrics import log_loss

from consilience.core.errors import InputError, TrustWarning
from consilience.core.samples import Samples
from consilience.core.targets import Task
from consilience.encoders import build_encoder
from consilience.methods import Spec
from consilience.methods.opinions import linear_expert, pooled_expert
from consilience.methods.opinions.linear_expert import LinearExpert
from consilience.methods.opinions.pooled_expert import Pool, PooledExpert, fit_pool
from consilience.methods.opinions.tree_expert import TreeExpert
from consilience.methods.opinions.unimodal import Unimodal
from consilience.preparation import Preparation
from consilience.training import Model, Trainer, load_model
from consilience.training.stacked_training import Stack
from contracts.contract import some_missing

MEMBERS = ("network", "linear", "trees")


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Enough for what is tested here."""
    monkeypatch.setattr(pooled_expert, "_TREES", 20)


def samples_of(n=100, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    a = random.normal(size=(n, 5))
    a[:, :2] += np.array([[1.5, 0], [0, 1.5], [-1, -1]])[y]
    return Samples.of({"a": a, "b": random.normal(size=(n, 2)) + y[:, None]}, y)


def expert_of(train, encoder="auto", **training):
    """An untrained expert of "a", the function that builds another, and a trainer."""
    task = Task.of(train.y)
    trainer = Trainer(Preparation.fit(train, task), **{"device": "cpu", "steps": 60, **training})
    make = partial(Unimodal, Spec(trainer.preparation.modalities, task, {"a": encoder}), "a")
    return make(), make, trainer


def fit(train, name="unimodal:a", **training):
    trainer = Trainer(**{"steps": 60, "device": "cpu", **training})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return Model.fit(name, train, encoders={"a": "auto"}, trainer=trainer)


def outputs(model, samples):
    return model.predict(samples, device="cpu").output


def opinions_of(n=150, seed=0, members=2, skill=(1.0, 0.4)):
    """Log-probabilities of members of different skill, and the classes."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=n)
    logits = [skill[k] * np.eye(3)[y] + random.normal(size=(n, 3)) for k in range(members)]
    return log_softmax(np.stack(logits), axis=2), y


def pooled_loss(weights, log_p, y, weight, ridge=3.0):
    """What `fit_pool` minimises, written down again."""
    p = np.exp(sum(w * part for w, part in zip(weights, log_p)))
    p /= p.sum(axis=1, keepdims=True)
    mean = np.average(-np.log(p[np.arange(len(y)), y]), weights=weight)
    return mean + ridge * sum((w - 1 / len(weights)) ** 2 for w in weights) / np.sum(weight > 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_a_pool_are_the_best_of_a_grid(seed, weighted):
    log_p, y = opinions_of(seed=seed)
    weight = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    found = fit_pool(log_p, y, weight)
    grid = np.linspace(0, 3, 61)
    losses = {pair: pooled_loss(pair, log_p, y, weight) for pair in itertools.product(grid, grid)}
    best = min(losses, key=losses.get)
    assert pooled_loss(found, log_p, y, weight) <= losses[best] + 1e-9
    np.testing.assert_allclose(found, best, atol=0.05)


def test_weights_of_a_pool_by_another_optimizer_from_any_start():
    """The problem is convex: there is one minimum."""
    log_p, y = opinions_of(members=3, skill=(1.0, 0.5, 0.8))
    weight = np.ones(len(y))
    found = fit_pool(log_p, y, weight)
    random = np.random.default_rng(0)
    for _ in range(4):
        start = random.uniform(0, 3, size=3)
        other = minimize(pooled_loss, start, args=(log_p, y, weight), bounds=[(0, 3)] * 3, method="SLSQP").x
        np.testing.assert_allclose(found, other, atol=5e-3)
    for _ in range(50):
        one, two = random.uniform(0, 3, size=(2, 3))
        ends = [pooled_loss(w, log_p, y, weight) for w in (one, two)]
        assert pooled_loss((one + two) / 2, log_p, y, weight) <= np.mean(ends) + 1e-12


def test_a_useless_member_hardly_counts_and_few_samples_weigh_equally():
    log_p, y = opinions_of(2000, skill=(2.0, 0.0))
    good, useless = fit_pool(log_p, y, np.ones(len(y)))
    assert good > 0.5
    assert useless < 0.05
    few = fit_pool(log_p[:, :2], y[:2], np.ones(2))
    np.testing.assert_allclose(few, [0.5, 0.5], atol=0.25)
    np.testing.assert_allclose(fit_pool(log_p[:, :40], y[:40], np.ones(40), ridge=1e6), [0.5, 0.5], atol=1e-3)


def test_samples_of_weight_0_do_not_matter():
    log_p, y = opinions_of()
    weight = np.where(np.arange(150) < 50, 0.0, 2.0)
    alone = fit_pool(log_p[:, 50:], y[50:], np.ones(100))
    np.testing.assert_allclose(fit_pool(log_p, np.where(weight == 0, 0, y), weight), alone, atol=1e-4)


def test_the_opinion_is_the_pooled_one():
    train = samples_of()
    expert, _, trainer = expert_of(train)
    assert isinstance(expert, PooledExpert)
    assert [type(member) for member in expert.members.values()] == [Unimodal, LinearExpert, TreeExpert]
    batch = trainer.preparation.batch(train)
    expert.eval()
    for weights in ([1 / 3] * 3, [0.2, 1.7, 0.4], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]):
        expert.pool.learn(weights=np.array(weights))
        parts = [member(batch).output.double().log_softmax(1) for member in expert.members.values()]
        expected = sum(weight * part for weight, part in zip(weights, parts)).log_softmax(1)
        prediction = expert(batch)
        torch.testing.assert_close(prediction.output.double(), expected, rtol=1e-5, atol=1e-5)
        network = expert.members["network"](batch)
        assert torch.equal(prediction.joint, network.joint)
        assert torch.equal(prediction.features["a"].pooled, network.features["a"].pooled)


def test_a_member_of_weight_0_is_not_asked(monkeypatch):
    train = samples_of()
    expert, _, trainer = expert_of(train)
    expert.pool.learn(weights=np.array([1.0, 1.0, 0.0]))
    monkeypatch.setattr(TreeExpert, "forward", lambda *_: pytest.fail("the trees were asked"))
    assert expert(trainer.preparation.batch(train)).output.isfinite().all()


def test_equal_weights_before_the_fit():
    pool = Pool(3)
    assert pool.weights.tolist() == pytest.approx([1 / 3] * 3)
    assert pool.losses.isnan().all()


@pytest.mark.parametrize("augment", [None, "a=gaussian:0..0.5"])
def test_cross_fitting(augment):
    train = samples_of()
    expert, make, trainer = expert_of(train, augment=augment)
    found = expert.cross_fit(make, train, None, trainer, 4)
    parts = np.zeros((3, 100, 3))
    for fold, other in enumerate(found.methods):
        rows = np.flatnonzero(found.fold_of == fold)
        part = train.select(rows)
        torch.testing.assert_close(found.held_out[rows], trainer.predict(other, part).output, rtol=1e-4, atol=1e-4)
        for k, member in enumerate(other.members.values()):
            parts[k, rows] = trainer.predict(member, part).output.double().log_softmax(1)
    assert found.loss == pytest.approx(log_loss(train.y, found.held_out.double().exp()), rel=1e-4)
    losses = [log_loss(train.y, np.exp(part)) for part in parts]
    np.testing.assert_allclose(expert.pool.losses, losses, rtol=1e-4)
    if augment is None:
        np.testing.assert_allclose(expert.pool.weights, fit_pool(parts, train.y, np.ones(100)), atol=1e-3)
        assert found.loss < min(losses) + 0.02
    with pytest.raises(InputError, match=r"folds must be between 2 and 3 \(the samples\), got 4"):
        expert.cross_fit(make, train[:3], None, trainer, 4)


def test_weights_and_missing_modalities(monkeypatch):
    """Labels of samples that count nothing, and values that are missing, change nothing."""
    for module in ("consilience.training.lockstep", "consilience.training.trainer", linear_expert.__name__):
        monkeypatch.setattr(f"{module}.split_folds", lambda samples, task, folds, seed: np.arange(len(samples)) % folds)
    train, test = samples_of(), samples_of(30, 1)
    weight = np.where(np.arange(100) % 4 == 0, 0.0, 1.0)
    other = np.where(weight == 0, (train.y + 1) % 3, train.y)
    first, second = (outputs(fit(Samples.of(train, y, weight=weight)), test) for y in (train.y, other))
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)
    missing = some_missing(train)
    here = missing.present_in("a")
    garbage = missing.replaced({"a": np.where(here[:, None], train["a"], np.nan)})
    assert torch.equal(outputs(fit(missing), missing), outputs(fit(garbage), garbage))


def test_members_that_take_too_long_are_left_out(monkeypatch):
    monkeypatch.setattr(pooled_expert, "_LONGEST", 0.0)
    train = samples_of()
    expert, make, trainer = expert_of(train)
    found = expert.cross_fit(make, train, None, trainer, 3)
    assert expert.pool.weights[0] > 0.3
    assert expert.pool.weights[1:].tolist() == [0, 0]
    assert expert.pool.losses.isnan().tolist() == [False, True, True]
    assert not len(expert.members["trees"].opinion.trees.root)
    assert found.held_out.isfinite().all()
    assert trainer.predict(expert, train).output.isfinite().all()


def test_a_large_table_leaves_members_out():
    train = samples_of()
    expert, _, _ = expert_of(train)
    assert 6 * expert._seconds("trees", 2000) < pooled_expert._LONGEST < 6 * expert._seconds("trees", 1_000_000)
    assert 6 * expert._seconds("linear", 50_000) < pooled_expert._LONGEST < 6 * expert._seconds("linear", 50_000_000)
    assert expert._seconds("network", 10**9) == 0


def test_an_interruption(monkeypatch):
    train = samples_of()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    expert, make, trainer = expert_of(train)
    with monkeypatch.context() as patched:
        patched.setattr(linear_expert, "path_of_solutions", interrupt)
        assert expert.cross_fit(make, train, None, trainer, 3) is None
        assert trainer.interrupted
        assert expert.cross_fit(make, train, None, trainer, 3) is None
    with monkeypatch.context() as patched:
        patched.setattr(Stack, "train_epoch", interrupt)
        model = fit(train)
        assert [log.interrupted for log in model.logs] == [True]
        assert outputs(model, train).isfinite().all()
        with pytest.raises(KeyboardInterrupt):
            fit(train, on_interrupt="raise")


def test_one_sample_is_an_error():
    train = samples_of()
    expert, _, trainer = expert_of(train)
    with pytest.raises(InputError, match=r"modality 'a'.*at least 2 training samples with the modality, got 1"):
        expert.fit(train[:1], None, trainer)
    expert.fit(train[:2], None, trainer)
    assert trainer.predict(expert, train).output.isfinite().all()


def test_classes_that_some_folds_never_see():
    train = samples_of()
    rare = Samples.of(train, np.where(np.arange(100) == 4, 3, train.y))
    assert outputs(fit(rare), train).isfinite().all()


@pytest.mark.parametrize("name", ["unimodal:a", "best-unimodal", "bayes", "bayes-robust"])
def test_methods_with_separate_experts(name, tmp_path):
    """What the contract asks of every method: it learns, seeds, missing modalities, batches, saving, copies."""
    train, test = samples_of(), samples_of(40, 2)
    model = fit(train, name)
    whole = outputs(model, test)
    assert any(isinstance(part, PooledExpert) for part in model.method.modules())
    assert (whole.argmax(1).numpy() == test.y).mean() > 0.5
    if name == "unimodal:a":
        assert torch.equal(outputs(fit(train, name), test), whole)
        assert not torch.equal(outputs(fit(train, name, seed=1), test), whole)
    order = np.random.default_rng(0).permutation(len(test))
    torch.testing.assert_close(outputs(model, test[order]), whole[order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.predict(test, batch_size=7, device="cpu").output, whole, rtol=1e-5, atol=1e-5)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), whole)
    assert torch.equal(outputs(pickle.loads(pickle.dumps(model)), test), whole)
    assert torch.equal(outputs(copy.deepcopy(model), test), whole)
    assert outputs(model, some_missing(test)).isfinite().all()
    nothing = test.replaced({}, present=np.zeros_like(test.present))
    assert outputs(model, nothing).isfinite().all()


@pytest.mark.parametrize("precision", ["64", "bf16", "bf16-true"])
def test_other_precisions(precision, tmp_path):
    train, test = samples_of(), samples_of(30, 1)
    model = fit(train, "bayes", precision=precision, augment="gaussian:0..0.5")
    expert = model.method.experts["a"]
    wanted = torch.float64 if precision == "64" else torch.float32
    assert {parameter.dtype for parameter in expert.parameters()} == {wanted}
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), outputs(model, test))
    assert (outputs(model, test).argmax(1).numpy() == test.y).mean() > 0.5


def test_settings_of_the_network():
    train = samples_of()
    expert, _, _ = expert_of(train, {"name": "auto", "hidden": [7, 6], "dropout": 0.2})
    network = expert.members["network"].encoder
    assert network.hidden == (7, 6)
    assert network.width == expert.encoder.width == 6
    assert [part.p for part in network.modules() if isinstance(part, torch.nn.Dropout)] == [0.2, 0.2]
    made = build_encoder(expert.modalities["a"], {"name": "auto", "hidden": 9})
    other, _, _ = expert_of(train, made)
    assert other.members["network"].encoder.hidden == (9,)


def test_a_regression_has_a_network_alone():
    train = samples_of()
    model = fit(Samples.of(train, train["a"][:, 0] * 1.0))
    assert type(model.method) is Unimodal
    assert model.method.encoder.hidden == (256,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    train, test = samples_of(), samples_of(30, 1)
    model = fit(train, "bayes-robust", device="cuda")
    on_gpu = model.predict(test, device="cuda").output
    torch.testing.assert_close(model.predict(test, device="cpu").output, on_gpu, rtol=1e-3, atol=1e-3)


def test_with_fewer_groups_than_folds_each_group_is_a_fold(monkeypatch):
    seen = []
    cross_fit = PooledExpert.cross_fit

    def watched(self, make, train, validation, trainer, folds):
        found = cross_fit(self, make, train, validation, trainer, folds)
        seen.append(found.fold_of)
        return found

    monkeypatch.setattr(PooledExpert, "cross_fit", watched)
    group = np.arange(100) // 3 % 4
    with pytest.warns(UserWarning, match="in 4 folds instead of 5: the training samples have 4 groups"):
        fit(Samples.of(samples_of(), group=group))
    [fold_of] = seen
    assert len(set(zip(fold_of.tolist(), group.tolist()))) == 4
