"""The method `bayes-robust`: what is broken is found, without ever having been seen."""

import numpy as np
import pytest
import torch

from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.reliability import Reliability
from consilience.core.errors import UnknownNameError
from consilience.core.samples import Modality
from consilience.corruption import Corruptor
from consilience.data import load_data
from consilience.methods import Spec
from consilience.methods.opinions import unimodal
from consilience.methods.opinions.bayes_robust import Alarm, BayesRobust
from consilience.methods.opinions.modality_views import view, view_size
from consilience.training import Model, Trainer, load_model
from toy_batches import CLASSES, VECTORS, batch_of


def trainer(**settings):
    return Trainer(**{"epochs": 6, "lr": 0.01, "device": "cpu", **settings})


def accuracy(model, samples):
    return np.mean(model.task.decode(model.predict(samples, device="cpu").output.numpy()) == samples.y)


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def model(digits):
    return Model.fit("bayes-robust", digits.train, trainer=trainer())


@pytest.fixture(scope="module")
def noisy(digits):
    hit = ["top_left", "top_right"]
    return Corruptor(digits.train).apply(digits.test, "gaussian", 10, modalities=hit, probability=1)


def test_before_fitting_it_is_the_theorem_with_everyone_nearly_reliable():
    method = BayesRobust(Spec(VECTORS, CLASSES)).eval()
    found = method(batch_of(5))
    assert found.extra["reliability"].detach().numpy() == pytest.approx(0.9)
    rule = BayesRule(2, 3, kappa="none")
    low, high = (rule(found.opinions, reliability=torch.full((5, 2), rho)).exp() for rho in (0.9, 1.0))
    output = found.output.double().exp()
    torch.testing.assert_close(output.sum(1), torch.ones(5).double())
    assert ((output - low) * (high - output) >= -1e-7).all()


def test_one_sound_sample_in_200_may_raise_an_alarm():
    log_odds = torch.from_numpy(np.random.default_rng(0).normal(1, 3, size=2001))
    calibrated = Alarm().double().fit(log_odds)(log_odds)
    assert (calibrated < 0).sum() == 10
    assert (calibrated.argsort() == log_odds.argsort()).all()


def test_an_alarm_is_never_easier_to_raise_than_by_even_odds():
    log_odds = torch.linspace(0.8, 1, 50)
    torch.testing.assert_close(Alarm().fit(log_odds)(log_odds), log_odds)


def test_on_sound_samples_it_decides_as_bayes_does(model, digits):
    prediction = model.predict(digits.test, device="cpu")
    alone = model.method.rule(prediction.opinions)
    assert (prediction.output.argmax(1) == alone.argmax(1)).float().mean() > 0.98
    assert model.method.alarm.threshold < 0


def test_without_faults_the_map_is_fixed(digits):
    model = Model.fit("bayes-robust", digits.train[:300], settings={"faults": [], "folds": 2}, trainer=trainer())
    assert not any(model.method.gate.output_weight.flatten())
    prediction = model.predict(digits.test, device="cpu")
    by_hand = robust_by_hand(model, digits.test)
    torch.testing.assert_close(prediction.output.double(), by_hand, atol=1e-5, rtol=1e-5)


def robust_by_hand(model, samples):
    """The mixture of the theorem and of the robust sum with the fixed map from unusual to broken."""
    method, batch = model.method.double(), model.preparation.batch(samples)
    log_p = method.rule.calibrated(model.predict(samples, device="cpu").opinions.double(), batch.present)
    views = [batch[name].double() for name in method.names]
    rho = method.reliability(views, batch.present)
    prior, kappa = method.rule.prior.double(), method.gain.kappa.double()
    p = torch.exp(log_p)
    evidence = ((rho[..., None] * p + (1 - rho[..., None]) * prior) / prior).log().sum(1)
    gained = evidence / (1 + kappa * (rho.sum(1, keepdim=True) - 1).clamp(min=0))
    broken = torch.softmax(prior.log() + gained, 1)
    capped = 0.1 + (0.99 - 0.1) * (rho - 0.1) / 0.8
    whole = (capped.prod(1, keepdim=True) * (prior * (p / prior).prod(1))).sum(1)
    some = (prior * ((capped[..., None] * p + (1 - capped[..., None]) * prior) / prior).prod(1)).sum(1)
    odds = torch.logit(whole / some) - method.alarm.threshold.double()
    sound = torch.sigmoid(odds)[:, None]
    return (sound * method.rule(log_p * method.rule.temperature[:, None]).exp() + (1 - sound) * broken).log()


