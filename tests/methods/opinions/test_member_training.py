"""`auto` under a time limit and after Ctrl-C: which members are trained, and what the model answers without others."""

import logging

import numpy as np
import pytest
import torch

from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.estimators import FusionClassifier
from consilience.methods.opinions import linear_expert, pooled_expert, tree_expert
from consilience.methods.opinions.bayes_robust import BayesRobust
from consilience.methods.opinions.member_training import (
    ALL,
    Outcome,
    Task,
    in_order_of_worth,
    say_left_out,
    train_members,
)
from consilience.methods.opinions.tree_expert import TREES, TreeOpinion
from consilience.training import Trainer, load_model, time_limit
from consilience.training.lockstep import CrossFit
from consilience.training.stacked_training import Stack
from consilience.training.time_limit import Deadline


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock(monkeypatch):
    """Every part of a network's training takes a second, every logistic regression a hundredth."""
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    train_epoch = Stack.train_epoch

    def slow(self, *rest, **more):
        clock.time += 1
        return train_epoch(self, *rest, **more)

    solve = linear_expert.path_of_solutions

    def slow_solver(*rest, **more):
        clock.time += 0.01
        return solve(*rest, **more)

    monkeypatch.setattr(Stack, "train_epoch", slow)
    monkeypatch.setattr(linear_expert, "path_of_solutions", slow_solver)
    return clock


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setitem(TREES, "extra", 20)
    monkeypatch.setattr(pooled_expert, "_TREES", 20)


def samples_of(n=120, seed=0):
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    a, b = random.normal(size=(n, 4)), random.normal(size=(n, 3))
    a[:, :2] += np.array([[1.5, 0], [0, 1.5], [-1, -1]])[y]
    return Samples.of({"a": a, "b": b + y[:, None]}, y)


def fit(train=None, **training):
    return FusionClassifier("auto", settings={"folds": 3}, device="cpu", **training).fit(train or samples_of())


def trained(model):
    return {(member.modality, member.name) for member in model.leaderboard() if np.isfinite(member.loss)}


MEMBERS = {(modality, name) for modality in "ab" for name in ("network", "linear", "trees")}
BOTH = {(ALL, "experts"), (ALL, "network")}


def found(loss=0.5):
    return CrossFit(torch.zeros(1), [], np.zeros(1), loss)


def test_the_order():
    names = ["network", "linear", "trees"]
    tasks = [Task(ALL, "network", None)]
    for modality in "ab":
        tasks += [Task(modality, name, None, name == "linear", None if name == "network" else 1.0) for name in names]
    assert [(task.modality, task.name) for task in in_order_of_worth(tasks)] == [
        ("a", "linear"),
        ("b", "linear"),
        ("a", "trees"),
        ("b", "trees"),
        (ALL, "network"),
        ("a", "network"),
        ("b", "network"),
    ]


