"""Balancing: each rule by hand, and as a setting of training."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from consilience import FusionClassifier, FusionRegressor, load_data
from consilience.core.errors import InputError, UnsupportedError
from consilience.methods import Spec, Step
from consilience.methods.fusion.concat import Concat
from consilience.methods.opinions.late import Late
from consilience.training import Callback, Model, Trainer, TrainingSettings
from consilience.training.balancing import Balancer, agm_ratios, ogm_factors, pareto_gradient, pmr_weights
from toy_batches import CLASSES, VECTORS, batch_of

KINDS = ("ogm-ge", "mmpareto", "pmr", "agm")
SOME = torch.tensor([[True, True], [True, False], [False, True], [False, False], [True, True], [True, True]])
HOW = {"batch_size": 32, "device": "cpu", "epochs": 2}


def step_of(method, balance, batch, strength=0.5):
    """One step as the loop takes it: the losses and the gradients, without and with balancing."""
    balancer = Balancer(balance, strength, method)
    found = []
    for balanced in (False, True):
        method.zero_grad()
        prediction = method(batch)
        losses = method.objective(prediction, batch, Step())
        if balanced:
            losses = balancer.losses(prediction, batch, losses)
        sum(losses.values()).backward()
        if balanced:
            balancer.balance_gradients(prediction, batch)
        grads = {name: weight.grad.clone() for name, weight in method.named_parameters() if weight.grad is not None}
        found.append((losses, grads))
    return balancer, prediction, *found


def of_encoder(grads, number):
    return torch.cat([grad.flatten() for name, grad in grads.items() if name.startswith(f"encoders.each.{number}.")])


def score_by_hand(outputs, batch, column, log=False):
    """The mean probability of the true class, or its logarithm, over the samples that have the modality."""
    p = outputs.softmax(1)[torch.arange(len(batch)), batch.y]
    there = batch.present[:, column]
    return (p.log() if log else p)[there].mean().item()


def alone_by_masking(method, batch, shown):
    """What the method says if it sees only some modalities: the others are taken out of the batch by hand."""
    hidden = torch.tensor([[name not in shown for name in batch.names]] * len(batch))
    method.eval()
    with torch.no_grad():
        output = method(batch.hiding(hidden)).output
    method.train()
    return output


@pytest.mark.parametrize("kind", [Late, Concat])
def test_ogm_slows_the_faster_modality(kind):
    torch.manual_seed(0)
    method, batch = kind(Spec(VECTORS, CLASSES)), batch_of(6, SOME)
    for encoder in method.encoders.values():
        encoder.eval()
    if kind is Concat:
        method.fusion.eval()
    _balancer, prediction, (_, plain), (_, balanced) = step_of(method, "ogm-ge", batch)
    if kind is Late:
        alone = prediction.opinions.detach().unbind(1)
    else:
        alone = [alone_by_masking(method, batch, {name}) for name in VECTORS]
    scores = [score_by_hand(outputs, batch, column) for column, outputs in enumerate(alone)]
    fast = int(np.argmax(scores))
    ratio = scores[fast] / scores[1 - fast]
    expected = {fast: 1 - math.tanh(0.5 * ratio), 1 - fast: 1.0}
    for number in range(2):
        before, after = of_encoder(plain, number), of_encoder(balanced, number)
        noise = after - expected[number] * before
        # Zero-mean noise with the deviation of each weight's own gradient.
        deviation = torch.cat(
            [
                grad.std().expand_as(grad).flatten()
                for name, grad in plain.items()
                if f"each.{number}." in name and "encoders" in name
            ]
        )
        normal = (noise / deviation)[deviation > 0]
        assert normal.mean().item() == pytest.approx(0, abs=5 / len(normal) ** 0.5)
        assert normal.std().item() == pytest.approx(1, abs=0.05)
    assert all(torch.equal(plain[name], balanced[name]) for name in plain if not name.startswith("encoders"))


def test_agm_scales_by_the_ratio_to_its_running_mean():
    torch.manual_seed(0)
    method, batch = Concat(Spec(VECTORS, CLASSES), dropout=0.0), batch_of(6, SOME)
    for encoder in method.encoders.values():
        encoder.eval()
    balancer = Balancer("agm", 0.5, method)
    reference = np.zeros(2)
    for count in range(1, 4):
        method.zero_grad()
        prediction = method(batch)
        sum(method.objective(prediction, batch, Step()).values()).backward()
        plain = [of_encoder({n: w.grad for n, w in method.named_parameters()}, number).clone() for number in range(2)]
        balancer.balance_gradients(prediction, batch)
        # The Shapley values of two modalities, over all orders of entering.
        said = {
            shown: alone_by_masking(method, batch, set(shown))
            for size in range(3)
            for shown in itertools.combinations(VECTORS, size)
        }
        a, b = VECTORS
        first = (said[a,] - said[()] + said[a, b] - said[b,]) / 2
        second = (said[b,] - said[()] + said[a, b] - said[a,]) / 2
        s = [score_by_hand(phi, batch, column, log=True) for column, phi in enumerate((first, second))]
        ratios = np.exp([s[0] - s[1], s[1] - s[0]])
        reference += (ratios - reference) / count
        for number, factor in enumerate(np.minimum(np.exp(0.5 * (reference - ratios)), 2)):
            grads = {n: w.grad for n, w in method.named_parameters()}
            torch.testing.assert_close(of_encoder(grads, number), plain[number] * factor, rtol=1e-3, atol=1e-6)
        with torch.no_grad():
            method.fusion.mix[0].weight.mul_(1.5)  # so that the next batch finds other ratios


@pytest.mark.parametrize("kind", [Late, Concat])
def test_mmpareto_combines_the_gradients_of_two_losses(kind):
    torch.manual_seed(0)
    method, batch = kind(Spec(VECTORS, CLASSES)).eval(), batch_of(6, SOME)
    _, _prediction, _, (losses, balanced) = step_of(method, "mmpareto", batch, strength=1.5)
    assert sorted(losses) == ["alone", "task"]
    names = [name for name, _ in method.named_parameters() if name.startswith("encoders")]
    joint = functional.cross_entropy(method(batch).output, batch.y)
    for number, name in enumerate(VECTORS):
        if kind is Late:
            output = method(batch).opinions[:, number]
        else:
            output = method(batch.hiding(torch.tensor([[other != name for other in VECTORS]] * 6))).output
        each = functional.cross_entropy(output, batch.y, reduction="none")
        own = (each * SOME[:, number]).mean()
        weights = [dict(method.named_parameters())[one] for one in names if one.startswith(f"encoders.each.{number}.")]
        g, g_own = (
            torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, weights, retain_graph=True)])
            for loss in (joint, own)
        )
        torch.testing.assert_close(of_encoder(balanced, number), 1.5 * pareto_gradient(g, g_own), rtol=1e-3, atol=1e-6)


def test_the_pareto_gradient_is_the_shortest_combination():
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        joint, alone = torch.randn(2, 4, generator=random)
        found = pareto_gradient(joint, alone)
        if joint @ alone >= 0:
            torch.testing.assert_close(found, joint + alone)
            continue
        grid = torch.linspace(0, 1, 2001)[:, None]
        shortest = (grid * joint + (1 - grid) * alone)[(grid * joint + (1 - grid) * alone).norm(dim=1).argmin()]
        assert torch.cosine_similarity(found, shortest, dim=0) > 0.999
        assert found.norm() >= max((joint + alone).norm(), 2 * shortest.norm()) * 0.999
        assert found @ joint > 0
        assert found @ alone > 0


def test_pmr_helps_the_slower_modality_by_prototypes():
    torch.manual_seed(0)
    method, batch = Concat(Spec(VECTORS, CLASSES)).eval(), batch_of(12)
    _, prediction, (plain, _), (balanced, _) = step_of(method, "pmr", batch, strength=0.7)
    scores, losses = [], []
    for encoded in prediction.features.values():
        h = encoded.pooled.detach().numpy()
        prototypes = np.stack([h[batch.y.numpy() == c].mean(0) for c in range(3)])
        distance = np.linalg.norm(h[:, None] - prototypes, axis=2)
        q = np.exp(-distance) / np.exp(-distance).sum(1, keepdims=True)
        true = q[np.arange(12), batch.y.numpy()]
        scores.append(true.mean())
        losses.append(-np.log(true).mean())
    betas = [min(1, max(scores) / score - 1) for score in scores]
    assert min(betas) == 0 < max(betas)
    assert balanced["prototypes"].item() == pytest.approx(0.7 * np.dot(betas, losses), rel=1e-4)
    assert balanced["task"].item() == plain["task"].item()


def test_modalities_that_no_sample_has_are_left_alone():
    there = torch.tensor([True, False, True])
    assert ogm_factors(torch.tensor([0.8, 0.0, 0.4]), there, 1.0)[1:].tolist() == [1, 1]
    assert ogm_factors(torch.tensor([0.8, 0.0, 0.4]), there, 1.0)[0].item() == pytest.approx(1 - math.tanh(2))
    assert agm_ratios(torch.tensor([-1.0, 0.0, -2.0]), there).tolist() == pytest.approx([math.e, 1, 1 / math.e])
    assert pmr_weights(torch.tensor([0.8, 0.0, 0.4]), there).tolist() == [0, 0, 1]
    for balance in KINDS:
        method = Concat(Spec(VECTORS, CLASSES))
        for present in (torch.tensor([[True, False]] * 4), torch.zeros(4, 2, dtype=torch.bool)):
            _, _, _, (losses, grads) = step_of(method, balance, batch_of(4, present))
            assert all(torch.isfinite(loss) for loss in losses.values())
            assert all(torch.isfinite(grad).all() for grad in grads.values())


@pytest.mark.parametrize("balance", KINDS)
@pytest.mark.parametrize("method", ["late", "concat", "simbamm"])
def test_training_with_it(method, balance):
    data = load_data("digits")
    train = data.train[:200]
    present = np.random.default_rng(0).random(train.present.shape) < 0.8
    train = train.replaced({}, present=present)
    first, second, other, plain = (
        Model.fit(method, train, data.validation[:50], trainer=Trainer(balance=kind, seed=seed, **HOW))
        for kind, seed in ((balance, 0), (balance, 0), (balance, 1), (None, 0))
    )
    outputs = [model.predict(data.test[:50]).output for model in (first, second, other, plain)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[3])
    assert all(output.isfinite().all() for output in outputs)


class Stop(Callback):
    """Ends the first run in its third epoch."""

    def on_epoch_start(self, run):
        if run.epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("balance", KINDS)
def test_a_resumed_training_equals_one_that_never_stopped(tmp_path, balance):
    data = load_data("digits")
    given = HOW | {"epochs": 4, "balance": balance, "checkpoint_seconds": 0}
    whole = Model.fit("concat", data.train[:100], data.validation[:50], trainer=Trainer(**given))
    stopping = Trainer(**given, checkpoint=tmp_path, callbacks=[Stop()], on_interrupt="raise")
    with pytest.raises(KeyboardInterrupt):
        Model.fit("concat", data.train[:100], data.validation[:50], trainer=stopping)
    resumed = Model.fit("concat", data.train[:100], data.validation[:50], trainer=Trainer(**given, checkpoint=tmp_path))
    assert torch.equal(*(model.predict(data.test[:50]).output for model in (whole, resumed)))


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("unimodal:top_left", "no encoders that are trained together"),
        ("best-unimodal", "no encoders that are trained together"),
        ("bayes", "no encoders that are trained together"),
        ("auto", "no encoders that are trained together"),
        ("linear", "no encoders that are trained together"),
        ("mla", "by turns already"),
        ("reconboost", "by turns already"),
    ],
)
def test_what_cannot_be_balanced_is_refused(method, reason):
    data = load_data("digits")
    with pytest.raises(UnsupportedError, match=f"balance='agm'.*{reason}"):
        FusionClassifier(method, balance="agm", epochs=1).fit(data.train[:100])


def test_a_single_modality_and_a_regression_are_refused():
    data = load_data("digits")
    with pytest.raises(UnsupportedError, match="single modality"):
        FusionClassifier("late", balance="pmr", epochs=1).fit(data.train[:60].only(["top_left"]))
    numbers = load_data("progressive-synthetic")
    with pytest.raises(UnsupportedError, match=r"needs the probability of the true class.*mmpareto does not"):
        FusionRegressor("late", balance="ogm-ge", epochs=1).fit(numbers.train[:60])
    model = FusionRegressor("late", balance="mmpareto", epochs=1).fit(numbers.train[:60])
    assert np.isfinite(model.predict(numbers.test[:5])).all()


def test_settings_that_do_not_go_with_it():
    with pytest.raises(InputError, match="balance='agm' accumulate must be 1, got 2"):
        TrainingSettings(balance="agm", accumulate=2)
    with pytest.raises(InputError, match="needs a balance"):
        TrainingSettings(balance_strength=0.5)
    with pytest.raises(InputError, match=r"unknown balance 'ogm'.*agm, mmpareto, ogm-ge, pmr"):
        TrainingSettings(balance="ogm")
