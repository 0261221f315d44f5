"""The method `auto`: bayes-robust with pooled experts and a network over all modalities."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience import methods
from consilience.core.errors import TrustWarning
from consilience.core.samples import Samples
from consilience.data import load_data
from consilience.methods import Spec, Step
from consilience.methods.opinions import auto
from consilience.methods.opinions.auto import AutoFusion, PresencePool
from consilience.methods.opinions.bayes_robust import BayesRobust
from consilience.methods.opinions.pooled_expert import PooledExpert
from consilience.methods.opinions.tree_expert import TREES, TreeExpert
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Callback, Model, Trainer, load_model
from consilience.training.stacked_training import Stack
from contracts.contract import some_missing
from toy_batches import CLASSES, NUMBERS, VECTORS, batch_of


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Enough for what is tested here."""
    monkeypatch.setitem(TREES, "extra", 20)


def samples_of(n=120, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    a, b = random.normal(size=(n, 4)), random.normal(size=(n, 3))
    a[:, :2] += np.array([[1.5, 0], [0, 1.5], [-1, -1]])[y]
    return Samples.of({"a": a, "b": b + y[:, None]}, y)


def product_of(n, seed=0):
    """The class is the sign of a product of a value of one modality and one of the other: neither shows it alone."""
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(n, 2)), random.normal(size=(n, 2))
    return Samples.of({"a": a, "b": b}, (a[:, 0] * b[:, 0] > 0).astype(int))


