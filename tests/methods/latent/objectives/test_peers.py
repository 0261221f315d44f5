"""Every other objective against its equation, written out one subset of one sample at a time."""

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from consilience.core.errors import InputError, UnsupportedError
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.objectives.mmvae import match_moments, mixture_density
from consilience.methods.latent.objectives.mvae import random_subsets
from consilience.methods.latent.objectives.objective import build_objective, evaluate
from consilience.methods.latent.subsets import all_subsets
from methods.latent.latent_toys import Literal, batch_of, model_of

NOISE = torch.tensor([0.3, -0.8], dtype=torch.float64)
MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]
GIVEN = [MIXED, [[1, 1, 1]] * 2]


def values(model, batch):
    return -sum(model.criterion.terms(model, batch, NOISE).values())


def check(model, batch, wanted):
    each = [Literal(model, batch, row, NOISE) for row in range(len(batch))]
    torch.testing.assert_close(values(model, batch), torch.stack([wanted(one) for one in each]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("present", GIVEN)
@pytest.mark.parametrize("name", ["joint", "vae"])
def test_joint(name, present):
    check(model_of(3, name), batch_of(3, present=present), lambda one: one.joint_bound(one.observed))


@pytest.mark.parametrize("present", GIVEN)
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_jmvae_in_both_readings(present, alpha):
    batch = batch_of(3, present=present)

    def wanted(one, smaller):
        several = len(one.observed) > 1
        pulls = sum(one.kl(one.observed, smaller(one, m)) for m in one.observed) if several else 0.0
        return one.joint_bound(one.observed) - alpha * pulls

    unimodal = model_of(3, "jmvae", settings={"alpha": alpha})
    check(unimodal, batch, lambda one: wanted(one, lambda _, m: (m,)))
    leaving = model_of(3, "jmvae", settings={"alpha": alpha, "reading": "leave-one-out"})
    check(leaving, batch, lambda one: wanted(one, lambda one, m: tuple(o for o in one.observed if o != m)))


@pytest.mark.parametrize("present", GIVEN)
def test_mvae(present):
    def wanted(one):
        alone = sum(one.joint_bound((m,)) for m in one.observed)
        return alone + (one.joint_bound(one.observed) if len(one.observed) > 1 else 0.0)

    check(model_of(3, "mvae", settings={"random": 0}), batch_of(3, present=present), wanted)


def test_random_subsets_of_mvae_have_uniform_sizes():
    present = torch.ones(3000, 5, dtype=torch.bool)
    present[:1000, 0] = present[1000:1100, :3] = False
    drawn = random_subsets(present, 1, torch.Generator().manual_seed(0))[0]
    assert not (drawn & ~present).any()
    assert not drawn[1000:1100].any()
    sizes = drawn[1100:].sum(1).bincount(minlength=6)
    assert sizes[[0, 1, 5]].sum() == 0
    assert ((sizes[2:5] - 1900 / 3).abs() < 80).all()
    assert set(drawn[:1000].sum(1).tolist()) == {2, 3}


@pytest.mark.parametrize("present", GIVEN)
def test_mvtcae(present):
    alpha = 0.7

    def wanted(one):
        n = len(one.observed)
        rebuilt = sum(one.log_density(m, one.observed) for m in one.observed)
        pulls = sum(one.kl(one.observed, (m,)) for m in one.observed)
        return (n - alpha) / n * rebuilt - (1 - alpha) * one.kl(one.observed) - alpha / n * pulls

    check(model_of(3, "mvtcae", settings={"alpha": alpha}), batch_of(3, present=present), wanted)


def test_mopoe_is_right_on_average_over_its_subsets():
    model, batch = model_of(3, "mopoe"), batch_of(3, present=MIXED)
    plans = [model.criterion.plan(model, batch, torch.Generator().manual_seed(seed)) for seed in range(20)]
    terms = [evaluate(model, batch, plan, NOISE) for plan in plans]
    for row in range(len(batch)):
        one = Literal(model, batch, row, NOISE)
        members = [tuple(s.nonzero()[:, 0].tolist()) for s in all_subsets(3)]
        subsets = [s for s in members if set(s) <= set(one.observed)]
        prior = sum(one.kl(s) for s in subsets) / len(subsets)
        torch.testing.assert_close(terms[0]["prior"][row], prior, rtol=0, atol=1e-10)
        rebuilt = {s: -sum(one.log_density(m, s) for m in one.observed) for s in subsets}
        found = torch.stack([term["reconstruction"][row] for term in terms])
        nearest = (found[:, None] - torch.stack(list(rebuilt.values()))).abs().amin(1)
        assert nearest.max() < 1e-10
        assert (found.std() > 1e-3) == (len(subsets) > 1)


def log_weights(model, batch, row):
    """log p(z) Π p(x|z) / q(z|O) for the z that the noise gives of every observed posterior."""
    one = Literal(model, batch, row, NOISE)
    qs = [one.q((m,)) for m in one.observed]
    parts = Normal(torch.stack([q.loc for q in qs], dim=-1), torch.stack([q.scale for q in qs], dim=-1))
    found = []
    for m, q in zip(one.observed, qs):
        z = q.loc + q.scale * NOISE
        each = parts.log_prob(z[:, None]).sum(0)  # the posteriors' densities of the whole z
        posterior = each.logsumexp(0) - math.log(len(qs))
        prior = Normal(0.0, 1.0).log_prob(z).sum()
        found.append(sum(one.log_density(j, (m,)) for j in one.observed) + prior - posterior)
    return torch.stack(found)


@pytest.mark.parametrize("present", GIVEN)
@pytest.mark.parametrize("particles", [1, 3])
def test_mmvae(present, particles):
    """Particles that share their noise are as one."""
    model, batch = model_of(3, "mmvae", settings={"particles": particles}), batch_of(3, present=present)
    wanted = torch.stack([log_weights(model, batch, row).mean() for row in range(len(batch))])
    torch.testing.assert_close(values(model, batch), wanted, rtol=0, atol=1e-10)


def test_more_particles_bound_more_tightly():
    batch, found = batch_of(2, n=3), []
    for particles in (1, 50):
        model = model_of(2, "mmvae", settings={"particles": particles})
        with torch.no_grad():
            drawn = [model.criterion.terms(model, batch, torch.Generator().manual_seed(s)) for s in range(30)]
        found.append(-torch.stack([sum(terms.values()) for terms in drawn]).mean())
    assert found[1] > found[0] + 0.05


def test_mixtures_by_torch():
    torch.manual_seed(0)
    q = Gaussian(torch.randn(3, 2, 1).double(), torch.randn(3, 2, 1).double())
    z, share = torch.randn(7, 2, 1).double(), torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]).double()
    parts = Normal(q.mean[..., 0].T, q.variance[..., 0].T.sqrt())
    mixture = MixtureSameFamily(Categorical(share), parts)
    torch.testing.assert_close(mixture_density(q, z, share), mixture.log_prob(z[..., 0]))
    matched = match_moments(q, share > 0)
    torch.testing.assert_close(matched.mean[:, 0], mixture.mean)
    torch.testing.assert_close(matched.variance[:, 0], mixture.variance)
    assert match_moments(q, torch.zeros(2, 3, dtype=torch.bool)).log_variance.abs().max() == 0


def test_settings_are_checked():
    for name, settings, message in (
        ("jmvae", {"alpha": -1}, "alpha must be a number ≥ 0, got -1"),
        ("jmvae", {"reading": "pairs"}, "unknown reading 'pairs'"),
        ("mvtcae", {"alpha": 2}, "alpha must be a number ≥ 0 and ≤ 1, got 2"),
        ("mvae", {"random": -1}, "random must be a whole number ≥ 0"),
        ("mmvae", {"particles": 0}, "particles must be a whole number ≥ 1"),
        ("joint", {"bound": "tight"}, "unknown setting 'bound'.*objective 'joint'"),
        ("mvea", {}, "unknown objective 'mvea': did you mean 'mvae'"),
    ):
        with pytest.raises(InputError, match=message):
            build_objective(name, settings)
    with pytest.raises(UnsupportedError, match="particles=5 its bound has no divergence to weigh"):
        build_objective("mmvae", {"particles": 5}, 2, annealed=True)
    with pytest.raises(UnsupportedError, match="13 modalities have 8191 subsets"):
        build_objective("mopoe", {}, 13)
