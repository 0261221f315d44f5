"""Bayes' rule with what is learned in it: exact where it can be, better than the theorem alone where it must be."""

import copy
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience import load_data
from consilience.bayes import bayes_rule, class_gaussians, copula, dependence_models
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.calibration import fit_robust_temperature, fit_temperature
from consilience.bayes.earlier_rules import translate_earlier
from consilience.core.errors import InputError, UnknownNameError

KAPPAS = ["gaussian", "copula", "none"]


def log_loss(log_posterior, y):
    return float(-np.asarray(log_posterior)[np.arange(len(y)), y].mean())


def dependent(n=1500, seed=0, modalities=3):
    """Opinions of true experts on dependent modalities, labels, and the truth."""
    data = load_data(
        "gaussians", n=n, n_modalities=modalities, dependence=0.7, separation=0.7, prior=[0.5, 0.3, 0.2], seed=seed
    )
    truth = data.extra["truth"]
    return truth.opinions(data.samples), data.samples.y, truth.log_posterior(data.samples)


@pytest.fixture(scope="module", params=KAPPAS)
def fitted(request):
    opinions, y, _ = dependent()
    return BayesRule(3, 3, kappa=request.param).double().fit(opinions, y)


def test_before_fitting_it_is_the_theorem():
    opinions, _, _ = dependent(50)
    for kappa in KAPPAS:
        log_p = torch.from_numpy(opinions)
        expected = (log_p.log_softmax(2) - np.log(1 / 3)).sum(1) + np.log(1 / 3)
        torch.testing.assert_close(BayesRule(3, 3, kappa=kappa).double()(log_p), expected.log_softmax(1))


def test_dependence_learned_brings_the_posterior_close_to_the_truth():
    opinions, y, _ = dependent(1500, seed=0)
    test, y_test, truth = dependent(1500, seed=0)
    losses = {
        kappa: log_loss(
            BayesRule(3, 3, kappa=kappa).double().fit(opinions[::2], y[::2])(torch.from_numpy(test[1::2])), y_test[1::2]
        )
        for kappa in KAPPAS
    }
    best = log_loss(truth[1::2], y_test[1::2])
    assert best < losses["gaussian"] < losses["none"]
    assert losses["copula"] < losses["none"]
    assert losses["gaussian"] - best < 0.5 * (losses["none"] - best)


def test_without_kappa_it_is_the_theorem_on_calibrated_opinions():
    opinions, y, _ = dependent(300)
    rule = BayesRule(3, 3, kappa="none", calibration="temperature").double().fit(3 * opinions, y)
    log_prior = np.log((np.bincount(y) + 1) / (len(y) + 3))
    calibrated = torch.from_numpy(3 * opinions / fit_temperature(3 * opinions, y)[:, None]).log_softmax(2).numpy()
    expected = log_prior + (calibrated - log_prior).sum(1)
    expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rule(torch.from_numpy(3 * opinions)), expected, atol=1e-9)


@pytest.mark.parametrize("calibration", ["auto", "robust", "temperature", "bias", None])
def test_one_present_is_its_own_calibrated_opinion_and_none_the_prior(fitted, calibration):
    opinions, y, _ = dependent(400, seed=2)
    rule = BayesRule(3, 3, kappa=fitted.kappa, calibration=calibration).double().fit(opinions, y)
    z = torch.from_numpy(opinions)
    for place in range(3):
        present = torch.zeros(400, 3, dtype=torch.bool)
        present[:, place] = True
        torch.testing.assert_close(rule(z, present), rule.calibrated(z, present)[:, place])
    none_present = torch.zeros(400, 3, dtype=torch.bool)
    torch.testing.assert_close(rule(z, none_present), rule.prior.log().expand(400, 3))


def test_what_is_absent_has_no_say(fitted):
    z = torch.from_numpy(dependent(100, seed=3)[0])
    masks = torch.tensor(list(itertools.product([True, False], repeat=3))).repeat(12, 1)
    expected = fitted(z[:96], masks)
    garbage = torch.where(masks[:, :, None], z[:96], torch.nan)
    assert torch.equal(fitted(garbage, masks), expected)