def fit(train, name="auto", validation=None, encoders=None, settings=None, **training):
    trainer = Trainer(**{"steps": 60, "device": "cpu", **training})
    chosen = {"folds": 3, **(settings or {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return Model.fit(name, train, validation, encoders=encoders, settings=chosen, trainer=trainer)


def outputs(model, samples):
    return model.predict(samples, device="cpu").output


def accuracy(model, samples):
    return np.mean(model.task.decode(outputs(model, samples).numpy()) == samples.y)


class Silent(torch.nn.Module):
    """An alarm that never sounds."""

    def forward(self, log_odds):
        return torch.full_like(log_odds, 50.0)


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(TREES, "extra", 20)
        return fit(samples_of())


def test_members_and_their_weights(model):
    members = model.method.leaderboard()
    assert [(member.modality, member.name) for member in members] == [
        ("a", "network"),
        ("a", "linear"),
        ("a", "trees"),
        ("b", "network"),
        ("b", "linear"),
        ("b", "trees"),
        ("all", "experts"),
        ("all", "network"),
    ]
    assert all(0 < member.loss < np.log(3) for member in members)
    assert all(0 <= member.weight <= 3 for member in members)
    pool = model.method.pool
    assert [member.weight for member in members[-2:]] == pool.weights[0].tolist()
    assert sum(member.weight for member in members[-2:]) > 0.5


def test_where_all_is_sound_it_is_the_pool(model):
    """The output with an alarm that never sounds, by the formula."""
    method, test = copy.deepcopy(model.method).eval(), some_missing(samples_of(40, 1))
    batch = model.preparation.batch(test)
    with torch.no_grad():
        raw = torch.stack([expert(batch).output for expert in method.experts.values()], dim=1)
        experts = method.rule(raw, batch.present)
        network = method.network(batch).output.double().log_softmax(1)
        (a, b), (few_a, few_b) = method.pool.weights.double()
        whole = batch.present.all(dim=1)[:, None]
        expected = torch.where(whole, a * experts + b * network, few_a * experts + few_b * network).log_softmax(1)
        torch.testing.assert_close(method._if_sound(raw, batch).double(), expected, rtol=1e-5, atol=1e-5)
        method.alarm = Silent()
        torch.testing.assert_close(method(batch).output.log_softmax(1).double(), expected, rtol=1e-4, atol=1e-4)


def test_the_pool_of_present_and_missing():
    pool = PresencePool()
    experts, network = (torch.randn(4, 3).log_softmax(1) for _ in range(2))
    whole = torch.tensor([True, False, True, False])
    torch.testing.assert_close(pool(experts, network, whole), experts)  # before it is fitted
    pool.learn(weights=np.array([[0.5, 1.5], [2.0, 0.0]]))
    expected = torch.where(whole[:, None], 0.5 * experts + 1.5 * network, 2 * experts).log_softmax(1)
    torch.testing.assert_close(pool(experts, network, whole), expected)


def test_the_network_finds_what_only_several_modalities_show():
    train, test = product_of(400), product_of(400, 1)
    settings = {"steps": 500, "lr": 0.01}
    found = fit(train, **settings)
    assert accuracy(found, test) > 0.8
    experts, network = found.method.leaderboard()[-2:]
    assert network.loss < experts.loss - 0.1
    assert network.weight > 0.5
    # A sum f(a) + g(b) has the sign of the product in at most three of the four quadrants. Experts that know nothing
    # may come near that by luck, but not beyond.
    assert accuracy(fit(train, "bayes-robust", **settings), test) < 0.75
    assert accuracy(fit(train, "bayes", **settings), test) < 0.6
    # With a modality missing nothing can be known: it does not pretend to.
    alone = outputs(found, test.only(["a"])).softmax(1)
    assert functional.cross_entropy(alone.log(), torch.from_numpy(test.y)) < 0.8


def test_where_a_modality_is_broken_the_experts_decide(model):
    test = samples_of(60, 1)
    broken = test.replaced({"b": test["b"] + 1000.0})
    before, after = (model.predict(part, device="cpu") for part in (test, broken))
    assert before.weights[:, 1].mean() > 0.5
    assert after.weights[:, 1].max() < 0.4
    # Whatever the network says.
    other = copy.deepcopy(model)
    other.method.network.head.weight.data.neg_()
    torch.testing.assert_close(outputs(other, broken).softmax(1), after.output.softmax(1), rtol=0, atol=0.05)
    assert (outputs(other, test).softmax(1) - before.output.softmax(1)).abs().max() > 0.1


def test_saved_copied_and_cut_into_batches(model, tmp_path):
    test = some_missing(samples_of(50, 2), share=0.2)
    whole = outputs(model, test)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), whole)
    assert again.method.leaderboard() == model.method.leaderboard()
    assert torch.equal(outputs(pickle.loads(pickle.dumps(model)), test), whole)
    assert torch.equal(outputs(copy.deepcopy(model), test), whole)
    order = np.random.default_rng(0).permutation(len(test))
    torch.testing.assert_close(outputs(model, test[order]), whole[order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.predict(test, batch_size=7, device="cpu").output, whole, rtol=1e-5, atol=1e-5)


def test_missing_modalities(model):
    test = samples_of(30, 1)
    present = np.tile([True, False], (30, 1))
    garbage = test.replaced({"b": np.full_like(test["b"], np.nan)}, present=present)
    assert torch.equal(outputs(model, garbage), outputs(model, test.replaced({}, present=present)))
    assert torch.equal(outputs(model, garbage), outputs(model, test.only(["a"])))
    trained = fit(some_missing(samples_of()))
    nothing = test.replaced({}, present=np.zeros_like(present))
    for part in (test, garbage, nothing):
        assert outputs(trained, part).isfinite().all()
    # No sample has both.
    alternating = np.stack([np.arange(120) % 2 == 0, np.arange(120) % 2 == 1], axis=1)
    trained = fit(samples_of().replaced({}, present=alternating))
    assert outputs(trained, test).isfinite().all()


def test_weights_of_samples():
    train = samples_of()
    weight = np.where(np.arange(120) % 10 == 0, 0.0, 1 + np.arange(120) % 2)
    model = fit(Samples.of(train, weight=weight))
    assert accuracy(model, samples_of(60, 1)) > 0.6


def test_a_regression_is_that_of_bayes_robust():
    train = samples_of()
    numbers = Samples.of(train, train["a"][:, 0] + 0.1 * train["b"][:, 0])
    own, other = (fit(numbers, name) for name in ("auto", "bayes-robust"))
    assert own.method.network is None
    assert torch.equal(outputs(own, numbers), outputs(other, numbers))
    assert [(member.name, member.weight) for member in own.method.leaderboard()] == [("expert", 1.0)] * 2


@pytest.mark.parametrize("name", ["captions", "sequences"])
def test_other_kinds_of_modality(name, tmp_path):
    data = load_data(name, n=150)
    model = fit(data.train, settings={"folds": 2}, epochs=1, steps=None)
    assert model.method.network is None
    assert all(type(expert) is Unimodal for expert in model.method.experts.values())
    assert [member.modality for member in model.method.leaderboard()] == list(data.train.names)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, data.test), outputs(model, data.test))


def test_an_image_beside_a_table():
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    train = Samples.of(
        {"photo": random.normal(size=(60, 1, 6, 6)) + y[:, None, None, None], "table": random.normal(size=(60, 3))}, y
    )
    model = fit(train, steps=20)
    assert model.method.network is None
    assert type(model.method.experts["photo"]) is Unimodal
    assert isinstance(model.method.experts["table"], PooledExpert)
    assert [member.name for member in model.method.leaderboard()] == ["expert", "network", "linear", "trees"]
    assert outputs(model, train).isfinite().all()


def test_chosen_encoders_stay():
    spec = Spec(VECTORS, CLASSES, {"image": "mlp"})
    method = AutoFusion(spec)
    assert type(method.experts["image"]) is Unimodal
    assert isinstance(method.experts["audio"], PooledExpert)
    assert method.network is not None
    assert isinstance(AutoFusion(Spec(VECTORS, CLASSES, {"image": "trees"})).experts["image"], TreeExpert)


def test_when_there_is_no_network_over_all(monkeypatch):
    assert AutoFusion(Spec(VECTORS, CLASSES)).network is not None
    assert AutoFusion(Spec(VECTORS, NUMBERS)).network is None
    assert AutoFusion(Spec({"image": VECTORS["image"]}, CLASSES)).network is None
    monkeypatch.setattr(auto, "_WIDEST", 4)
    assert AutoFusion(Spec(VECTORS, CLASSES)).network is None
    assert isinstance(AutoFusion(Spec(VECTORS, CLASSES)), BayesRobust)


