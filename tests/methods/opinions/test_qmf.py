import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from consilience import FusionClassifier, corrupt, load_data, trust_diagnostics
from consilience.core.errors import InputError, UnknownNameError
from consilience.methods import Spec, Step, build
from consilience.methods.opinions.late import equal_weights
from consilience.methods.opinions.qmf import Qmf, matching_offset, matching_slope, normalise_weights
from consilience.training import LossHistory
from toy_batches import CLASSES, VECTORS, batch_of
from training.toys import make, make_samples, prepare, trainer, weights

SPEC = Spec(VECTORS, CLASSES)
SOME = [[True, True], [True, False], [False, True], [False, False], [True, True], [True, True]]


def opinions_of(n=6, seed=0, spread=3.0):
    return torch.tensor(np.random.default_rng(seed).normal(scale=spread, size=(n, 2, 3)))


def history_of(seed=0, n=6):
    """Two epochs of losses; the last sample's second modality has never been seen."""
    history, random = LossHistory(n, 2), torch.Generator().manual_seed(seed)
    present = torch.ones(n, 2, dtype=torch.bool)
    present[-1, 1] = False
    for epoch in range(2):
        history.record(torch.arange(n), torch.rand(n, 2, generator=random), present, epoch=epoch)
        history.gather()
    return history


@pytest.mark.parametrize("present", [None, SOME])
def test_weights_and_output_of_the_published_code(present):
    batch, opinions = batch_of(present=present), opinions_of()
    output, found = Qmf(SPEC).combine(opinions, batch)
    expected = torch.logsumexp(opinions, dim=2) / 10 * batch.present
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(output, (expected[:, :, None] * opinions).sum(dim=1))


@pytest.mark.parametrize(
    ("uncertainty", "weight"),
    [
        ("msp", lambda z: z.softmax(2).amax(2)),
        ("entropy", lambda z: 1 + (z.softmax(2) * z.log_softmax(2)).sum(2) / np.log(3)),
        ("evidence", lambda z: 1 - 3 / (functional.softplus(z) + 1).sum(2)),
    ],
)
def test_other_uncertainties_give_weights_between_0_and_1(uncertainty, weight):
    opinions = opinions_of()
    found = Qmf(SPEC, uncertainty=uncertainty).combine(opinions, batch_of())[1]
    torch.testing.assert_close(found, weight(opinions))
    assert ((found >= 0) & (found <= 1)).all()


def test_equation_9_with_numbers_of_each_modality():
    method = Qmf(SPEC, alpha=[-1, -2], beta={"audio": 3, "image": 4}, temperature=[0.5, 2])
    opinions = opinions_of()
    found = method.combine(opinions, batch_of())[1]
    for column, (alpha, beta, heat) in enumerate([(-1, 4, 0.5), (-2, 3, 2)]):
        energy = -heat * torch.logsumexp(opinions[:, column] / heat, dim=1)
        torch.testing.assert_close(found[:, column], alpha * energy + beta)


def test_low_precision_rounds_no_setting():
    method = Qmf(SPEC, alpha=[-0.1, -0.3]).bfloat16().float()
    opinions = opinions_of().float()
    expected = torch.logsumexp(opinions, dim=2) * torch.tensor([0.1, 0.3])
    torch.testing.assert_close(method.combine(opinions, batch_of())[1], expected, rtol=1e-6, atol=0)


def test_a_shift_of_the_logits_shifts_the_weights():
    opinions, batch, method = opinions_of(), batch_of(), Qmf(SPEC)
    torch.testing.assert_close(method.combine(opinions + 5, batch)[1], method.combine(opinions, batch)[1] + 0.5)


@given(st.integers(0, 500))
@settings(deadline=None, max_examples=30)
def test_shared_out_weights_are_what_jensen_needs(seed):
    random = np.random.default_rng(seed)
    raw, present = torch.tensor(random.normal(size=(5, 3))), torch.tensor(random.random((5, 3)) < 0.6)
    shares = normalise_weights(raw, present)
    assert (shares >= 0).all()
    assert (shares[~present] == 0).all()
    torch.testing.assert_close(shares.sum(1), present.any(1).double())
    for row in range(5):
        positive = np.where(present[row], raw[row].clamp(min=0), 0)
        if positive.sum() > 0:
            np.testing.assert_allclose(shares[row], positive / positive.sum(), atol=1e-12)


