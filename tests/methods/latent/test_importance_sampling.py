"""Importance-sampled likelihoods against the closed form of a linear-Gaussian model."""

import numpy as np
import pytest
import torch

from consilience.methods.latent import importance_sampling as importance
from consilience.methods.latent.importance_sampling import WeightSums, log_evidence, log_likelihood, log_predictive
from methods.latent.linear_gaussian import LinearGaussian

CASES = {
    "joint": (["a", "b", "c"], []),
    "marginal": (["b"], []),
    "conditional": (["c"], ["a", "b"]),
    "conditional of two": (["a", "c"], ["b"]),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize(("of", "given"), CASES.values(), ids=CASES)
def test_likelihoods_agree_with_the_closed_form(of, given, missing):
    model = LinearGaussian(widen=1.5, shift=0.1)
    batch = model.samples(60, missing)
    found = log_likelihood(model, batch, of, given, 4000, generator())
    exact = model.exact(batch, [*of, *given]) - model.exact(batch, given)
    off = (found.value.numpy() - exact) / found.standard_error.numpy().clip(1e-9)
    assert np.abs(off).max() < 4  # of sixty
    assert np.mean(np.abs(off) < 3) > 0.98
    assert 0.5 < off.std() < 1.5  # the standard errors are neither too small nor too large
    # The mean over samples within three standard errors of its own.
    error = np.sqrt(np.square(found.standard_error.numpy()).sum()) / len(exact)
    assert abs(found.value.numpy().mean() - exact.mean()) < 3 * error


@pytest.mark.parametrize(
    "bad", [{"widen": 0.03}, {"widen": 20.0}, {"shift": 1.0}, {"widen": 0.2, "shift": 0.5}], ids=str
)
def test_bad_posteriors_bias_nothing(bad):
    """Too narrow, too wide, off their place: draws from q alone are worth 1 to 8 of 1000 here."""
    model = LinearGaussian(latent=4, sizes=(3, 3, 3), **bad)
    batch = model.samples(80)
    found = log_likelihood(model, batch, ["c"], ["a", "b"], 1000, generator())
    exact = model.exact(batch, ["a", "b", "c"]) - model.exact(batch, ["a", "b"])
    apart = found.value.numpy() - exact
    assert abs(apart.mean()) < 0.05
    assert np.mean(np.abs(apart) < 3 * found.standard_error.numpy()) > 0.93
    assert found.effective_samples.median() > 200


@pytest.mark.parametrize("learned", [{}, {"widen": 0.1, "shift": 0.5}, {"widen": 8.0}], ids=str)
def test_what_is_generated_from_a_learned_posterior_has_its_own_likelihood(learned):
    """N(x_T; W_T μ + b_T, W_T diag(v) W_Tᵀ + σ²) for q = N(μ, v), which is far from p(x_T | x_S) for a wrong q."""
    model = LinearGaussian(**learned)
    batch = model.samples(60, missing=0.3)
    of, given = ["a", "c"], ["b"]
    found = log_predictive(model, batch, of, given, 3000, generator())
    q, exact = model.posterior(batch, given), np.zeros(60)
    for row in range(60):
        there = [name for name in of if batch.present_in(name)[row]]
        if there:
            weight = torch.cat([model.weights[name] for name in there])
            noise = torch.cat([torch.full_like(model.bias[name], model.noise[name] ** 2) for name in there])
            mean = weight @ q.mean[row] + torch.cat([model.bias[name] for name in there])
            normal = torch.distributions.MultivariateNormal(
                mean, weight * q.variance[row] @ weight.T + torch.diag(noise)
            )
            exact[row] = normal.log_prob(torch.cat([batch[name][row] for name in there]))
    off = (found.value.numpy() - exact) / found.standard_error.numpy().clip(1e-9)
    assert np.mean(np.abs(off) < 3) > 0.95
    assert abs(found.value.numpy().mean() - exact.mean()) < 0.03
    if learned:
        of_model = log_likelihood(model, batch, of, given, 3000, generator()).value.numpy()
        assert of_model.mean() - exact.mean() > 0.1


def test_given_nothing_the_learned_posterior_is_the_prior():
    model = LinearGaussian(widen=1.5)
    batch = model.samples(20)
    found = log_predictive(model, batch, ["a"], [], 500, generator())
    plain = log_evidence(model, batch, ["a"], 500, generator())
    torch.testing.assert_close(found.value, plain.value, rtol=0, atol=0)


def test_exact_posteriors_are_not_lost():
    model = LinearGaussian(latent=1)  # of one dimension, so that marginal variances say everything
    batch = model.samples(50)
    found = log_evidence(model, batch, ["a", "b"], 400, generator())
    np.testing.assert_allclose(found.value, model.exact(batch, ["a", "b"]), atol=0.15)
    assert found.effective_samples.min() > 280


def test_nothing_has_likelihood_one_without_noise():
    model = LinearGaussian(widen=1.5)
    batch = model.samples(30, missing=0.6)
    found = log_evidence(model, batch, ["a"], 20, generator())
    absent = ~batch.present_in("a")
    assert absent.any()
    assert (found.value[absent] == 0).all()
    assert (found.standard_error[absent] == 0).all()
    assert (found.effective_samples[absent] == 20).all()


def test_the_estimate_does_not_depend_on_the_pieces(monkeypatch):
    model = LinearGaussian(widen=1.5)
    batch = model.samples(7)
    weights = torch.randn(100, 7)
    whole, pieces = WeightSums(), WeightSums()
    whole.add(weights)
    for piece in weights.split(13):
        pieces.add(piece)
    torch.testing.assert_close(vars(whole.estimate()), vars(pieces.estimate()))
    plain = weights.double().exp()
    np.testing.assert_allclose(whole.estimate().value, plain.mean(0).log())
    np.testing.assert_allclose(whole.estimate().standard_error, plain.std(0) / plain.mean(0) / 10)
    monkeypatch.setattr(importance, "pairs_at_once", lambda *_: 7 * 4)
    sizes = []
    decode = model.decode
    model.decode = lambda z, names: sizes.append(z.shape[:2]) or decode(z, names)
    log_evidence(model, batch, ["a"], 10, generator())
    assert sizes == [(4, 7), (4, 7), (2, 7)]  # too few to refine the proposal first
    sizes.clear()
    log_evidence(model, batch, ["a"], 200, generator())
    assert sum(size[0] for size in sizes) == 5 * 100 + 200


def test_one_draw_has_no_standard_error():
    model = LinearGaussian(widen=1.5)
    assert log_evidence(model, model.samples(3), ["a"], 1).standard_error.isnan().all()