def test_before_fitting_the_network_does_not_count():
    method = AutoFusion(Spec(VECTORS, CLASSES)).eval()
    batch = batch_of()
    raw = torch.stack([expert(batch).output for expert in method.experts.values()], dim=1)
    torch.testing.assert_close(method._if_sound(raw, batch), method.rule(raw, batch.present))
    assert all(np.isnan(member.loss) for member in method.leaderboard())


def test_a_training_loop_of_the_users_trains_everything():
    batch = batch_of(weight=[5.0, 1.0, 3.0, 7.0, 1.0, 2.0])
    method = AutoFusion(Spec(VECTORS, CLASSES)).eval()
    losses = method.objective(method(batch), batch, Step())
    assert list(losses) == ["image", "audio", "network task"]
    own = functional.cross_entropy(method.network(batch).output, batch.y, reduction="none")
    torch.testing.assert_close(losses["network task"], (own * batch.weight).sum() / batch.weight.sum())


def test_seeds_reproduce():
    train, test = samples_of(60), samples_of(30, 1)
    first, again, other = (outputs(fit(train, seed=seed, steps=20), test) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("training", [{"callbacks": [Callback()]}, {"precision": "64"}, {"accumulate": 2}])
def test_the_network_is_also_trained_where_models_cannot_be_stacked(training, tmp_path):
    train, test = samples_of(60), samples_of(30, 1)
    model = fit(train, validation=samples_of(40, 3), settings={"folds": 2}, **training)
    assert model.method.pool.losses.isfinite().all()
    assert model.method.pool.losses[1] < np.log(3)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(outputs(again, test), outputs(model, test))
    assert accuracy(model, test) > 0.5


@pytest.mark.parametrize(("call", "network"), [(1, False), (20, True)])
def test_ctrl_c_ends_all_training(monkeypatch, call, network):
    """In the training of the network over all modalities, or in that of the first expert."""
    calls = []
    train_epoch = Stack.train_epoch

    def interrupt(self, *rest, **more):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return train_epoch(self, *rest, **more)

    monkeypatch.setattr(Stack, "train_epoch", interrupt)
    model = fit(samples_of())
    assert len(calls) == call
    assert [log.interrupted for log in model.logs] == [False] * (len(model.logs) - 1) + [True]
    assert (model.method.pool.weights.tolist() == [[1, 0], [1, 0]]) is not network
    assert model.method._fitted is None
    assert outputs(model, samples_of(20, 1)).isfinite().all()
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        fit(samples_of(), on_interrupt="raise")


def test_the_network_sees_samples_with_hidden_modalities(monkeypatch):
    seen = []
    lockstep = auto.cross_fit_in_lockstep

    def watch(method, make, samples, trainer, folds):
        seen.append((trainer.modality_dropout, trainer.augment))
        return lockstep(method, make, samples, trainer, folds)

    monkeypatch.setattr(auto, "cross_fit_in_lockstep", watch)
    monkeypatch.setattr(BayesRobust, "fit", lambda *_: None)
    for training, settings in (({}, {}), ({}, {"hidden": 0.4}), ({"modality_dropout": 0.1}, {})):
        fit(samples_of(60), settings=settings, **{"steps": 5, **training})
    assert seen == [(0.25, None), (0.4, None), (0.1, None)]


def test_every_setting_is_checked():
    assert methods.find("auto")[0] is AutoFusion
    with pytest.raises(ValueError, match="hidden must be"):
        fit(samples_of(), settings={"hidden": 1.5})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    test = samples_of(30, 1)
    model = fit(samples_of(), device="cuda")
    on_gpu = model.predict(test, device="cuda").output
    torch.testing.assert_close(model.predict(test, device="cpu").output, on_gpu, rtol=1e-3, atol=1e-3)


def test_rows_that_resemble_their_neighbours_are_held_out_in_blocks(caplog):
    """Values that hardly change within a run of rows: each row is known from the next one, and its class with it."""
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 30).repeat(10)
    values = random.normal(size=(30, 6)).repeat(10, axis=0) + 0.05 * random.normal(size=(300, 6)) + 0.5 * y[:, None]
    mixed = random.permutation(300)
    train = Samples.of({"a": values[:, :3], "b": values[:, 3:]}, y)
    shuffled = Samples.of({"a": values[mixed, :3], "b": values[mixed, 3:]}, y[mixed])
    losses = []
    for samples, blocks in ((train, 12), (shuffled, None)):  # four in each fold
        caplog.clear()
        model = fit(samples, steps=100)
        said = [record.message for record in caplog.records if "resemble" in record.message]
        assert len(said) == (blocks is not None)
        assert blocks is None or f"held out in {blocks} blocks" in said[0]
        losses.append({(member.modality, member.name): member.loss for member in model.method.leaderboard()})
    apart, beside = losses
    for member in (("a", "trees"), ("b", "trees"), ("all", "network")):  # what can memorise
        assert apart[member] > beside[member] + 0.1