def test_mild_noise_on_everything_is_not_taken_for_broken(digits):
    settings = [{}, {"faults": []}]
    graded, fixed = (
        Model.fit("bayes-robust", digits.train, settings=own, trainer=trainer(epochs=12)) for own in settings
    )
    mild = Corruptor(digits.train).apply(digits.test, "gaussian", 1, probability=1)
    assert loss(graded, mild) < loss(fixed, mild) - 0.02
    assert abs(accuracy(graded, digits.test) - accuracy(fixed, digits.test)) < 0.01


def loss(model, samples):
    log_p = model.predict(samples, device="cpu").output.log_softmax(1)
    return -log_p[np.arange(len(samples)), model.task.encode(samples.y)].mean().item()


def test_experts_of_vectors_are_trained_with_noise_unless_told_otherwise(monkeypatch, digits):
    seen = []
    train = unimodal.cross_fit_in_lockstep

    def watch(method, make, samples, trainer, folds):
        seen.append(trainer.augment)
        return train(method, make, samples, trainer, folds)

    monkeypatch.setattr(unimodal, "cross_fit_in_lockstep", watch)
    for settings, own in (({}, None), ({"noise": 0.0}, None), ({}, "gaussian:0..2")):
        fitting = trainer(epochs=1, augment=own)
        Model.fit("bayes-robust", digits.train[:60], settings={"folds": 2, **settings}, trainer=fitting)
    expected = dict.fromkeys(digits.train.names, "gaussian:0..0.5")
    assert seen == [expected] * 4 + [None] * 4 + ["gaussian:0..2"] * 4


def test_a_misspelt_fault_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian'"):
        BayesRobust(Spec(VECTORS, CLASSES), faults=["gausian"])


def test_noise_costs_little(model, digits, noisy):
    experts = torch.softmax(model.predict(noisy, device="cpu").opinions, dim=2)
    theorem = experts.log().sum(dim=1).argmax(dim=1).numpy()
    assert accuracy(model, digits.test) > 0.85
    assert accuracy(model, noisy) > np.mean(theorem == noisy.y) + 0.1
    without = digits.test.only(["bottom_left", "bottom_right"])
    assert accuracy(model, noisy) > accuracy(model, without) - 0.05


def test_trust_says_who_is_broken(model, digits, noisy):
    clean, broken = (model.predict(samples, device="cpu").weights for samples in (digits.test, noisy))
    assert clean.mean() > 0.75
    assert broken[:, :2].mean() < 0.2
    assert broken[:, 2:].mean() > 0.75


def test_missing_is_the_same_as_never_having_been_there(model, digits):
    present = np.ones(digits.test.present.shape, dtype=bool)
    present[:, 1] = False
    hidden = model.predict(digits.test.replaced({}, present=present), device="cpu")
    without = model.predict(digits.test.only(["top_left", "bottom_left", "bottom_right"]), device="cpu")
    assert torch.equal(hidden.output, without.output)
    assert (hidden.weights[:, 1] == 0).all()


def test_without_anything_it_says_the_prior(model, digits):
    nothing = digits.test.replaced({}, present=np.zeros_like(digits.test.present))
    output = model.predict(nothing, device="cpu").output
    torch.testing.assert_close(output, model.method.rule.prior.log().expand_as(output))


