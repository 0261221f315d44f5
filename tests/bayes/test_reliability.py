from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from consilience.bayes.anomaly_scores import InputScores
from consilience.bayes.fuse import fuse
from consilience.bayes.pair_consistency import canonical_directions, pointwise_information, revise
from consilience.bayes.reliability import (
    OpinionReliability,
    Reliability,
    all_sound,
    fit_kappa,
    gain,
    posterior_trust,
    robust_posterior,
)
from consilience.bayes.score_density import bounded


def case(seed, modalities=3, classes=4, n=2):
    """Log-probabilities, log-prior and ρ at random."""
    random = np.random.default_rng(seed)
    log_p = np.log(random.dirichlet(np.ones(classes), size=(n, modalities)))
    prior = random.dirichlet(np.full(classes, 5.0))
    return torch.from_numpy(log_p), torch.from_numpy(np.log(prior)), torch.from_numpy(random.random((n, modalities)))


def over_flags(log_p, log_prior, rho):
    """Posterior, P(sound) and P(all sound) of one sample, from every set of sound modalities in turn."""
    p, prior, rho = log_p.exp().numpy(), log_prior.exp().numpy(), rho.numpy()
    joint, sound = np.zeros(len(prior)), np.zeros(len(rho))
    each = joint
    for flags in product((0, 1), repeat=len(rho)):
        weight = np.prod([r if flag else 1 - r for r, flag in zip(rho, flags)])
        # What a broken modality shows is as probable under every class.
        each = (
            weight * prior * np.prod([p[m] / prior if flag else np.ones(len(prior)) for m, flag in enumerate(flags)], 0)
        )
        joint += each
        sound += each.sum() * np.array(flags)
    return joint / joint.sum(), sound / joint.sum(), each.sum() / joint.sum()  # the last set was that of everyone


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_the_posterior_sums_over_who_is_sound(seed, modalities):
    log_p, log_prior, rho = case(seed, modalities)
    found = robust_posterior(log_p, log_prior, rho)
    trust = posterior_trust(log_p, log_prior, rho, found)
    everyone = all_sound(log_p, log_prior, rho, torch.ones_like(rho, dtype=torch.bool))
    for row in range(2):
        posterior, sound, whole = over_flags(log_p[row], log_prior, rho[row])
        assert everyone[row].item() == pytest.approx(whole)
        assert found[row].exp().numpy() == pytest.approx(posterior)
        assert trust[row].numpy() == pytest.approx(sound)


def test_it_is_the_theorem_with_reliability():
    log_p, log_prior, rho = case(0)
    expected = fuse(log_p, log_prior.exp(), reliability=rho)
    torch.testing.assert_close(robust_posterior(log_p, log_prior, rho), expected)
    weights = gain(rho, 0.7)[:, None].expand_as(rho)
    expected = fuse(log_p, log_prior.exp(), reliability=rho, weights=weights)
    torch.testing.assert_close(robust_posterior(log_p, log_prior, rho, 0.7), expected)


def test_the_ends_of_the_scale():
    log_p, log_prior, rho = case(1)
    certain = robust_posterior(log_p, log_prior, torch.ones_like(rho))
    theorem = torch.log_softmax(log_p.sum(1) - (rho.shape[1] - 1) * log_prior, dim=1)
    torch.testing.assert_close(certain, theorem)
    nothing = robust_posterior(log_p, log_prior, torch.zeros_like(rho))
    torch.testing.assert_close(nothing, log_prior.expand_as(nothing))
    assert (posterior_trust(log_p, log_prior, torch.zeros_like(rho), nothing) == 0).all()


def test_who_is_missing_is_not_asked_to_be_sound():
    log_p, log_prior, rho = case(2)
    present = torch.tensor([[True, False, True], [True, True, False]])
    found = all_sound(log_p, log_prior, rho * present, present)
    for row in range(2):
        there = present[row]
        few = (log_p[row][there], log_prior, rho[row][there])
        torch.testing.assert_close(found[row], all_sound(*few, torch.tensor([True, True])))


@given(st.floats(1, 1e30))
def test_a_loud_modality_is_bounded(loudness):
    logits = torch.tensor([[[loudness, 0.0], [0.0, 2.0], [0.0, 2.0]]]).double()
    log_p, log_prior = torch.log_softmax(logits, dim=2), torch.tensor([0.5, 0.5]).double().log()
    posterior = robust_posterior(log_p, log_prior, torch.full((1, 3), 0.8).double())
    assert posterior.isfinite().all()
    assert posterior.argmax() == 1
    assert posterior_trust(log_p, log_prior, torch.full((1, 3), 0.8).double(), posterior)[0, 0] < 0.8


def test_gain():
    assert gain(torch.tensor([[0.9, 0.9, 0.9], [0.9, 0.0, 0.0]]), 2.0).tolist() == pytest.approx([1 / 4.4, 1.0])