def test_normalised_and_static_weights():
    opinions, batch = opinions_of(), batch_of(present=SOME)
    raw = Qmf(SPEC).combine(opinions, batch)[1]
    output, found = Qmf(SPEC, normalise=True).combine(opinions, batch)
    torch.testing.assert_close(found, normalise_weights(raw, batch.present))
    torch.testing.assert_close(output, torch.einsum("bm,bmc->bc", found, opinions))
    output, found = Qmf(SPEC, dynamic=False).combine(opinions, batch)
    torch.testing.assert_close(found, equal_weights(batch.present, torch.float64))
    torch.testing.assert_close(output, torch.einsum("bm,bmc->bc", found, opinions))


def test_detached_weights_are_trained_by_the_ranking_alone():
    opinions, batch = opinions_of(), batch_of()
    gradients = []
    for detach in (True, False):
        z = opinions.clone().requires_grad_()
        output, found = Qmf(SPEC, detach=detach).combine(z, batch)
        assert found.requires_grad
        gradients.append(torch.autograd.grad(output.sum(), z)[0])
    weight = torch.logsumexp(opinions, dim=2)[:, :, None] / 10
    torch.testing.assert_close(gradients[0], weight.expand_as(opinions))
    # The product rule: what the weights themselves gain is Σ_c z_c times their slope.
    slope = opinions.softmax(2) / 10 * opinions.sum(2, keepdim=True)
    torch.testing.assert_close(gradients[1], gradients[0] + slope)


def total(settings, history):
    """Every term of the objective, with weights that differ enough to be ranked; the last sample lacks a modality."""
    torch.manual_seed(0)
    method = Qmf(SPEC, alpha=-2, **settings).eval()
    batch = batch_of(present=[[True, True]] * 5 + [[True, False]])
    prediction = method(batch)
    return method.objective(prediction, batch, Step(history=history)), prediction, batch


@pytest.mark.parametrize(
    ("variant", "strength"),
    [("reference", 1.0), ("paper", 0.1)],
)
def test_the_total_loss_of_each_variant_by_hand(variant, strength):
    history = history_of()
    losses, prediction, batch = total({"variant": variant}, history)
    z = prediction.opinions.detach()
    w = 2 * torch.logsumexp(z, dim=2)
    kappa, ranking = history.sum() if variant == "reference" else history.average(), 0.0
    for m, rows in ((0, range(6)), (1, range(5))):
        if variant == "reference":
            low, high = kappa[list(rows), m].min(), kappa[list(rows), m].max()
            kappa[:, m] = (kappa[:, m] - low) / (high - low)
        pairs = [(i, (i + 1) % 6) for i in range(6) if i in rows and (i + 1) % 6 in rows]
        each = []
        for i, j in pairs:
            gap, harder = (w[i, m] - w[j, m]).item(), (kappa[i, m] - kappa[j, m]).item()
            if variant == "reference":
                each.append(max(0.0, np.sign(harder) * gap - abs(harder)))
            else:
                each.append(max(0.0, np.sign(gap) * harder + abs(gap)))
        ranking += np.mean(each)
    assert ranking > 0
    assert losses["ranking"].item() == pytest.approx(strength * ranking, rel=1e-4)
    fused = (w * batch.present)[:, :, None] * z
    expected = functional.cross_entropy(fused.sum(1), batch.y).item()
    assert losses["task"].item() == pytest.approx(expected, rel=1e-5)
    own = functional.cross_entropy(z[:, 0], batch.y).item()
    own += functional.cross_entropy(z[:5, 1], batch.y[:5], reduction="sum").item() / 6
    assert losses["experts"].item() == pytest.approx(own, rel=1e-5)


