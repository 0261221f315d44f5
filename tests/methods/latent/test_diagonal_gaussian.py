import torch
from torch.distributions import Normal, kl_divergence

from consilience.methods.latent.diagonal_gaussian import Gaussian, bayes_product, kl, product


def gaussians(*shape, seed=0):
    torch.manual_seed(seed)
    return Gaussian(torch.randn(*shape).double(), torch.randn(*shape).double())


def normal(one):
    return Normal(one.mean, one.variance.sqrt())


def test_divergences_and_densities_are_those_of_torch():
    q, p, z = gaussians(3, 4, 2), gaussians(3, 4, 2, seed=1), torch.randn(5, 3, 4, 2).double()
    torch.testing.assert_close(kl(q, p), kl_divergence(normal(q), normal(p)).sum(-1))
    prior = Normal(torch.zeros(2).double(), torch.ones(2).double())
    torch.testing.assert_close(kl(q), kl_divergence(normal(q), prior).sum(-1))
    torch.testing.assert_close(kl(q, Gaussian.standard(3, 4, 2, like=q.mean)), kl(q))
    torch.testing.assert_close(q.log_density(z), normal(q).log_prob(z).sum(-1))


def test_draws_have_the_mean_and_the_spread():
    q = gaussians(2, 3)
    drawn = q.draw(torch.Generator().manual_seed(0), samples=40_000)
    torch.testing.assert_close(drawn.mean(0), q.mean, rtol=0, atol=0.05)
    torch.testing.assert_close(drawn.var(0), q.variance, rtol=0.05, atol=0)
    torch.testing.assert_close(q.draw(torch.ones(3).double()), q.mean + q.variance.sqrt())
    assert torch.equal(q[1].mean, q.mean[1])


def density_of_product(experts, present, prior, line):
    """The normalised product by numerical integration: `[point]`."""
    log = torch.zeros_like(line)
    for expert, there in zip(experts, present):
        log = log + (Normal(*expert).log_prob(line) if there else 0.0)
    log = log + prior * Normal(0.0, 1.0).log_prob(line)
    density = (log - log.max()).exp()
    return density / torch.trapezoid(density, line)


def test_products_of_experts_by_integration():
    torch.manual_seed(0)
    line = torch.linspace(-12, 12, 20_001).double()
    mean, log_variance = torch.randn(3, 1).double(), torch.randn(3, 1).double() - 1
    experts = list(zip(mean[:, 0], log_variance[:, 0].exp().sqrt()))
    for present in ([True, True, True], [False, True, True], [True, False, False]):
        for prior in (False, True):
            made = product(mean, log_variance, torch.tensor(present), prior)
            wanted = density_of_product(experts, present, float(prior), line)
            torch.testing.assert_close(normal(made).log_prob(line).exp(), wanted, rtol=0, atol=1e-6)
    nobody = product(mean, log_variance, torch.zeros(3, dtype=torch.bool), prior=False)
    assert nobody.mean.item() == nobody.log_variance.item() == 0


def test_posteriors_of_independent_witnesses_count_the_prior_once():
    """Against Bayes' rule with x_m = w_m z + noise, where all posteriors are known."""
    w, variance, x = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, 0.3, -2.0])
    alone = 1 + w**2 / variance
    mean, log_variance = (w * x / variance / alone)[:, None], -alone.log()[:, None]
    made = bayes_product(mean, log_variance, torch.tensor([True, True, False]))
    precision = 1 + (w**2 / variance)[:2].sum()
    torch.testing.assert_close(made.variance[0], 1 / precision)
    torch.testing.assert_close(made.mean[0], (w * x / variance)[:2].sum() / precision)
    wide = bayes_product(mean, torch.full((3, 1), 2.0), torch.tensor([True, True, True]))
    assert wide.variance.item() == 1
