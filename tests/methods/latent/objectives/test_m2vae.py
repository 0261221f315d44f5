import itertools
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from consilience.core.batches import Batch
from consilience.core.errors import InputError, UnsupportedError
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.objectives.m2vae import M2Vae, chain_plan, full_plan
from consilience.methods.latent.objectives.objective import build_objective, evaluate
from consilience.methods.latent.subsets import all_subsets
from methods.latent.latent_toys import Literal, batch_of, gradients, model_of

NOISE = torch.tensor([0.3, -0.8], dtype=torch.float64)
MIXED = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 1]]


def value_of(model, batch, plan):
    """The objective of each sample, to be maximised."""
    return -sum(evaluate(model, batch, plan, NOISE).values())


@pytest.mark.parametrize("encoder", ["trunk", "own", "poe", "set", "concat"])
def test_the_flattened_objective_is_the_recursion(encoder):
    model, batch = model_of(3, encoder=encoder), batch_of(3, n=2)
    for tight in (False, True):
        found = value_of(model, batch, full_plan(batch.present[:1], tight))
        wanted = torch.stack([Literal(model, batch, row, NOISE).recursion((0, 1, 2), tight) for row in range(2)])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_gradients_flow_through_both_sides_of_every_divergence():
    model, batch = model_of(3), batch_of(3, n=1)
    found = gradients(model, value_of(model, batch, full_plan(batch.present, False)).sum())
    wanted = gradients(model, Literal(model, batch, 0, NOISE).recursion((0, 1, 2), False))
    assert wanted.abs().max() > 0.1
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_three_modalities_by_hand():
    """The weights ⅓, ⅙, ⅓ of eq. 125 and 126."""
    model, batch = model_of(3), batch_of(3, n=1)
    one = Literal(model, batch, 0, NOISE)
    singles = sum(one.joint_bound(s) for s in [(0,), (1,), (2,)]) / 3
    pairs = sum(one.joint_bound(s) - one.mutual(s) for s in [(0, 1), (0, 2), (1, 2)]) / 6
    whole = (one.joint_bound((0, 1, 2)) - one.kl((0, 1, 2), (0, 1)) - one.kl((0, 1, 2), (0, 2))) / 3
    whole = whole - one.kl((0, 1, 2), (1, 2)) / 3
    found = value_of(model, batch, full_plan(batch.present, False))
    torch.testing.assert_close(found[0], singles + pairs + whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("encoder", ["trunk", "poe", "own"])
def test_what_is_missing_restricts_the_objective_to_the_rest(tight, encoder):
    model, batch = model_of(3, encoder=encoder), batch_of(3, present=MIXED)
    found = value_of(model, batch, full_plan(batch.present, tight))
    each = [Literal(model, batch, row, NOISE) for row in range(4)]
    wanted = torch.stack([one.recursion(one.observed, tight) for one in each])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_mean_over_all_chains_is_the_objective(count, tight):
    model, batch = model_of(count), batch_of(count, n=1)
    full = value_of(model, batch, full_plan(batch.present, tight))[0]
    orders = torch.tensor(list(itertools.permutations(range(count))))
    copies = batch.select(torch.zeros(len(orders), dtype=torch.long))
    chains = value_of(model, copies, chain_plan(copies.present, orders, tight))
    assert chains.std() > 1e-3
    mean = chains.mean()
    torch.testing.assert_close(mean, full, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradients(model, mean), gradients(model, full), rtol=0, atol=1e-10)


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("encoder", ["trunk", "own", "set"])
def test_chains_of_samples_with_gaps(tight, encoder):
    """Every sample has a permutation of its own, and skips what it does not have."""
    model, batch = model_of(3, encoder=encoder), batch_of(3, present=MIXED)
    full = value_of(model, batch, full_plan(batch.present, tight))
    orders = torch.tensor(list(itertools.permutations(range(3))))
    rolled = [torch.stack([orders[(turn + row) % 6] for row in range(4)]) for turn in range(6)]
    chains = torch.stack([value_of(model, batch, chain_plan(batch.present, order, tight)) for order in rolled])
    torch.testing.assert_close(chains.mean(0), full, rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoder", ["trunk", "own", "poe", "set"])
@pytest.mark.parametrize("chains", ["sample", "batch"])
@pytest.mark.parametrize("present", [[[1, 1]] * 3, [[1, 1], [0, 1], [1, 1]]], ids=["whole", "gaps"])
def test_drawn_chains_are_the_objective_on_average(encoder, chains, present):
    """As a model draws them: of two modalities there are two permutations, and so two values."""
    model, batch = model_of(2, encoder=encoder), batch_of(2, present=present)
    wanted = value_of(model, batch, full_plan(batch.present, True))
    objective, random = M2Vae(bound="tight", subsets="chain", chains=chains), torch.Generator().manual_seed(1)
    drawn = torch.stack([value_of(model, batch, objective.plan(model, batch, random)) for _ in range(12)])
    torch.testing.assert_close((drawn.amin(0) + drawn.amax(0)) / 2, wanted, rtol=0, atol=1e-10)


def test_only_the_members_of_a_subset_are_reconstructed():
    plan = full_plan(torch.ones(1, 4, dtype=torch.bool), False)
    assert torch.equal(plan.reconstruction[:, 0] > 0, all_subsets(4))
    chain = chain_plan(torch.ones(4, dtype=torch.bool), torch.tensor([2, 0, 3, 1]), True)
    assert (chain.reconstruction[:, 0] > 0).sum(1).tolist() == [1] * 4
    assert (chain.reconstruction[:, 0] > 0).nonzero()[:, 1].tolist() == [2, 0, 3, 1]


class Exact:
    """x_m = w_m z + σ_m ε with one latent dimension; posteriors exact, or whatever `q` says."""

    latent = 1

    def __init__(self, w, noise, q=None):
        self.w, self.variance, self.given = torch.tensor(w).double(), torch.tensor(noise).double() ** 2, q
        self.names, self.weights = tuple("abcde"[: len(w)]), (1.0,) * len(w)

    def encode(self, batch, subsets):
        if self.given is not None:
            return Gaussian(*(one[:, None, None] for one in self.given))
        x = torch.stack([batch[name][:, 0] for name in self.names], dim=1)
        there = subsets.double()
        precision = 1 + there @ (self.w**2 / self.variance)
        mean = torch.einsum("sm,bm->sb", there, x * self.w / self.variance) / precision[:, None]
        return Gaussian(mean[..., None], -precision.log()[:, None, None].expand(*mean.shape, 1))

    def log_density(self, name, z, batch, rows=None):
        place = self.names.index(name)
        apart = batch[name][:, 0] - self.w[place] * z[..., 0]
        return -0.5 * (apart**2 / self.variance[place] + (2 * math.pi * self.variance[place]).log())

    def expected(self, batch, plan):
        """Σ terms with E log p(x|z) exact: of a square, two draws at ± one standard deviation give the mean."""
        signs = [torch.ones(1).double(), -torch.ones(1).double()]
        return -sum(sum(evaluate(self, batch, plan, sign).values()) for sign in signs) / 2


def scalars(*values):
    named = {name: torch.tensor(value).double()[:, None] for name, value in zip("abcde", values)}
    n = len(values[0])
    there = torch.ones(n, len(values), dtype=torch.bool)
    return Batch(named, there, index=torch.arange(n), weight=torch.ones(n), complete=frozenset(named))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_at_exact_posteriors_the_tight_form_is_the_likelihood(count):
    w, noise = [1.0, -0.5, 2.0, 0.7][:count], [0.5, 0.8, 1.1, 0.3][:count]
    model = Exact(w, noise)
    batch = scalars(*torch.randn(count, 5, generator=torch.Generator().manual_seed(0)).tolist())
    x = torch.cat([batch[name] for name in model.names], dim=1)
    covariance = torch.outer(model.w, model.w) + torch.diag(model.variance)
    log_p = MultivariateNormal(torch.zeros(count).double(), covariance).log_prob(x)
    tight = model.expected(batch, full_plan(batch.present[:1], True))
    torch.testing.assert_close(tight, log_p, rtol=0, atol=1e-10)
    # The paper's form is lower by Σ_{|S| ≥ 2} c·KL(q_S ‖ p(z)).
    paper = model.expected(batch, full_plan(batch.present[:1], False))
    q, gap = model.encode(batch, all_subsets(count)), 0.0
    for position, members in enumerate(all_subsets(count).sum(1).tolist()):
        if members > 1:
            prior = torch.distributions.Normal(torch.zeros(1).double(), 1.0)
            own = torch.distributions.Normal(q.mean[position], q.variance[position].sqrt())
            share = 1 / (members * math.comb(count, members))
            gap = gap + share * torch.distributions.kl_divergence(own, prior).sum(-1)
    assert gap.min() > 0.01
    torch.testing.assert_close(paper, log_p - gap, rtol=0, atol=1e-10)


def test_the_surrogate_can_exceed_the_likelihood():
    """w = 1, σ² = .1, a = 2, b = −2: no bound once q_{S∖m} stands for p(z | S∖m)."""
    batch, means, logs = scalars([2.0], [-2.0]), torch.zeros(3).double(), torch.zeros(3).double()
    free = [means.requires_grad_(), logs.requires_grad_()]
    model, plan = Exact([1.0, 1.0], [0.1**0.5] * 2, q=free), full_plan(batch.present, False)
    optimizer = torch.optim.LBFGS(free, max_iter=200, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def loss():
        optimizer.zero_grad()
        value = -model.expected(batch, plan).sum()
        value.backward()
        return value

    optimizer.step(loss)
    covariance = torch.ones(2, 2).double() + 0.1 * torch.eye(2).double()
    log_p = MultivariateNormal(torch.zeros(2).double(), covariance).log_prob(torch.tensor([2.0, -2.0]).double())
    assert log_p.item() == pytest.approx(-41.06, abs=0.005)
    assert -loss().item() == pytest.approx(-27.98, abs=0.005)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_both_forms_bound_the_mean_over_orders_of_products_of_predictive_densities(count):
    """Whatever the posteriors are: L_paper ≤ L_tight ≤ mean_π Σ_k log ∫ p(x_πk | z) q(z | x_π1…k−1) dz."""
    random = torch.Generator().manual_seed(count)
    w, noise = [1.0, -0.5, 2.0, 0.7][:count], [0.5, 0.8, 1.1, 0.3][:count]
    slack = []
    for _ in range(40):
        q = [torch.randn(2**count - 1, generator=random).double() for _ in range(2)]
        model = Exact(w, noise, q=q)
        batch = scalars(*torch.randn(count, 1, generator=random).tolist())
        x = [batch[name].item() for name in model.names]
        of_order = []
        for order in itertools.permutations(range(count)):
            mean, variance, total, code = 0.0, 1.0, 0.0, 0
            for place in order:
                spread = w[place] ** 2 * variance + noise[place] ** 2
                total += torch.distributions.Normal(w[place] * mean, spread**0.5).log_prob(torch.tensor(x[place]))
                code += 1 << place  # of the nested set, whose posterior stands in row code − 1
                mean, variance = q[0][code - 1].item(), q[1][code - 1].exp().item()
            of_order.append(float(total))
        tight, paper = (model.expected(batch, full_plan(batch.present, form)).item() for form in (True, False))
        assert paper <= tight + 1e-9
        assert tight <= sum(of_order) / len(of_order) + 1e-6
        slack.append(sum(of_order) / len(of_order) - tight)
    assert min(slack) < 0.5 * max(slack)  # it is no constant


def test_settings_are_checked():
    with pytest.raises(InputError, match=r"unknown bound 'loose'\. Known: paper, tight"):
        M2Vae(bound="loose")
    with pytest.raises(InputError, match=r"unknown chains 'all'"):
        M2Vae(chains="all")
    with pytest.raises(UnsupportedError, match=r"13 modalities have 8191 subsets.*subsets='chain'"):
        build_objective("m2vae", {"subsets": "all"}, 13)
    build_objective("m2vae", {"subsets": "chain"}, 13)