@given(seed=st.integers(0, 100), size=st.floats(-1e3, 1e3))
@settings(max_examples=15, deadline=None)
def test_offsets_do_not_matter(fitted, seed, size):
    z = torch.from_numpy(dependent(20, seed=seed % 5)[0])
    shift = size * torch.randn(20, 3, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(fitted(z + shift), fitted(z), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_order_of_modalities_does_not_matter(kappa):
    opinions, y, _ = dependent(300)
    order = [2, 0, 1]
    one = BayesRule(3, 3, kappa=kappa).double().fit(opinions, y)(torch.from_numpy(opinions))
    other = BayesRule(3, 3, kappa=kappa).double().fit(opinions[:, order], y)(torch.from_numpy(opinions[:, order]))
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_target_prior_moves_the_posterior_by_the_ratio(fitted):
    z = torch.from_numpy(dependent(50, seed=4)[0])
    target = torch.tensor([0.1, 0.1, 0.8], dtype=torch.float64)
    expected = (fitted(z) - fitted.prior.log() + target.log()).log_softmax(1)
    torch.testing.assert_close(fitted(z, target_prior=target), expected)


def test_extreme_opinions_stay_finite(fitted):
    z = torch.from_numpy(dependent(50, seed=4)[0])
    for confident in (1e30 * z, 1e5 * z, torch.where(z < -2, -torch.inf, z)):
        log_posterior = fitted(confident)
        assert not torch.isnan(log_posterior).any()
        torch.testing.assert_close(log_posterior.exp().sum(1), torch.ones(50, dtype=torch.float64))


def test_an_impossible_class_is_read_on_the_scale_of_its_expert():
    # A forest of ten trees: zero means no vote in ten, and is sometimes wrong.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    votes = rng.binomial(10, np.where(y, 0.85, 0.15)) / 10
    with np.errstate(divide="ignore"):
        opinions = np.log(np.stack([1 - votes, votes], axis=1))[:, None].repeat(2, axis=1)
    rule = BayesRule(2, 2).double().fit(opinions, y)
    np.testing.assert_allclose(rule.floor, np.log(0.1 / 2))
    truth = (2 * votes - 1) * 10 * np.log(0.85 / 0.15)
    best = np.logaddexp(0, np.where(y, -truth, truth)).mean()
    assert log_loss(rule(torch.from_numpy(opinions)), y) < best + 0.03


def test_it_is_differentiable_and_gradients_are_finite(fitted):
    z = torch.from_numpy(dependent(20, seed=4)[0]).requires_grad_()
    present = torch.tensor(
        [[True, True, True], [True, False, True], [False, True, False], [False, False, False]]
    ).repeat(5, 1)
    fitted(torch.where(present[:, :, None], z, torch.nan), present)[:, 0].sum().backward()
    assert torch.isfinite(z.grad).all()
    assert (z.grad[~present] == 0).all()


def test_states_are_plain_buffers_and_load_again():
    opinions, y, _ = dependent(300)
    for kappa in KAPPAS:
        rule = BayesRule(3, 3, kappa=kappa).fit(opinions, y)
        again = BayesRule(3, 3, kappa=kappa)
        again.load_state_dict(rule.state_dict())
        assert torch.equal(again(torch.from_numpy(opinions)), rule(torch.from_numpy(opinions)))


def test_missing_in_fitting_is_used_for_what_it_has():
    opinions, y, _ = dependent(2000)
    present = np.random.default_rng(0).random((2000, 3)) < 0.7
    hidden = np.where(present[:, :, None], opinions, np.nan)
    some = BayesRule(3, 3).double().fit(hidden[:1000], y[:1000], present[:1000])
    test = torch.from_numpy(opinions[1000:]), torch.from_numpy(present[1000:])
    naive = BayesRule(3, 3, kappa="none").double().fit(hidden[:1000], y[:1000], present[:1000])
    assert log_loss(some(*test), y[1000:]) < log_loss(naive(*test), y[1000:])


def test_one_expert_alone_is_calibrated_and_nothing_else():
    opinions, y, _ = dependent(300)
    rule = BayesRule(1, 3).double().fit(opinions[:, :1], y)
    one = torch.from_numpy(opinions[:, :1])
    torch.testing.assert_close(rule(one), rule.calibrated(one, torch.ones(300, 1, dtype=torch.bool))[:, 0])
    assert rule.expert_weights(torch.ones(2, 1, dtype=torch.bool)).tolist() == [[1.0], [1.0]]


def test_bad_settings_are_named():
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian'"):
        BayesRule(2, 2, kappa="gausian")
    with pytest.raises(UnknownNameError, match="calibration"):
        BayesRule(2, 2, calibration="platt")
    with pytest.raises(InputError, match="use kappa='gaussian', whose covariances then have low rank, or kappa='none'"):
        BayesRule(4, 1000, kappa="copula")
    BayesRule(4, 1000, kappa="none")


def test_an_expert_who_is_sometimes_wrong_and_sure_cannot_overrule_the_others():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1200)
    voted = y[:, None].repeat(3, axis=1)
    wrong = rng.random((1200, 3)) < 0.05
    voted[wrong] = (voted[wrong] + 1) % 3
    opinions = 50.0 * np.eye(3)[voted] + rng.normal(size=(1200, 3, 3))
    losses = {}
    for calibration in ("robust", "temperature"):
        rule = BayesRule(3, 3, kappa="none", calibration=calibration).double().fit(opinions[:600], y[:600])
        losses[calibration] = log_loss(rule(torch.from_numpy(opinions[600:])), y[600:])
    assert losses["robust"] < 0.05
    confident = torch.tensor([[[500.0, 0, 0], [0, 50.0, 0], [0, 50.0, 0]]], dtype=torch.float64)
    robust = BayesRule(3, 3, kappa="none", calibration="robust").double().fit(opinions, y)
    assert robust(confident).argmax() == 1
    # A temperature is linear in the size of the logits.
    assert rule(confident).argmax() == 0


def test_the_average_is_the_mean_of_the_log_probabilities_of_both_calibrations():
    opinions, y, _ = dependent(300, seed=7)
    z, there = torch.from_numpy(opinions), torch.ones(300, 3, dtype=torch.bool)
    plain, robust, average = (
        BayesRule(3, 3, kappa="none", calibration=name).double().fit(opinions, y).calibrated(z, there)
        for name in ("temperature", "robust", "auto")
    )
    expected = (plain.exp() * robust.exp()).sqrt()
    torch.testing.assert_close(average.exp(), expected / expected.sum(2, keepdim=True))


def test_a_state_of_earlier_versions_interpolates_its_coefficients():
    opinions, y, _ = dependent(300)
    rule = BayesRule(3, 3, calibration="temperature").double().fit(opinions, y)
    weights, alpha, beta = (
        torch.tensor([0.5, 0.2, -0.1]).double(),
        torch.tensor(0.3).double(),
        torch.tensor(0.1).double(),
    )
    state = rule.state_dict() | {"weights": weights, "alpha": alpha, "beta": beta}
    del state["plain_temperature"]
    old = BayesRule(3, 3, calibration="auto").double()
    old.load_state_dict(state)
    z = torch.from_numpy(opinions[:4])
    present = torch.tensor([[True, True, True], [True, False, True], [False, True, False], [False, False, False]])
    each = torch.tensor([[0.5, 0.2, -0.1], [0.75, 0, 0.45], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(old.expert_weights(present), each)
    calibrated = rule.calibrated(z, present)
    log_kappa, log_density = dependence_models.estimate(rule._model(calibrated), rule._coordinates(calibrated), present)
    terms = torch.tensor([1, 0.5, 0, 0])[:, None] * (0.3 * log_kappa + 0.1 * log_density)
    log_prior = rule.prior.log()
    expected = log_prior + (each[:, :, None] * (calibrated - log_prior)).sum(1) + terms
    torch.testing.assert_close(old(z, present), expected.log_softmax(1))


def test_a_damaged_state_of_earlier_versions_is_not_translated():
    rule = BayesRule(3, 3)
    for weights in (torch.ones(()), torch.ones(3000), torch.ones(3, 4)):
        state = rule.state_dict() | {"weights": weights, "alpha": torch.zeros(()), "beta": torch.zeros(())}
        del state["plain_temperature"]
        given = dict(state)
        translate_earlier(rule, given, "")
        assert given.keys() == state.keys()
        assert given["weights"] is weights, "a table of 3001 · 3000 coefficients would be made of 3000 numbers"


@pytest.mark.parametrize("kappa", KAPPAS)
def test_robust_calibration_is_a_step_of_its_own_before_the_rest(kappa):
    opinions, y, _ = dependent(600, seed=5)
    rule = BayesRule(3, 3, kappa=kappa, calibration="robust").double().fit(opinions, y)
    temperature, reliability = fit_robust_temperature(opinions, y, rule.prior.numpy())
    log_p = torch.from_numpy(opinions / temperature[:, None]).log_softmax(2).exp().numpy()
    mixed = np.log(reliability[:, None] * log_p + (1 - reliability[:, None]) * rule.prior.numpy())
    after = BayesRule(3, 3, kappa=kappa, calibration=None).double().fit(mixed, y)
    torch.testing.assert_close(rule.weights, after.weights, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(rule(torch.from_numpy(opinions)), after(torch.from_numpy(mixed)), atol=1e-4, rtol=1e-4)


def test_a_reliability_that_is_given_in_fitting_is_the_one_that_counts_in_deciding():
    opinions, y, _ = dependent(600, seed=6)
    logits, all_sound = torch.from_numpy(opinions), np.ones((600, 3))
    for calibration in ("robust", "temperature"):
        plain = BayesRule(3, 3, calibration=calibration).double().fit(opinions, y)
        sound = BayesRule(3, 3, calibration=calibration).double().fit(opinions, y, reliability=all_sound)
        torch.testing.assert_close(sound(logits, reliability=torch.from_numpy(all_sound)), plain(logits))


@pytest.fixture(params=["gaussian", "copula", "low rank"])
def any_form(request, monkeypatch):
    """A fitted rule of each form of the dependence model, and opinions to ask it about."""
    if request.param == "low rank":
        monkeypatch.setattr(dependence_models, "_MAX_ENTRIES", 0)
    opinions, y, _ = dependent(400)
    kappa = "copula" if request.param == "copula" else "gaussian"
    rule = BayesRule(3, 3, kappa=kappa).double().fit(opinions, y)
    assert hasattr(rule, "factors") == (request.param == "low rank")
    return rule, torch.from_numpy(opinions), y


def test_rows_in_pieces_are_the_rows_at_once(any_form, monkeypatch):
    rule, z, _ = any_form
    present = torch.from_numpy(np.random.default_rng(0).random((400, 3)) < 0.8)
    expected = rule(z, present)
    for module, name in ((bayes_rule, "_PIECE"), (class_gaussians, "PIECE"), (copula, "PIECE")):
        monkeypatch.setattr(module, name, 100)
    torch.testing.assert_close(rule(z, present), expected, rtol=0, atol=1e-10)
    asked = z.clone().requires_grad_()
    rule(asked, present)[:, 0].sum().backward()
    pieces = asked.grad
    monkeypatch.undo()
    asked = z.clone().requires_grad_()
    rule(asked, present)[:, 0].sum().backward()
    torch.testing.assert_close(pieces, asked.grad, rtol=0, atol=1e-9)


def test_what_is_kept_for_the_next_call_follows_what_was_learned(any_form):
    rule, z, y = any_form
    expected = rule(z)
    other = copy.deepcopy(rule).fit(2 * z[::2].numpy(), (y[::2] + 1) % 3)
    there = other(z)
    assert not torch.allclose(there, expected, atol=1e-3)
    assert torch.equal(rule(z), expected)
    state = {name: value.clone() for name, value in rule.state_dict().items()}
    rule.load_state_dict(other.state_dict())
    assert torch.equal(rule(z), there)
    rule.load_state_dict(state)
    assert torch.equal(rule(z), expected)
    with torch.no_grad():
        rule.mean += 1.0
    changed = rule(z)
    assert not torch.allclose(changed, expected, atol=1e-6)
    rounded = rule.float()(z)
    assert not torch.equal(rounded, changed)
    torch.testing.assert_close(rounded, changed, rtol=1e-3, atol=1e-3)


def test_a_first_call_in_inference_mode_does_not_hinder_gradients(any_form):
    rule, z, _ = any_form
    with torch.inference_mode():
        expected = rule(z)
    asked = z.clone().requires_grad_()
    found = rule(asked)
    found[:, 0].sum().backward()
    torch.testing.assert_close(found.detach(), expected.clone())
    assert torch.isfinite(asked.grad).all()


def test_threads_share_a_rule(any_form):
    rule, z, _ = any_form
    masks = [torch.from_numpy(np.random.default_rng(seed).random((400, 3)) < 0.6) for seed in range(8)]
    expected = [copy.deepcopy(rule)(z, mask) for mask in masks]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(lambda mask: rule(z, mask), masks), expected, strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.slow
def test_a_thousand_classes_are_served():
    rng = np.random.default_rng(0)
    y = np.arange(2500) % 1000
    common = rng.normal(size=(8, 2, 1000)) / 2
    opinions = np.einsum("nr,rmc->nmc", rng.normal(size=(2500, 8)), common) + rng.normal(size=(2500, 2, 1000))
    opinions[np.arange(2500), :, y] += 4
    losses = {}
    for kappa in ("none", "gaussian"):
        rule = BayesRule(2, 1000, kappa=kappa).double().fit(opinions[:2000], y[:2000])
        losses[kappa] = log_loss(rule(torch.from_numpy(opinions[2000:])), y[2000:])
    assert losses["gaussian"] < losses["none"]