def test_networks_share_what_is_left(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    given = {}

    def taking(name, seconds):
        def train(trainer):
            given[name] = trainer.deadline.left()
            clock.time += min(seconds, trainer.deadline.left()) if seconds == 1000 else seconds
            return found()

        return train

    tasks = [
        Task("a", "linear", taking("linear", 10), first=True, seconds=10),
        Task("a", "trees", taking("trees", 10), seconds=20),
        Task("a", "slow trees", taking("slow trees", 10), seconds=80),
        Task(ALL, "network", taking("one", 5)),
        Task("a", "network", taking("two", 1000)),
    ]
    outcome = train_members(tasks, Trainer(time_limit=100.0))
    assert [task.name for task in outcome.left_out] == ["slow trees"]
    # 15 % of the time is for what is learned from opinions: 65 are left for networks after 20.
    assert given == pytest.approx({"linear": 100, "trees": 90, "one": 32.5, "two": 60})
    assert clock.time == pytest.approx(185)


def test_without_a_limit_nothing_is_left_out():
    model = fit(steps=40)
    assert trained(model) == MEMBERS | BOTH
    assert not any(log.out_of_time for log in model.model_.logs)


def test_a_limit_that_is_not_reached_changes_nothing(clock):
    test = samples_of(40, 1)
    assert np.array_equal(fit(steps=40, time_limit=1e6).predict_proba(test), fit(steps=40).predict_proba(test))


def test_a_limit_ends_networks_early(clock, caplog):
    model = fit(time_limit=12, patience=None)
    assert trained(model) == MEMBERS | BOTH
    assert clock.time - 100 <= 14  # three networks of at least one second each
    ended = [log.out_of_time for log in model.model_.logs if "validation_loss" in log.rows[0] and len(log.rows) > 1]
    assert ended
    assert all(ended)
    assert "the time limit of 12 s ended 3 of its" in caplog.text
    assert model.score(samples_of(90, 1)) > 0.6
    assert model.predict_set(samples_of(20, 1)).shape == (20, 3)


def test_too_short_a_limit_trains_the_quickest_member_of_each_modality(clock, caplog):
    model = fit(time_limit=1e-6)
    assert trained(model) == {("a", "linear"), ("b", "linear")}
    assert clock.time < 101
    assert "'a'" in caplog.text
    assert "the network over all modalities" in caplog.text
    assert "there was no time within 1e-06 s" in caplog.text
    assert caplog.text.count("left out") == 1
    assert model.score(samples_of(90, 1)) > 0.6


def test_what_a_limit_leaves_can_be_saved(clock, tmp_path):
    test = samples_of(30, 1)
    model = fit(time_limit=1e-6)
    again, _ = load_model(model.save(tmp_path / "model"))
    assert torch.equal(again.predict(test, device="cpu").output, model.model_.predict(test, device="cpu").output)


def test_ctrl_c_in_the_second_modality_keeps_the_first(monkeypatch, caplog):
    calls = []
    solve = linear_expert.path_of_solutions

    def interrupt(train, modality, *rest, **more):
        if modality == "b":
            calls.append(modality)
            raise KeyboardInterrupt
        return solve(train, modality, *rest, **more)

    monkeypatch.setattr(linear_expert, "path_of_solutions", interrupt)
    train, test = samples_of(), samples_of(90, 1)
    model = fit(train)
    assert calls == ["b"]
    assert trained(model) == {("a", "linear")}
    assert "Nothing was learned from 'b'" in caplog.text
    assert "since training was interrupted" in caplog.text
    assert model.score(test) > 0.5
    # What was not learned from does not decide: with it alone the model answers by the class shares.
    shares = np.bincount(train.y) / len(train)
    assert model.predict_proba(test.only(["b"])) == pytest.approx(np.tile(shares, (90, 1)), abs=0.1)


def test_ctrl_c_in_the_network_over_all_keeps_all_trained_before(monkeypatch, caplog):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Stack, "train_epoch", interrupt)
    model = fit()
    assert trained(model) == {member for member in MEMBERS if member[1] != "network"}
    assert "the network over all modalities, the network of 'a', the network of 'b' are left out" in caplog.text
    assert model.score(samples_of(90, 1)) > 0.6
    with pytest.raises(KeyboardInterrupt):
        fit(on_interrupt="raise")


@pytest.mark.parametrize("method", ["auto", "bayes", "bayes-robust"])
def test_ctrl_c_in_a_held_out_prediction(monkeypatch, caplog, method):
    predict, calls = Trainer.predict, []

    def interrupt(self, module, samples):
        if isinstance(module, tree_expert.TreeExpert) and not calls:
            calls.append(1)
            raise KeyboardInterrupt
        return predict(self, module, samples)

    monkeypatch.setattr(Trainer, "predict", interrupt)
    chosen = {"device": "cpu", "steps": 40, "encoders": "auto" if method == "auto" else {"a": "trees", "b": "linear"}}
    model = FusionClassifier(method, **chosen).fit(samples_of())
    assert calls
    assert any(log.interrupted for log in model.model_.logs)
    assert "interrupted" in caplog.text
    assert model.score(samples_of(90, 1)) > 0.5
    if method == "auto":
        assert trained(model) >= {("a", "linear"), ("b", "linear")}
        assert "the trees of 'a'" in caplog.text
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        FusionClassifier(method, **chosen, on_interrupt="raise").fit(samples_of())