def test_the_number_of_references_is_bounded(digits):
    settings = {"references": 50, "folds": 2, "pairs": False}
    model = Model.fit("bayes-robust", digits.train[:200], settings=settings, trainer=trainer(epochs=1))
    assert {len(score.references) for score in model.method.reliability.scores} == {50}


def test_saved_in_64_bits(tmp_path, digits):
    model = Model.fit(
        "bayes-robust", digits.train[:100], settings={"folds": 2}, trainer=trainer(epochs=1, precision="64")
    )
    again, _ = load_model(model.save(tmp_path / "model"))
    before, after = (fitted.predict(digits.test, device="cpu") for fitted in (model, again))
    assert before.output.dtype == torch.float64
    assert torch.equal(before.output, after.output)


@pytest.mark.parametrize("name", ["captions", "sequences"])
def test_images_tokens_and_sequences(name):
    data = load_data(name, n=300)
    model = Model.fit("bayes-robust", data.train, settings={"folds": 2}, trainer=trainer(epochs=2))
    prediction = model.predict(data.test, device="cpu")
    assert prediction.output.isfinite().all()
    broken = model.predict(Corruptor(data.train).apply(data.test, level=10, probability=1), device="cpu")
    assert (prediction.extra["reliability"].mean(0) > 1.5 * broken.extra["reliability"].mean(0)).all()


def test_features_of_tokens_are_those_of_the_experts_who_have_not_seen_them(monkeypatch):
    data, asked = load_data("captions", n=100), []
    fit = Reliability.fit

    def spy(self, views, *rest, **named):
        asked.extend(views(fold) for fold in (0, 1, None))
        return fit(self, views, *rest, **named)

    monkeypatch.setattr(Reliability, "fit", spy)
    model = Model.fit("bayes-robust", data.train, settings={"folds": 2}, trainer=trainer(epochs=1))
    tokens = [modality.kind for modality in model.method.spec.modalities.values()].index("tokens")
    first, second, final = (views[tokens] for views in asked)
    assert np.abs(first - second).max() > 0.01
    expected = Trainer(model.preparation, device="cpu").predict(model.method.experts.each[tokens], data.train).joint
    np.testing.assert_array_equal(final[: len(data.train)], expected.double())
    assert np.abs(final - first).max() > 0.01


def test_an_interruption_in_cross_fitting_keeps_the_experts(monkeypatch, digits):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(unimodal, "reason_alone", lambda *_: "a reason")
    monkeypatch.setattr(Trainer, "cross_fit", interrupt)
    model = Model.fit("bayes-robust", digits.train[:100], trainer=trainer(epochs=1))
    assert model.predict(digits.test, device="cpu").output.isfinite().all()
    with pytest.raises(KeyboardInterrupt):
        Model.fit("bayes-robust", digits.train[:100], trainer=trainer(epochs=1, on_interrupt="raise"))


def test_views():
    batch = batch_of(3)
    assert torch.equal(view(VECTORS["image"], batch, None, torch.float64), batch["image"].double())
    sound = Modality("sound", "sequence", (4, 2))
    batch = batch_of(2, modalities={"sound": sound}, present=[[True], [True]])
    batch.lengths["sound"] = torch.tensor([4, 3])
    batch.values["sound"][1, 3] = 1e6  # padding
    found = view(sound, batch, None, torch.float64)
    assert found.shape == (2, view_size(sound, 99)) == (2, 4)
    real = batch["sound"][1, :3].double()
    torch.testing.assert_close(found[1], torch.cat([real.mean(0), real.std(0, correction=0)]))
    words = Modality("words", "tokens", (7,), vocabulary=5)
    features = torch.randn(3, 6)
    assert torch.equal(view(words, batch, features, torch.float64), features.double())
    assert view_size(words, 6) == 6
    assert view_size(Modality("photo", "image", (3, 4, 5)), 6) == 60
