"""The method `bayes`: experts as if trained alone, and a rule learned from opinions on samples they had not seen."""

import re
from functools import partial

import numpy as np
import pytest
import torch

from consilience.bayes.bayes_rule import BayesRule
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.methods import Spec, Step
from consilience.methods.opinions import unimodal
from consilience.methods.opinions.bayes import Bayes
from consilience.methods.opinions.unimodal import Unimodal
from consilience.training import Model, Trainer
from toy_batches import CLASSES, VECTORS, batch_of


def samples_of(n=240, seed=0):
    """Two modalities that say nearly the same, so that believing both is believing one twice."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, size=n)
    scores = 1.5 * np.eye(3)[y] + random.normal(size=(n, 3))
    return Samples.of({"a": scores, "b": scores + 0.2 * random.normal(size=(n, 3))}, y)


def trainer(**settings):
    return Trainer(**{"epochs": 6, "batch_size": 64, "lr": 0.01, "device": "cpu", **settings})


@pytest.fixture(scope="module")
def models():
    train = samples_of()
    return {
        kappa: Model.fit("bayes", train, settings={"kappa": kappa}, trainer=trainer()) for kappa in ("gaussian", "none")
    }


def log_loss(model, samples):
    output = model.predict(samples, device="cpu").output.double().log_softmax(1)
    return torch.nn.functional.nll_loss(output, torch.from_numpy(samples.y)).item()


def test_two_who_say_the_same_are_not_believed_twice(models):
    test = samples_of(2000, seed=1)
    alone = Model.fit("unimodal:a", samples_of(), trainer=trainer())
    assert log_loss(models["gaussian"], test) < log_loss(models["none"], test) - 0.01
    assert log_loss(models["gaussian"], test) < log_loss(alone, test) + 0.02
    weights = models["gaussian"].predict(test, device="cpu").weights
    assert weights.sum(1).max() < 1.6


def test_the_rule_is_learned_from_opinions_on_samples_not_seen(monkeypatch):
    seen = {}
    fit = BayesRule.fit

    def watch(self, opinions, y, present, **rest):
        seen.update(opinions=opinions, y=y, present=present, **rest)
        return fit(self, opinions, y, present, **rest)

    monkeypatch.setattr(BayesRule, "fit", watch)
    train = samples_of(120)
    model = Model.fit("bayes", train, trainer=trainer(epochs=3))
    assert seen["opinions"].shape == (120, 2, 3)
    assert seen["y"].tolist() == train.y.tolist()
    on_training = model.predict(train, device="cpu").opinions.double().numpy()
    assert not np.allclose(on_training, seen["opinions"], atol=1e-3)
    assert np.corrcoef(on_training.ravel(), seen["opinions"].ravel())[0, 1] > 0.8


def test_samples_that_weigh_nothing_teach_nothing(monkeypatch):
    train = samples_of(90)
    weight = np.where(np.arange(90) < 30, 0.0, 2.0)
    seen = {}
    monkeypatch.setattr(BayesRule, "fit", lambda self, z, y, present, weight: seen.update(y=y, weight=weight))
    Model.fit("bayes", Samples.of(train, weight=weight), trainer=trainer(epochs=1))
    assert seen["y"].tolist() == train.y[30:].tolist()
    assert (seen["weight"] == 2).all()


def test_experts_are_those_trained_alone(models):
    model = models["gaussian"]
    spec = Spec(model.preparation.modalities, model.task)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        start = Bayes(spec)
    alone = Unimodal(spec, "b")
    alone.load_state_dict(start.experts["b"].state_dict())
    train = samples_of()
    alone.cross_fit(partial(Unimodal, spec, "b"), train, None, trainer(preparation=model.preparation), start.folds)
    for name, value in alone.state_dict().items():
        assert torch.equal(model.method.experts["b"].state_dict()[name], value)


def test_weights_are_zero_where_missing_and_one_where_alone(models):
    test = samples_of(3)
    present = np.array([[True, True], [True, False], [False, False]])
    weights = models["gaussian"].predict(test.replaced({}, present=present), device="cpu").weights
    assert weights[1].tolist() == [1.0, 0.0]
    assert weights[2].tolist() == [0.0, 0.0]
    assert (weights[0] > 0).all()


def test_each_expert_has_its_own_loss():
    present = torch.tensor([[True, False], [True, True], [False, True], [True, False]])
    batch = batch_of(4, present, weight=[5.0, 1.0, 3.0, 7.0])
    method = Bayes(Spec(VECTORS, CLASSES)).eval()
    losses = method.objective(method(batch), batch, Step())
    for name, expert in method.experts.items():
        torch.testing.assert_close(losses[name], expert.objective(expert(batch), batch, Step())["task"])


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        ("bayes", {"folds": 1}, "folds must be a whole number ≥ 2, got 1"),
        ("bayes", {"folds": "3"}, "folds must be a whole number ≥ 2, got '3'"),
        ("bayes", {"kappa": "gausian"}, "unknown kappa 'gausian': did you mean 'gaussian'"),
        ("bayes", {"calibration": "platt"}, "unknown calibration 'platt'"),
        ("bayes-robust", {"folds": 2.5}, "folds must be a whole number ≥ 2, got 2.5"),
        ("bayes-robust", {"references": 0}, "references must be a whole number ≥ 1, got 0"),
        ("bayes-robust", {"pairs": "all"}, "pairs must be True or False, got 'all'"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_trained(method, settings, says):
    with pytest.raises(InputError, match=re.escape(says)):
        Model.fit(method, samples_of(60), settings=settings, trainer=trainer(epochs=1))


def test_an_interruption_leaves_the_theorem(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    # An expert that cannot be stacked is trained first, then its copies.
    monkeypatch.setattr(unimodal, "reason_alone", lambda *_: "a reason")
    monkeypatch.setattr(Trainer, "cross_fit", interrupted)
    model = Model.fit("bayes", samples_of(60), trainer=trainer(epochs=1))
    assert (model.method.rule.alpha == 0).all()
    assert (model.method.rule.weights == 1).all()
    with pytest.raises(KeyboardInterrupt):
        Model.fit("bayes", samples_of(60), trainer=trainer(epochs=1, on_interrupt="raise"))


def test_held_out_outputs_are_of_rules_that_did_not_see_the_fold(monkeypatch):
    random = np.random.default_rng(0)
    train = samples_of(90)
    opinions, fold_of = random.normal(size=(90, 2, 3)) + 2 * np.eye(3)[train.y][:, None], np.arange(90) % 3
    weight = np.ones(90)
    weight[5] = 0
    train = Samples.of(train, weight=weight)
    monkeypatch.setattr(Bayes, "cross_fit", lambda *given: iter([(opinions[:, m], [], fold_of) for m in range(2)]))
    method = Model.fit("bayes", train, trainer=trainer(), keep_held_out=True).method
    rows = random.permutation(90)[:40]
    present = random.random((40, 2)) < 0.7
    found = method.held_out_output(rows, present)
    for fold in range(3):
        others = (fold_of != fold) & (weight > 0)
        rule = (
            BayesRule(2, 3, calibration="auto")
            .double()
            .fit(opinions[others], train.y[others], train.present[others], weight=weight[others])
        )
        own = np.flatnonzero((fold_of[rows] == fold) & (rows != 5))
        expected = rule(torch.from_numpy(opinions[rows[own]]), torch.from_numpy(present[own]))
        torch.testing.assert_close(found[own], expected)
    method.forget_held_out()
    assert method.held_out_output(rows, present) is None
    assert Model.fit("bayes", train, trainer=trainer()).method.held_out_output(rows, present) is None