def test_switches_override_the_variant_one_by_one():
    paper = {"ranking": "paper", "history": "window", "rescale": False, "strength": 0.1}
    literal, _, _ = total({"variant": "paper"}, history_of())
    spelled_out, _, _ = total({"variant": "reference", **paper}, history_of())
    assert literal["ranking"] == spelled_out["ranking"]
    for change in ({"ranking": "margin"}, {"rescale": True}, {"strength": 0.2}):
        changed, _, _ = total({"variant": "paper", **change}, history_of())
        assert changed["ranking"] != literal["ranking"]


@pytest.mark.parametrize("settings", [{"ranking": "none"}, {"strength": 0}])
def test_without_ranking_no_history_is_kept(settings):
    method = Qmf(SPEC, **settings)
    assert not method.keeps_history
    assert "ranking" not in total(settings, history_of())[0]


def test_without_a_past_nothing_is_ranked():
    assert total({"variant": "paper"}, LossHistory(6, 2))[0]["ranking"] == 0


@pytest.mark.parametrize("ranking", ["reference", "paper", "margin"])
def test_the_log_has_the_share_of_pairs_that_train_the_weights(ranking):
    samples = make_samples(40)
    preparation = prepare(samples)
    found = []

    class Watched(Qmf):
        def objective(self, prediction, batch, step):
            losses = super().objective(prediction, batch, step)
            if step.epoch:
                w = prediction.weights.detach().numpy()
                kappa = step.history.past(batch.index, cumulative=True, normalised=True).numpy()
                gap, harder = (values - np.roll(values, -1, axis=0) for values in (w, kappa))
                above = {
                    "reference": np.sign(harder) * gap > np.abs(harder),
                    "paper": np.sign(gap) * harder + np.abs(gap) > 0,
                    "margin": np.sign(harder) * gap + np.abs(harder) > 0,
                }[ranking]
                found.append((step.epoch, above))
            return losses

    method = make(Watched, preparation, ranking=ranking)
    log = trainer(preparation, batch_size=20, epochs=3).run(method, samples)
    assert "active_pairs" not in log.rows[0]  # nothing is known of any sample yet
    for epoch in (1, 2):
        above = np.concatenate([pairs for at, pairs in found if at == epoch])
        assert log.rows[epoch]["active_pairs"] == pytest.approx(above.mean(), abs=0.03)
        assert 0 < log.rows[epoch]["active_pairs"] < 1
    assert "active_pairs" not in trainer(preparation, epochs=2).run(make(Qmf, preparation, strength=0), samples).rows[1]


def test_held_out_losses_are_those_of_experts_that_did_not_learn_from_a_sample():
    present = np.random.default_rng(0).random((40, 2)) < 0.8
    present[present.sum(axis=1) == 0] = True
    samples = make_samples(40).replaced({}, present=present)
    preparation = prepare(samples)
    seen = []

    class Watched(Qmf):
        def objective(self, prediction, batch, step):
            if len(self.held_out):
                seen.append((step.epoch, step.history, self.held_out.clone()))
            return super().objective(prediction, batch, step)

    method = make(Watched, preparation, supervision="held-out", ranking="margin", folds=2)
    untrained = copy.deepcopy(method.state_dict())
    training = trainer(preparation, epochs=3)
    method.fit(samples, None, training)
    assert [epoch for epoch, _, _ in seen][:1] == [0]  # ranked from the first epoch on
    assert all(history is None for _, history, _ in seen)

    def start():
        plain = make(Qmf, preparation, ranking="none")
        plain.load_state_dict(untrained)
        return plain

    said, _, _ = trainer(preparation, epochs=3).cross_fit(start, samples, 2)
    y = torch.tensor(preparation.task.encode(samples.y))
    for m in range(2):
        rows = present[:, m]
        own = functional.cross_entropy(said.opinions[rows, m], y[rows], reduction="none")
        expected = (own - own.min()) / (own.max() - own.min())
        torch.testing.assert_close(seen[0][2][rows, m], expected)
    assert len(method.held_out) == 0
    assert "held_out" not in method.state_dict()
    assert "active_pairs" in training.logs[-1].rows[0]