def test_experts_who_repeat_one_another_count_once():
    random = np.random.default_rng(0)
    y = random.integers(0, 3, size=3000)
    logits = 1.5 * np.eye(3)[y] + random.normal(size=(3000, 3))
    once = torch.log_softmax(torch.from_numpy(1.5 * logits), dim=1).numpy()
    log_p, prior, weight = np.stack([once] * 4, axis=1), np.log(np.full(3, 1 / 3)), np.ones(3000)
    kappa = fit_kappa(log_p, prior, np.full((3000, 4), 1 - 1e-9), y, weight)
    assert gain(torch.ones(4), kappa).item() == pytest.approx(0.25, rel=0.1)
    alone = fit_kappa(log_p[:, :1], prior, np.ones((3000, 1)), y, weight)
    assert gain(torch.ones(1), alone).item() == 1


def made(n=700, seed=0):
    """Three modalities of a few classes that share more than the class."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, size=n)
    shared = 2 * np.eye(3)[y] + random.normal(size=(n, 3))
    maps = np.random.default_rng(99).normal(size=(3, 3, 10))
    return [shared @ values + 0.8 * random.normal(size=(n, 10)) for values in maps], y


@pytest.fixture(scope="module")
def model():
    views, y = made()
    reliability = Reliability([10, 10, 10], 3)
    own = reliability.fit(lambda fold: views, y, np.ones((700, 3), dtype=bool), np.arange(700) % 5)
    return reliability, own.sound


def rho_of(model, views, present=None):
    there = np.ones((len(views[0]), 3), dtype=bool) if present is None else present
    return model[0]([torch.from_numpy(view).float() for view in views], torch.from_numpy(there)).numpy()


def test_sound_samples_are_reliable(model):
    views, _ = made(seed=1)
    own = bounded(model[1]).numpy()
    assert own.mean() > 0.8
    assert rho_of(model, views).mean() == pytest.approx(own.mean(), abs=0.02)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda x, random: x + 20 * random.normal(size=x.shape), id="noise"),
        pytest.param(lambda x, random: np.full_like(x, x.max()), id="stuck"),
        pytest.param(lambda x, random: 10 * x, id="scaled"),
        pytest.param(lambda x, random: np.roll(x, 1, axis=0), id="swapped"),
    ],
)
def test_a_broken_modality_is_found(model, broken):
    (first, *others), _ = made(seed=2)
    rho = rho_of(model, [broken(first, np.random.default_rng(0)), *others])
    sound = rho_of(model, [first, *others])
    assert roc_auc_score(np.repeat([0, 1], len(first)), np.concatenate([rho[:, 0], sound[:, 0]])) > 0.9
    assert rho[:, 1:].mean() > 0.75
    assert ((rho >= 0.1 - 1e-6) & (rho <= 0.9 + 1e-6)).all()


def test_missing_is_exactly_zero_and_changes_no_one_else_for_the_worse(model):
    views, _ = made(seed=3)
    present = np.ones((700, 3), dtype=bool)
    present[:, 2] = False
    rho = rho_of(model, [*views[:2], np.zeros_like(views[2])], present)
    assert (rho[:, 2] == 0).all()
    assert rho[:, :2].mean() > 0.75


def test_scores_of_another_kind():
    views, y = made(300)
    random = np.random.default_rng(0)
    extra = [random.normal(size=(300, 2)) for _ in range(3)]
    reliability = Reliability([10] * 3, 3, extra_scores=2, pairs=False).double()
    present = np.ones((300, 3), dtype=bool)
    own = reliability.fit(lambda fold: views, y, present, np.arange(300) % 3, extra).sound
    assert own.mean() > 0.8
    shown = [torch.from_numpy(view) for view in views]
    unusual = [torch.from_numpy(values) for values in [extra[0] + 30, *extra[1:]]]
    rho = reliability(shown, torch.from_numpy(present), unusual)
    assert rho[:, 0].max() < 0.2
    assert rho[:, 1:].mean() > 0.8


def test_features_may_differ_from_fold_to_fold():
    views, y = made(400)
    turned = {fold: (-1) ** fold * 3.0**fold for fold in range(4)}
    asked = []

    def as_seen(fold):
        asked.append(fold)
        return [view * turned.get(fold, 1.0) for view in views]

    present = np.ones((400, 3), dtype=bool)
    same = Reliability([10] * 3, 3).fit(lambda fold: views, y, present, np.arange(400) % 4).sound
    # A network's features have a scale of their own in every fold; distances are compared within the fold.
    other = Reliability([10] * 3, 3).fit(as_seen, y, present, np.arange(400) % 4).sound
    assert asked == [0, 1, 2, 3, None]
    assert np.corrcoef(same.ravel(), other.ravel())[0, 1] > 0.3


def test_rows_that_are_not_sound_are_scored_and_not_learned_from():
    views, y = made(400)
    loud = [np.concatenate([view, 20 * view]) for view in views]
    present, fold_of = np.ones((800, 3), dtype=bool), np.arange(800) % 4
    alone, both = Reliability([10] * 3, 3), Reliability([10] * 3, 3)
    own = alone.fit(lambda fold: views, y, present[:400], fold_of[:400])
    all_rows = both.fit(lambda fold: loud, np.tile(y, 2), present, fold_of, sound=np.arange(800) < 400)
    for mine, other in zip(own, all_rows):
        torch.testing.assert_close(mine, other[:400])
    torch.testing.assert_close(alone.state_dict(), both.state_dict())
    assert all_rows.sound[400:].mean() < 0.1 < 0.8 < own.sound.mean()
    assert all_rows.excess[400:].mean() > 5 * own.excess.mean()


def test_loud_opinions_are_found():
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(500, 3, 4))
    reliability = OpinionReliability(3)
    own = reliability.fit(logits, np.ones((500, 3), dtype=bool))
    assert own.mean() > 0.8
    confident = torch.from_numpy(logits[:50]).float()
    confident[:, 1] *= 40
    present = torch.ones(50, 3, dtype=torch.bool)
    present[:, 2] = False
    rho = reliability(confident, present)
    assert rho[:, 1].mean() < 0.25
    assert rho[:, 0].mean() > 0.75
    assert (rho[:, 2] == 0).all()


def test_what_was_measured_without_a_fold_is_what_the_other_folds_alone_teach():
    random = np.random.default_rng(0)
    (views, y), fold_of = made(240), random.integers(0, 3, 240)
    present = random.random((240, 3)) < 0.9
    sound = random.random(240) < 0.9
    reliability = Reliability([10] * 3, 3).double()
    own = reliability.fit(lambda fold: views, y, present, fold_of, sound=sound)
    scores, canonical = np.zeros((3, 240, 4)), np.zeros((3, 2, 240, 10))
    pairs = [(0, 1), (0, 2), (1, 2)]
    for fold in range(3):
        held, others = fold_of == fold, (fold_of != fold) & sound
        means = []
        for m in range(3):
            rows = others & present[:, m]
            score = InputScores(10, 3).double().fit(views[m][rows], y[rows])
            scores[m, held] = score(torch.from_numpy(views[m][held])).numpy()
            means.append(views[m][rows].mean(axis=0))
        for pair, members in enumerate(pairs):
            rows = others & present[:, members].all(axis=1)
            sides = [views[m] - means[m] for m in members]
            for side, x, directions in zip((0, 1), sides, canonical_directions(*(x[rows] for x in sides), 10)):
                canonical[pair, side, held] = x[held] @ directions
    hidden = present & (random.random((240, 3)) < 0.6)
    for mask in (present, hidden):
        alone = np.stack([reliability.densities[m](torch.from_numpy(scores[m])).numpy() for m in range(3)], axis=1)
        evidence = np.zeros((240, 3))
        for pair, members in enumerate(pairs):
            rows = present[:, members].all(axis=1) & sound
            u, v = (torch.from_numpy(side / np.sqrt(np.square(side[rows]).mean(axis=0))) for side in canonical[pair])
            correlation = getattr(reliability.pairs, f"correlation{pair}")
            information = pointwise_information(u.clamp(-4, 4), v.clamp(-4, 4), correlation)
            found = reliability.pairs.slope[pair] * information + reliability.pairs.offset[pair]
            evidence[:, pair] = (reliability.pairs.strength * found).numpy() * mask[:, members].all(axis=1)
        expected = revise(torch.from_numpy(alone * mask), torch.from_numpy(evidence), 0.9) * torch.from_numpy(mask)
        for fold in range(3):
            rows = np.flatnonzero(fold_of == fold)
            measured = reliability.measure([torch.from_numpy(x[rows]) for x in views], fold=fold)
            signals = reliability.signals_of(measured, torch.from_numpy(mask[rows]))
            torch.testing.assert_close(signals.sound, expected[rows])
            agreement = np.stack([evidence[rows][:, [m in pair for pair in pairs]].sum(axis=1) for m in range(3)], 1)
            torch.testing.assert_close(signals.agreement, torch.from_numpy(agreement))
            if mask is present:  # what `fit` returned
                for values, fitted in zip(signals, own):
                    torch.testing.assert_close(values, fitted[rows])
    reliability.forget_held_out()
    everything = [torch.from_numpy(x) for x in views]
    whole = reliability.measure(everything)
    torch.testing.assert_close(reliability.measure(everything, fold=0), whole)  # nothing is left of the fold
