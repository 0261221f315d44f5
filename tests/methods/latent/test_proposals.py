"""Proposals for importance sampling: mixtures against torch.distributions, refinement against a known target."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.proposals import Mixture, defensive, flattened, refined, towards, widened_by


def some(*shape, seed=0):
    torch.manual_seed(seed)
    return Gaussian(torch.randn(*shape).double(), torch.randn(*shape).double())


def test_the_density_of_a_mixture():
    one, two = some(3, 2), some(3, 2, seed=1)
    mixed = MixtureSameFamily(
        Categorical(torch.tensor([0.3, 0.7]).double().expand(3, 2)),
        Independent(
            Normal(torch.stack([one.mean, two.mean], 1), torch.stack([one.variance, two.variance], 1).sqrt()), 1
        ),
    )
    z = torch.randn(5, 3, 2).double()
    torch.testing.assert_close(Mixture.of((one, 0.3), (two, 0.7)).log_density(z), mixed.log_prob(z))


def test_a_widened_part_is_the_wider_gaussian():
    q, z = some(3, 2), torch.randn(5, 3, 2).double()
    by_factor, by_hand = Mixture.of((q, 0.4), (q, 0.6, 3.0)), Mixture.of((q, 0.4), (widened_by(q, 3), 0.6))
    torch.testing.assert_close(by_factor.log_density(z), by_hand.log_density(z))
    drawn = [one.draw(9, torch.Generator().manual_seed(0)) for one in (by_factor, by_hand)]
    torch.testing.assert_close(*drawn)


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_each_part_gives_its_share_of_the_draws(samples, seed):
    shares = (0.6, 0.25, 0.15)
    far = [Gaussian(torch.full((2, 1), 10.0 * place), torch.full((2, 1), -9.0)) for place in range(3)]
    z = Mixture.of(*zip(far, shares)).draw(samples, torch.Generator().manual_seed(seed))
    assert z.shape == (samples, 2, 1)
    counts = (z[:, 0, 0] / 10).round().long().bincount(minlength=3)
    assert all(abs(count - share * samples) <= 1 for count, share in zip(counts.tolist(), shares))


def test_shares_hold_on_average_for_a_single_draw():
    mixed = Mixture.of(*((Gaussian(torch.full((1,), 10.0 * place), torch.zeros(1) - 9), 0.25) for place in range(4)))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([mixed.draw(1, generator) for _ in range(800)])
    counts = (drawn / 10).round().long().flatten().bincount(minlength=4)
    assert ((counts - 200).abs() < 50).all()  # four standard deviations


def test_half_way_to_the_prior_is_the_geometric_mean():
    q, z = some(4, 1), torch.linspace(-3, 3, 7).double()[:, None, None]
    half = towards(Gaussian.standard(*q.mean.shape, like=q.mean), q, 0.5)
    ratio = half.log_density(z) - 0.5 * (q.log_density(z) + Gaussian.standard(4, 1, like=q.mean).log_density(z))
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
    torch.testing.assert_close(widened_by(q, 2).variance, 2 * q.variance)


def test_flattening_leaves_weights_that_are_even_enough():
    log_weights = torch.tensor([[0.0, 0.0, 0.0], [0.5, 50.0, 1e6], [0.2, 3.0, -1e6]])
    weights = flattened(log_weights, 2.0)
    assert (1 / weights.square().sum(0) >= 2).all()
    torch.testing.assert_close(weights[:, 0], log_weights[:, 0].double().softmax(0))
    assert flattened(torch.tensor([0.0, -torch.inf, -torch.inf]), 2.0).square().sum() < 0.5  # and it ends


@pytest.mark.parametrize("start", [(3.0, -4.0), (0.0, 2.0), (-1.0, 0.0)])
def test_refinement_finds_a_known_target(start):
    target = Gaussian(torch.tensor([[1.0, -1.0, 0.5]] * 4), torch.tensor([[-2.0, -1.0, -3.0]] * 4))
    first = Gaussian(torch.full((4, 3), start[0]), torch.full((4, 3), start[1]))
    found = refined(first, target.log_density, [200] * 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.parts[0].mean, target.mean, atol=0.2, rtol=0)
    torch.testing.assert_close(found.parts[0].log_variance, target.log_variance, atol=0.7, rtol=0)
    assert any(part is first for part in found.parts)  # what it began from keeps a share


def test_without_rounds_it_is_the_defensive_mixture():
    q = some(3, 2)
    assert refined(q, q.log_density, []).shares == defensive(q, Gaussian.standard(*q.mean.shape, like=q.mean)).shares
    assert sum(defensive(q, Gaussian.standard(*q.mean.shape, like=q.mean)).shares) == pytest.approx(1)
