"""The gate from signals to trust: it starts as the fixed map, and learns which unusual modalities can be used."""

import numpy as np
import pytest
import torch

from consilience.bayes.reliability import Signals, robust_posterior
from consilience.bayes.score_density import bounded
from consilience.bayes.trust_gate import FEATURES, Opinions, TrustGate, fixed_log_odds, mixed, signal_features

LOG_PRIOR = torch.full((3,), 1 / 3).double().log()


def drawn(n=600, seed=0, missing=0.0):
    """Three experts; the first is noisy but right where it looks unusual, the second wrong."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=n)
    unusual = random.random((n, 3)) < 0.5
    unusual[: n // 2] = False
    said = np.where(unusual[:, [1]], random.integers(3, size=(n, 1)), y[:, None]).repeat(3, 1)
    said[:, [0, 2]] = y[:, None]
    logits = 2.0 * np.eye(3)[said] + random.normal(size=(n, 3, 3))
    excess = np.where(unusual, random.uniform(3, 6, (n, 3)), random.uniform(0, 1, (n, 3)))
    present = torch.from_numpy(random.random((n, 3)) >= missing)
    sound = torch.from_numpy(np.where(unusual, 0.05, 0.95)) * present
    signals = Signals(
        sound,
        torch.from_numpy(excess) * present,
        torch.from_numpy(excess[..., None].repeat(4, 2)) * present[..., None],
        torch.zeros(n, 3).double(),
    )
    opinions = Opinions(torch.from_numpy(logits).log_softmax(2), LOG_PRIOR, present, signals)
    return opinions, torch.from_numpy(y), torch.arange(n) < n // 2


def fit(opinions, y, sound, seed=0):
    bayes = torch.log_softmax(opinions.log_p.sum(1), 1)
    gate = TrustGate(3).double()
    return gate.fit(opinions, torch.tensor(0.0), bayes, y, sound, torch.ones(len(y)), seed)


def test_before_fitting_it_is_the_fixed_map():
    opinions, *_ = drawn(missing=0.2)
    graded = TrustGate(3).double()(opinions, torch.tensor(0.3).double())
    rho = bounded(opinions.signals.sound) * opinions.present
    torch.testing.assert_close(graded.rho, rho)
    torch.testing.assert_close(graded.log_p, opinions.log_p)
    torch.testing.assert_close(graded.log_odds, fixed_log_odds(opinions))
    torch.testing.assert_close(graded.log_posterior, robust_posterior(opinions.log_p, LOG_PRIOR, rho, 0.3))


def test_it_learns_which_unusual_modality_still_knows_the_class():
    gate = fit(*drawn(n=2000))
    other, labels, fresh = drawn(seed=1)
    spoilt = torch.where(~fresh)[0]
    graded, fixed = (one(other.select(spoilt), torch.tensor(0.0).double()) for one in (gate, TrustGate(3).double()))
    unusual = other.signals.sound[spoilt] < 0.5
    counted = graded.rho * graded.share

    assert counted[:, 0][unusual[:, 0]].mean() > 0.5
    assert counted[:, 1][unusual[:, 1]].mean() < 0.3

    def loss(found):
        return -found.log_posterior.gather(1, labels[spoilt, None]).mean()

    assert loss(graded) < loss(fixed) - 0.05


def test_with_few_samples_it_stays_near_the_fixed_map():
    opinions, y, sound = drawn(n=20)
    few = fit(opinions, y, sound)
    many = fit(*drawn(n=2000))
    far = [gate.output_weight.square().sum().item() for gate in (few, many)]
    assert far[0] < far[1] / 3


def test_a_missing_modality_has_no_effect():
    opinions, y, sound = drawn(missing=0.3)
    gate, kappa = fit(opinions, y, sound), torch.tensor(0.1).double()
    log_p = torch.where(opinions.present[..., None], opinions.log_p, torch.tensor([0.98, 0.01, 0.01]).double().log())
    before, after = gate(opinions, kappa), gate(opinions._replace(log_p=log_p), kappa)
    torch.testing.assert_close(before.log_posterior, after.log_posterior)
    torch.testing.assert_close(before.log_odds, after.log_odds)
    assert (before.rho[~opinions.present] == 0).all()


def test_samples_do_not_depend_on_their_batch():
    opinions, y, sound = drawn()
    gate, kappa = fit(opinions, y, sound), torch.tensor(0.1).double()
    whole = gate(opinions, kappa).log_posterior
    one_by_one = [gate(opinions.select(torch.tensor([row])), kappa).log_posterior for row in range(20)]
    torch.testing.assert_close(torch.cat(one_by_one), whole[:20])


def test_the_same_seed_gives_the_same_gate():
    first, second = (fit(*drawn()).state_dict() for _ in range(2))
    torch.testing.assert_close(first, second, atol=0, rtol=0)


def test_features_of_others_are_their_means():
    opinions, *_ = drawn(n=5)
    features = signal_features(opinions.signals, opinions.present)
    assert features.shape == (5, 3, FEATURES)
    excess = np.log1p(opinions.signals.excess.numpy())
    assert features[:, 0, -2].numpy() == pytest.approx(excess[:, 1:].mean(1))


def test_a_state_without_the_gate_is_that_of_the_fixed_map():
    gate = fit(*drawn())
    fresh = TrustGate(3).double()
    fresh.load_state_dict({})
    assert not fresh.output_weight.any()
    fresh.load_state_dict(gate.state_dict())
    torch.testing.assert_close(fresh.output_weight, gate.output_weight)


def test_trust_counts_temperature_and_contradiction():
    opinions, y, sound = drawn(n=200, missing=0.2)
    graded = fit(opinions, y, sound)(opinions, torch.tensor(0.0).double())
    output = torch.log_softmax(opinions.log_p.sum(1), 1)
    p, rho = graded.log_p.exp(), graded.rho[..., None]
    by_hand = (output.exp()[:, None] * rho * p / (rho * p + (1 - rho) / 3)).sum(2) * graded.share
    torch.testing.assert_close(graded.trust(LOG_PRIOR, output), by_hand)
    assert (graded.trust(LOG_PRIOR, output)[~opinions.present] == 0).all()
    torch.testing.assert_close(graded.reliability, graded.rho * graded.share)


def test_sound_samples_are_reliable():
    opinions, y, sound = drawn(n=2000)
    graded = fit(opinions, y, sound)(opinions, torch.tensor(0.0).double())
    assert graded.reliability[sound].mean() > 0.75


def test_mixing_is_between_the_two():
    left, right = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.2, 0.8]]).log()
    for odds, share in ((0.0, 0.5), (np.log(3), 0.75)):
        found = mixed(torch.tensor([odds]), left, right).exp()[0, 0]
        assert found.item() == pytest.approx(share * 0.9 + (1 - share) * 0.2, rel=1e-5)


@pytest.mark.parametrize("deviations", [1, 3, 4])
def test_signals_may_have_any_number_of_deviations(deviations):
    opinions, y, sound = drawn(n=60)
    signals = opinions.signals._replace(deviations=opinions.signals.deviations[..., :deviations])
    opinions = opinions._replace(signals=signals)
    gate = TrustGate(3, deviations=deviations).double()
    bayes = torch.log_softmax(opinions.log_p.sum(1), 1)
    gate.fit(opinions, torch.tensor(0.0), bayes, y, sound, torch.ones(len(y)))
    assert gate.centre.shape == (FEATURES - 4 + deviations,)
    assert torch.isfinite(gate(opinions, torch.tensor(0.0).double()).log_posterior).all()
    with pytest.raises(RuntimeError):
        TrustGate(3, deviations=deviations + 1).double()(opinions, torch.tensor(0.0).double())
