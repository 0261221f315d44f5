"""Importance-sampled likelihoods against the closed form of a linear-Gaussian model."""

import numpy as np
import pytest
import torch

from consilience.generative import importance
from consilience.generative.importance import WeightSums, log_evidence, log_likelihood
from generative.linear_gaussian import LinearGaussian

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


def test_exact_posteriors_need_one_draw():
    model = LinearGaussian(latent=1)  # of one dimension, so that marginal variances say everything
    batch = model.samples(5)
    found = log_evidence(model, batch, ["a", "b"], 50, generator())
    np.testing.assert_allclose(found.value, model.exact(batch, ["a", "b"]), rtol=1e-10)
    np.testing.assert_allclose(found.effective_samples, 50, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, 0, atol=1e-6)


def test_a_narrow_proposal_shows_in_the_effective_samples():
    wide, narrow = (
        log_evidence(model, model.samples(20), ["a", "b", "c"], 500, generator())
        for model in (LinearGaussian(widen=1.3), LinearGaussian(widen=0.05))
    )
    assert wide.effective_samples.mean() > 300 > 100 > narrow.effective_samples.mean()


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
    monkeypatch.setattr(importance, "PAIRS_AT_ONCE", 7 * 4)
    sizes = []
    decode = model.decode
    model.decode = lambda z, names: sizes.append(z.shape[:2]) or decode(z, names)
    log_evidence(model, batch, ["a"], 10, generator())
    assert sizes == [(4, 7), (4, 7), (2, 7)]


def test_one_draw_has_no_standard_error():
    model = LinearGaussian(widen=1.5)
    assert log_evidence(model, model.samples(3), ["a"], 1).standard_error.isnan().all()
