from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import roc_auc_score

from consilience.bayes.pair_consistency import (
    PairCheck,
    canonical_directions,
    combine_flags,
    fit_strength,
    pointwise_information,
    revise,
)


def test_information_as_scipy_has_it():
    random = np.random.default_rng(0)
    u, v = random.normal(size=(2, 10, 2))
    r = np.array([0.3, -0.8])
    expected = sum(
        multivariate_normal(cov=[[1, r[k]], [r[k], 1]]).logpdf(np.stack([u[:, k], v[:, k]], axis=1))
        - norm.logpdf(u[:, k])
        - norm.logpdf(v[:, k])
        for k in range(2)
    )
    found = pointwise_information(*(torch.from_numpy(values) for values in (u, v, r)))
    assert found.numpy() == pytest.approx(expected)


def test_canonical_directions_of_a_known_dependence():
    random = np.random.default_rng(0)
    shared = random.normal(size=(20_000, 1))
    x = np.concatenate([random.normal(size=(20_000, 2)), 3 * shared], axis=1)
    y = np.concatenate([0.75 * shared + np.sqrt(1 - 0.75**2) * random.normal(size=(20_000, 1)), x[:, :1] * 0], axis=1)
    y[:, 1] = random.normal(size=20_000)
    left, right = canonical_directions(x, y, 1)
    assert np.corrcoef((x @ left)[:, 0], (y @ right)[:, 0])[0, 1] == pytest.approx(0.75, abs=0.02)
    assert np.abs(left[:2, 0]).max() < 0.05
    assert np.abs(right[1, 0]) < 0.05


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(0, 1000))
def test_flags_are_summed_over_as_by_brute_force(modalities, seed):
    random = np.random.default_rng(seed)
    rho = random.uniform(0.05, 0.95, size=modalities)
    pairs = list(combinations(range(modalities), 2))
    evidence = random.normal(size=len(pairs)) * 3
    total, sound = 0.0, np.zeros(modalities)
    for flags in product((0, 1), repeat=modalities):
        weight = np.prod([r if flag else 1 - r for r, flag in zip(rho, flags)])
        for (a, b), one in zip(pairs, evidence):
            weight *= np.exp(one) if flags[a] and flags[b] else 1
        total += weight
        sound += weight * np.array(flags)
    found = combine_flags(torch.from_numpy(rho)[None], torch.from_numpy(evidence)[None])
    assert found[0].numpy() == pytest.approx(sound / total)


def test_what_looks_broken_gives_no_evidence():
    sound = torch.tensor([[1.0, 1.0, 0.0]]).double()
    with_it = revise(sound, torch.tensor([[1.0, 30.0, -30.0]]).double(), cap=0.9)
    without = revise(sound, torch.tensor([[1.0, 0.0, 0.0]]).double(), cap=0.9)
    torch.testing.assert_close(with_it, without)


def test_the_odd_one_out_is_found():
    found = revise(torch.ones(1, 3).double(), torch.tensor([[4.0, -4.0, -4.0]]).double(), cap=0.9)[0]
    assert found[:2].min() > 0.95
    assert found[2] < 0.05


def test_evidence_said_twice_is_believed_half():
    random = np.random.default_rng(0)
    present = np.ones((4000, 2), dtype=bool)
    kept = random.random((4000, 2)) < 0.5
    # The evidence of N(±1, 1) is 2x; counted twice it is 4x.
    evidence = 2 * (np.where(kept.all(axis=1), 1.0, -1.0) + random.normal(size=4000))[:, None]
    once, twice = fit_strength(evidence, kept, present), fit_strength(2 * evidence, kept, present)
    assert once > 0.75
    assert twice == pytest.approx(once / 2, rel=0.3)


@pytest.fixture(scope="module")
def seen():
    random = np.random.default_rng(0)
    shared = random.normal(size=(900, 3))
    return [shared @ random.normal(size=(3, 8)) + 0.7 * random.normal(size=(900, 8)) for _ in range(4)]


def fitted(views, present, n=600):
    check = PairCheck([view.shape[1] for view in views]).double()
    evidence = check.fit(lambda fold: [view[:n] for view in views], present[:n], np.arange(n) % 5)
    return check, evidence


def test_swapped_modalities_are_found(seen):
    present = np.ones((900, 4), dtype=bool)
    check, own = fitted(seen, present)
    assert own.shape == (600, 6)
    assert (own > 0).mean() > 0.8
    test = [torch.from_numpy(view[600:]) for view in seen]
    everyone = torch.ones(300, 4, dtype=torch.bool)
    swapped = [test[0].roll(1, 0), *test[1:]]
    before, after = (revise(torch.ones(300, 4).double(), check(views, everyone), 0.9) for views in (test, swapped))
    assert roc_auc_score(np.repeat([1, 0], 300), torch.cat([before[:, 0], after[:, 0]])) > 0.95
    assert after[:, 1:].mean() > 0.9


def test_unrelated_modalities_give_no_evidence():
    random = np.random.default_rng(0)
    # Nearly as many features as samples: within the fold, canonical directions would find any correlation they like.
    views = [random.normal(size=(200, 100)) for _ in range(2)]
    check, evidence = fitted(views, np.ones((200, 2), dtype=bool), 200)
    assert np.abs(evidence).mean() < 0.3
    assert check.correlation0.max() < 0.3


def test_missing_modalities(seen):
    present = np.ones((900, 4), dtype=bool)
    present[:300, 0] = False
    present[10:, 3] = False  # ten samples are too few to learn a pair from
    garbage = [np.where(there[:, None], view, 0.0) for view, there in zip(seen, present.T)]
    check, evidence = fitted(garbage, present)
    pairs = list(combinations(range(4), 2))
    for column, (a, b) in enumerate(pairs):
        absent = ~(present[:600, a] & present[:600, b])
        assert (evidence[absent, column] == 0).all()
        assert (evidence[:, column] == 0).all() == (b == 3)
    shown = check([torch.from_numpy(view) for view in garbage], torch.from_numpy(present))
    assert (shown[~torch.from_numpy(present[:, 0]), 0] == 0).all()


def test_before_fitting_and_beyond_ten_modalities_there_is_no_evidence():
    views = [torch.randn(3, 2) for _ in range(3)]
    assert (PairCheck([2, 2, 2])(views, torch.ones(3, 3, dtype=torch.bool)) == 0).all()
    assert PairCheck([2] * 11).pairs == []