def test_ctrl_c_in_the_figures_of_what_is_learned_at_once(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("consilience.training.trainer.validate", interrupt)
    model = FusionClassifier("linear", device="cpu").fit(samples_of())
    assert [log.interrupted for log in model.model_.logs] == [True]
    assert model.score(samples_of(90, 1)) > 0.5
    with pytest.raises(KeyboardInterrupt):
        FusionClassifier("linear", device="cpu", on_interrupt="raise").fit(samples_of())


def test_what_a_deadline_of_ones_own_leaves_out_is_said(caplog):
    outcome = Outcome(left_out=[Task("a", "trees", None)])
    say_left_out("auto", outcome, [], None)
    assert "the trees of 'a' is left out: there was no time. Give" in caplog.text


def test_ctrl_c_in_what_is_learned_from_opinions(monkeypatch, caplog):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(BayesRobust, "_learn_rule", interrupt)
    model = fit(steps=40)
    assert "they are not calibrated" in caplog.text
    assert model.model_.logs[-1].interrupted
    assert model.score(samples_of(90, 1)) > 0.6


def test_ctrl_c_in_an_expert_of_the_users_keeps_its_weights(monkeypatch, caplog):
    calls = []
    train_epoch = Stack.train_epoch

    def interrupt(self, *rest, **more):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return train_epoch(self, *rest, **more)

    monkeypatch.setattr(Stack, "train_epoch", interrupt)
    model = fit(encoders={"a": "mlp"})
    assert "members as trained so far, not calibrated" in caplog.text
    assert model.score(samples_of(90, 1).only(["a"])) > 0.5


def test_progress_says_what_was_trained_and_what_is_left(clock, caplog):
    caplog.set_level(logging.INFO, "consilience")
    fit(steps=40, time_limit=500, verbose=1)
    lines = [record.message for record in caplog.records]
    assert any(line.startswith("the logistic regression of 'a': held-out loss") for line in lines)
    assert any("7 of 7 members" in line and "s left" in line for line in lines)
    assert any(line.startswith("expert of 'a': step 40/40") for line in lines)
    assert any(line.startswith("all modalities: step 40/40") for line in lines)


@pytest.mark.parametrize("method", ["late", "bayes", "bayes-robust", "best-unimodal"])
def test_every_method_ends_in_time(monkeypatch, method, caplog):
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    for kind, name in ((Stack, "train_epoch"), (time_limit.Deadline, "passed")):
        plain = getattr(kind, name)

        def slow(self, *rest, plain=plain, **more):
            clock.time += 1
            return plain(self, *rest, **more)

        monkeypatch.setattr(kind, name, slow)
    chosen = {"device": "cpu", "encoders": None, "patience": None, "steps": 3000}
    model = FusionClassifier(method, time_limit=20, **chosen).fit(samples_of())
    assert 5 <= clock.time - 100 <= 25
    assert any(log.out_of_time for log in model.model_.logs)
    assert caplog.text.count("the time limit of 20 s ended") == 1
    assert model.score(samples_of(90, 1)) > 0.6


def test_a_limit_is_for_one_device_and_above_0():
    with pytest.raises(InputError, match="time_limit is for one device"):
        Trainer(time_limit=5, devices=2)
    with pytest.raises(InputError, match="time_limit must be a number > 0"):
        Trainer(time_limit=0)


def test_a_deadline(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time_limit, "now", clock)
    deadline = Deadline(10)
    clock.time += 5
    assert deadline.left() == 10  # it has not started
    deadline.start()
    clock.time += 4
    deadline.start()
    assert (deadline.left(), deadline.passed()) == (6, False)
    assert deadline.part(0.5).left() == 3
    clock.time += 6
    assert deadline.passed()
    assert deadline.part(0.5).left() == 0


def test_class_shares_of_an_expert_of_trees(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TreeOpinion, "fit", interrupt)
    monkeypatch.setattr(tree_expert, "build_model", interrupt)
    model = fit(encoders={"a": "trees"})
    assert np.isfinite(model.predict_proba(samples_of(9, 1))).all()