@pytest.mark.slow
def test_weights_supervised_by_held_out_losses_follow_the_losses_of_new_samples_more():
    """In a set with noise, experts learn the noise of training samples by heart, and their past losses hide it."""
    data = load_data("digits")
    train, test = (
        corrupt(data.train, "gaussian", 3, random_state=0),
        corrupt(data.test, "gaussian", 3, random_state=100),
    )
    how = {"epochs": 30, "validation": None, "patience": None, "device": "cpu", "random_state": 0}
    r, loss = {}, {}
    for supervision in ("history", "held-out"):
        settings = {"ranking": "margin", "supervision": supervision, "folds": 3}
        found = trust_diagnostics(FusionClassifier("qmf", settings=settings, **how).fit(train), test)
        r[supervision] = np.mean([modality.correlation.r for modality in found.modalities])
        loss[supervision] = found.loss
    assert r["held-out"] < r["history"] - 0.005  # by 0.012 to 0.017 with six seeds
    assert loss["held-out"] < loss["history"]


def test_static_weights_can_still_be_ranked():
    static = total({"dynamic": False}, history_of())[0]
    dynamic = total({}, history_of())[0]
    assert static["ranking"] == dynamic["ranking"] > 0
    assert static["task"] != dynamic["task"]


def test_the_window_of_the_history_reaches_the_loop():
    samples = make_samples(30)
    preparation = prepare(samples)
    seen = []

    class Watched(Qmf):
        def objective(self, prediction, batch, step):
            seen.append((step.epoch, step.history.count.max().item()))
            return super().objective(prediction, batch, step)

    method = make(Watched, preparation, history="window", history_start=2, history_length=2)
    trainer(preparation, batch_size=30, epochs=5).run(method, samples)
    assert seen == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2)]


@pytest.mark.parametrize("match", ["equal", [0.3, 0.9], 0.25])
def test_matched_weights_have_the_static_mean_on_the_training_set(match):
    present = np.random.default_rng(0).random((60, 2)) < 0.8
    samples = make_samples(60).replaced({}, present=present)
    preparation = prepare(samples)
    method = make(Qmf, preparation, match=match)
    training = trainer(preparation)
    method.fit(samples, None, training)
    found = training.predict(method, samples).weights.numpy()
    mean = [found[present[:, column], column].mean() for column in range(2)]
    np.testing.assert_allclose(mean, 0.5 if match == "equal" else match, atol=1e-5)
    assert {"mean_uncertainty", "batches"} <= weights(method).keys()  # saved with the model


@pytest.mark.parametrize("uncertainty", ["msp", "entropy", "evidence"])
def test_matched_weights_of_bounded_uncertainties_are_not_negative(uncertainty):
    samples = make_samples(60)
    preparation = prepare(samples)
    method = make(Qmf, preparation, match="equal", uncertainty=uncertainty)
    training = trainer(preparation, epochs=20)
    method.fit(samples, None, training)
    found = training.predict(method, samples).weights.numpy()
    np.testing.assert_allclose(found.mean(axis=0), 0.5, atol=1e-5)
    assert found.std(axis=0).min() > 0.001
    # Experts that know nothing of a sample: before, their weights were 1/2 + E[u] − 1, below 0 here.
    method.mean_uncertainty.fill_(0.1)
    unsure = method.eval().combine(torch.full((6, 2, 3), -50.0), batch_of())[1]
    assert (unsure >= 0).all()
    assert (unsure < 0.1).all()


