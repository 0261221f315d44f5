"""Trust from opinions alone: the agreement by brute force, the alarm's promise, and what the gate learns from."""

import numpy as np
import pytest
import torch

from consilience.bayes import opinion_trust
from consilience.bayes.bayes_rule import BayesRule
from consilience.bayes.opinion_trust import OpinionTrust, agreement

CLASSES = 3


def drawn(n=600, seed=0, missing=0.0):
    """Logits of three experts `[n, 3, class]`, labels and what is present."""
    random = np.random.default_rng(seed)
    y = random.integers(CLASSES, size=n)
    logits = 2.0 * np.eye(CLASSES)[y][:, None] + random.normal(size=(n, 3, CLASSES))
    return logits, y, random.random((n, 3)) >= missing


def fit(logits, y, present, groups=None, seen=None, **settings):
    def fit_rule(rows):
        if seen is not None:
            seen.append(rows)
        return BayesRule(3, CLASSES, **settings).double().fit(logits[rows], y[rows], present[rows])

    rule = fit_rule(np.arange(len(y)))
    trust = OpinionTrust(3).double().fit(rule, logits, y, present, fit_rule=fit_rule, groups=groups)
    return rule, trust


def ask(rule, trust, logits, present):
    return trust(rule, torch.from_numpy(logits), torch.from_numpy(present))


@pytest.fixture(scope="module")
def fitted():
    return fit(*drawn(missing=0.1))


def test_agreement_is_that_of_brute_force():
    logits, _, present = drawn(20, missing=0.3)
    log_p = torch.from_numpy(logits).log_softmax(2)
    random, prior, kappa = np.random.default_rng(1), np.array([0.5, 0.3, 0.2]), 0.4
    rho = random.uniform(0.1, 0.9, (20, 3)) * present
    found = agreement(log_p, torch.from_numpy(prior).log(), torch.from_numpy(rho), kappa)
    p = log_p.exp().numpy()
    for i in range(20):
        for m in range(3):
            others = [j for j in range(3) if j != m and present[i, j]]
            g = 1 / (1 + kappa * max(0, sum(rho[i, j] for j in others) - 1))
            q = prior.copy()
            for j in others:
                q = q * ((rho[i, j] * p[i, j] + (1 - rho[i, j]) * prior) / prior) ** g
            expected = np.log((q / q.sum() * p[i, m] / prior).sum()) if present[i, m] else 0.0
            assert found[i, m].item() == pytest.approx(expected, abs=1e-12)


def test_before_fitting_sound_looking_experts_are_trusted():
    logits, _, present = drawn(10, missing=0.3)
    rule = BayesRule(3, CLASSES).double()
    found = ask(rule, OpinionTrust(3).double(), logits, present)
    np.testing.assert_allclose(found.reliability.numpy(), 0.9 * present)


def test_at_most_one_in_two_hundred_sound_samples_raises_an_alarm():
    logits, y, present = drawn(1000)
    rule, trust = fit(logits, y, present)
    seen = trust._opinions(rule, torch.from_numpy(logits), torch.from_numpy(present))
    log_odds = trust.alarm(trust.gate(seen, trust.kappa).log_odds)
    assert (log_odds < 0).double().mean() <= 1 / 200
    decided = ask(rule, trust, logits, present).log_posterior.argmax(1)
    plain = rule(torch.from_numpy(logits)).argmax(1)
    assert (decided == plain).double().mean() > 0.99


def test_a_loud_and_a_contradicting_expert_lose_trust(fitted):
    logits, y, _ = drawn(400, seed=1)
    random, present = np.random.default_rng(2), np.ones((400, 3), dtype=bool)
    loud, wrong = logits.copy(), logits.copy()
    loud[:, 1] = 30 * random.normal(size=(400, CLASSES))
    wrong[:, 1] = logits[random.permutation(400), 1]
    rows = np.arange(400)
    sound = ask(*fitted, logits, present)
    for changed, share in ((loud, 0.5), (wrong, 0.9)):
        found = ask(*fitted, changed, present)
        rule = fitted[0](torch.from_numpy(changed))
        assert -found.log_posterior[rows, y].mean() < -rule[rows, y].mean() - 0.05
        assert found.trust[:, 1].mean() < share * sound.trust[:, 1].mean()
    assert -sound.log_posterior[rows, y].mean() < -fitted[0](torch.from_numpy(logits))[rows, y].mean() + 0.02


def test_a_missing_opinion_has_no_effect(fitted):
    logits, _, present = drawn(50, seed=1, missing=0.3)
    other = np.where(present[:, :, None], logits, 77.0)
    for a, b in zip(ask(*fitted, logits, present), ask(*fitted, other, present)):
        torch.testing.assert_close(a, b)
    found = ask(*fitted, logits, present)
    assert (found.trust.numpy()[~present] == 0).all()
    nobody = ask(*fitted, logits, np.zeros_like(present))
    torch.testing.assert_close(nobody.log_posterior[0].exp(), fitted[0].prior)


def test_a_probability_of_zero_is_finite(fitted):
    logits, _, present = drawn(5)
    logits[:, 0, 1] = -np.inf
    assert all(torch.isfinite(part).all() for part in ask(*fitted, logits, present))


def test_rows_in_pieces_have_the_same_answers(fitted, monkeypatch):
    logits, _, present = drawn(50, seed=1, missing=0.2)
    whole = ask(*fitted, logits, present)
    monkeypatch.setattr(opinion_trust, "_PIECE", 7 * 3 * CLASSES)
    for a, b in zip(whole, ask(*fitted, logits, present)):
        torch.testing.assert_close(a, b)


def test_the_gate_learns_from_rules_fitted_without_the_sample_and_its_group():
    logits, y, present = drawn(120)
    groups, seen = np.arange(120) // 5, []
    fit(logits, y, present, groups, seen)
    left_out = [np.setdiff1d(np.arange(120), rows) for rows in seen[1:]]
    assert len(left_out) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate(left_out)), np.arange(120))
    for rows, learned in zip(left_out, seen[1:]):
        assert not set(groups[rows]) & set(groups[learned])


def test_more_samples_than_are_used_can_be_given(monkeypatch):
    monkeypatch.setattr(opinion_trust, "_ROWS", 50)
    logits, y, present = drawn(200)
    rule, trust = fit(logits, y, present, kappa="none")
    assert trust.gate.output_weight.any()
    assert torch.isfinite(ask(rule, trust, logits, present).log_posterior).all()


def test_with_few_samples_the_gate_stays_near_the_fixed_map(fitted):
    few = fit(*drawn(12))[1]
    assert few.gate.output_weight.square().sum() < fitted[1].gate.output_weight.square().sum() / 3


def test_the_same_opinions_give_the_same_trust(fitted):
    again = fit(*drawn(missing=0.1))[1]
    for name, values in fitted[1].state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], values, rtol=0, atol=0)
