"""The blocks of the CPU against sums in double precision, with anything at all where experts are missing."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax

from consilience.bayes import cpu_fuse as blocks
from consilience.bayes.fuse import fuse

ROWS, EXPERTS, CLASSES = 60, 3, 11


def reference(z, priors, target, present, weights, kappa):
    """log_softmax( ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ ) over those present, κ = 1 where at most one is."""
    kappa = np.where(present.sum(axis=1, keepdims=True) > 1, kappa, 0.0)
    evidence = (np.where(present[..., None], z, 0.0) - np.log(priors)) * (weights * present)[..., None]
    return log_softmax(np.log(target) + evidence.sum(axis=1) + kappa, axis=-1)


def draw(seed, dtype, priors):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(ROWS, EXPERTS, CLASSES)).astype(dtype)
    present = rng.random((ROWS, EXPERTS)) < 0.6
    present[:8] = False  # blocks without an active expert
    prior = {
        "uniform": np.full((1, CLASSES), 1 / CLASSES),
        "shared": rng.dirichlet(np.ones(CLASSES), size=1),
        "each": rng.dirichlet(np.ones(CLASSES), size=EXPERTS),
    }[priors]
    return rng, z, present, prior


@pytest.fixture
def only_blocks(monkeypatch):
    """Blocks of seven rows, and no reference to fall back on."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 7 * CLASSES * 4)
    monkeypatch.setattr(blocks, "expert_evidence", None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("priors", ["uniform", "shared", "each"])
@pytest.mark.parametrize("held", [0.0, math.nan, math.inf, -math.inf])
@pytest.mark.usefixtures("only_blocks")
def test_what_silent_experts_hold_is_not_read(held, priors, dtype):
    rng, z, present, prior = draw(0, dtype, priors)
    weights, kappa = rng.normal(1, 0.5, size=(ROWS, EXPERTS)), rng.normal(size=(ROWS, CLASSES))
    target = rng.dirichlet(np.ones(CLASSES))
    # Only some classes, and the first blocks are clean: the need shows late.
    holes = np.where(~present[..., None] & (np.arange(CLASSES) % 2 == 1), held, z).astype(dtype)
    holes[:20] = z[:20]
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    expected = reference(z.astype(float), prior, target, present, weights, kappa)
    fused = fuse(holes, prior, target_prior=target, present=present, weights=weights, log_kappa=kappa)
    np.testing.assert_allclose(fused, expected, atol=tolerance)
    masks = fuse(holes, prior, target_prior=target, present=present)
    np.testing.assert_allclose(masks, reference(z.astype(float), prior, target, present, 1.0, 0.0), atol=tolerance)


@pytest.mark.parametrize("priors", ["uniform", "shared", "each"])
@pytest.mark.usefixtures("only_blocks")
def test_offsets_and_holes_together(priors):
    rng, z, present, prior = draw(1, np.float64, priors)
    z[30:] += rng.choice([-1e5, 1e5], size=(ROWS - 30, EXPERTS, 1))
    expected = reference(z, prior, prior.mean(axis=0), present, 1.0, 0.0)
    fused = fuse(np.where(present[..., None], z, np.nan), prior, present=present)
    np.testing.assert_allclose(fused, expected, atol=1e-8)


@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.usefixtures("only_blocks")
def test_an_excluded_class_beside_holes(hole):
    _, z, present, prior = draw(2, np.float32, "shared")
    z[25:40, 1, 4] = -math.inf
    target = np.where(np.arange(CLASSES) == 6, 0, prior[0])
    target /= target.sum()
    given = np.where(present[..., None], z, np.nan if hole else 1.0).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = reference(z.astype(float), prior, target, present, 1.0, 0.0)
    fused, conflict = fuse(given, prior, target_prior=target, present=present, return_conflict=True)
    assert np.array_equal(np.isneginf(fused), np.isneginf(expected))
    assert np.isneginf(fused[25:40, 4]).sum() == present[25:40, 1].sum() > 0
    np.testing.assert_allclose(fused, expected, atol=1e-5)
    assert not conflict.any()


def test_the_result_may_take_the_place_of_an_input():
    rng = np.random.default_rng(3)
    z, kappa = rng.normal(size=(ROWS, 2, CLASSES)), rng.normal(size=(ROWS, CLASSES))
    z[5, 0, 3] = 200.0  # a sum too large for the first way: the inputs are read again
    expected = log_softmax(z.sum(axis=1) + kappa, axis=-1)
    np.testing.assert_allclose(fuse(z, log_kappa=kappa.copy(), out=np.empty_like(kappa)), expected, atol=1e-12)
    fuse(z, log_kappa=kappa, out=kappa)
    np.testing.assert_allclose(kappa, expected, atol=1e-12)
    expected, opinions = log_softmax(z[:, 0], axis=-1), z[:, :1].copy()
    fuse(opinions, out=opinions[:, 0])
    np.testing.assert_allclose(opinions[:, 0], expected, atol=1e-12)