@given(st.floats(0, 1.5), st.floats(-3, -0.01), st.floats(0, 0.99), st.lists(st.floats(0, 1), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_a_matching_slope_keeps_weights_above_0_and_their_mean(static, alpha, mean, uncertainties):
    u, centre = torch.tensor(uncertainties, dtype=torch.float64), torch.tensor(mean, dtype=torch.float64)
    slope = matching_slope(static, alpha, centre, largest=1.0)
    assert alpha <= slope <= 0
    offset = matching_offset(static, slope, centre)
    assert (slope * u + offset).min() >= -1e-9
    assert float(slope * centre + offset) == pytest.approx(static, abs=1e-12)
    if alpha * (1 - mean) + static >= 0:
        assert slope == alpha  # not needed: as given


def test_lemma_1_needs_an_offset_of_either_sign():
    uncertainty = torch.tensor([-7.0, 3.0])
    alpha, static = torch.tensor([-0.1, -0.1]), torch.tensor([0.5, 0.5])
    offset = matching_offset(static, alpha, uncertainty)
    assert offset[0] < 0 < offset[1]
    torch.testing.assert_close(alpha * uncertainty + offset, static)


def test_a_running_mean_follows_the_uncertainty_while_training():
    method = Qmf(SPEC, match=0.5, alpha=-1)
    first, second = opinions_of(seed=1).float(), opinions_of(seed=2).float()
    batch = batch_of(present=[[True, False]] * 6)
    method.train()
    for opinions in (first, second):
        method.combine(opinions, batch)
    energy = [-torch.logsumexp(values[:, 0], dim=1).mean().item() for values in (first, second)]
    assert method.mean_uncertainty[0].item() == pytest.approx(np.mean(energy), rel=1e-5)
    assert method.mean_uncertainty[1] == 0  # never present
    method.eval().combine(first, batch)
    assert method.batches == 2


@pytest.mark.parametrize(
    "settings", [{}, {"normalise": True}, {"match": "equal"}, {"uncertainty": "evidence"}, {"dynamic": False}]
)
def test_gradients_are_finite_whatever_is_missing(settings):
    batch = batch_of(present=SOME)
    method = Qmf(SPEC, **settings)
    prediction = method(batch)
    assert (prediction.weights[~batch.present] == 0).all()
    assert (prediction.output[3] == 0).all()
    sum(method.objective(prediction, batch, Step(history=history_of())).values()).backward()
    gradients = [parameter.grad for parameter in method.parameters()]
    assert all(grad is not None and torch.isfinite(grad).all() for grad in gradients)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"variant": "papr"}, UnknownNameError, "did you mean 'paper'"),
        ({"uncertainty": "variance"}, UnknownNameError, "energy, entropy, evidence, msp"),
        ({"ranking": "margins"}, UnknownNameError, "did you mean 'margin'"),
        ({"history": "mean"}, UnknownNameError, "cumulative, window"),
        ({"normalise": "yes"}, InputError, "normalise must be True or False, got 'yes'"),
        ({"alpha": 0.1}, InputError, "alpha must be a number < 0, got 0.1"),
        ({"temperature": [1, 0]}, InputError, "temperature must be a number > 0, got 0"),
        ({"temperature": [1, 1, 1]}, InputError, "one for each of image, audio"),
        ({"beta": {"image": 1}}, InputError, "lacks audio"),
        ({"beta": {"imge": 1}}, UnknownNameError, "did you mean 'image'"),
        ({"beta": float("nan")}, InputError, "beta must be a number, .* or None, got nan"),
        ({"match": "late"}, InputError, "match must be 'equal', a number, .*, got 'late'"),
        ({"variant": ["paper"]}, UnknownNameError, "unknown variant"),
        ({"temperature": np.array(0.0)}, InputError, "temperature must be a number"),
        ({"detach": 1}, InputError, "detach must be True or False, got 1"),
        ({"match": 0.5, "beta": 1}, InputError, "leave out beta=1"),
        ({"match": 0.5, "normalise": True}, InputError, "leave out one of them"),
        ({"strength": -1}, InputError, "strength must be a number ≥ 0 or None, got -1"),
        ({"history_start": 0}, InputError, "history_start must be a whole number ≥ 1, got 0"),
        ({"history_length": 0}, InputError, "history_length must be a whole number ≥ 1 or None, got 0"),
        ({"supervision": "held_out"}, UnknownNameError, "did you mean 'held-out'"),
        ({"supervision": "held-out", "ranking": "none"}, InputError, "there is none with ranking='none'"),
        ({"folds": 1}, InputError, "folds must be a whole number ≥ 2, got 1"),
        ({"expert_loss": -1}, InputError, "expert_loss must be a number ≥ 0"),
    ],
)
def test_wrong_settings_are_named(settings, error, says):
    with pytest.raises(error, match=says.replace("(", r"\(")):
        build("qmf", SPEC, settings)


def test_settings_show_in_its_description():
    assert "alpha=[-0.5, -0.5]" in repr(Qmf(SPEC, alpha=-0.5))
