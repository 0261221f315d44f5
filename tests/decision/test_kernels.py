"""The GPU kernel gives what the reference gives. Most of this needs a GPU, and is skipped where there is none."""

import math

import numpy as np
import pytest
import torch

from consilience.decision import kernels
from consilience.decision.opinions import read_opinions
from consilience.decision.theorem import fuse
from consilience.errors import InputError

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU, and there is none here")
SHAPES = [(1, 1, 2), (7, 3, 10), (300, 4, 10), (65, 2, 100), (33, 50, 37), (9, 5, 1000), (3, 4, 5000)]

OPTIONS = [
    set(),
    {"present", "prior"},
    {"weights", "kappa"},
    {"present", "weights", "kappa", "target", "priors"},
]


def make(rows, experts, classes, dtype, seed=0):
    """Opinions with everything that can happen: excluded classes, absent experts with NaN, contradictions."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, experts, classes)) * 3 + rng.normal(size=(rows, experts, 1)) * 50
    logits[rng.random(logits.shape) < 0.02] = -math.inf
    present = rng.random((rows, experts)) < 0.7
    weights = rng.normal(size=(rows, experts)) * (rng.random((rows, experts)) < 0.9)
    priors = rng.dirichlet(np.ones(classes), size=experts)
    priors[0, 0] = 0
    target = rng.dirichlet(np.ones(classes))
    log_kappa = rng.normal(size=(rows, classes))
    logits[0, 0] = -math.inf
    present[0], weights[0] = True, 1
    logits[~present] = math.nan
    tensors = (torch.tensor(one) for one in (logits, weights, log_kappa))
    return (
        [one.to("cuda", dtype) for one in tensors],
        torch.tensor(present, device="cuda"),
        priors / priors.sum(1, keepdims=True),
        target,
    )


def run(monkeypatch, switch, tensors, present, priors, target, options, dtype):
    monkeypatch.setenv("CONSILIENCE_TRITON", switch)
    logits, weights, log_kappa = (one.clone().requires_grad_() for one in tensors)
    given = {"present": present} if "present" in options else {}
    logits_in = logits if "present" in options else torch.where(present[..., None], logits, 0.5)
    given |= {"weights": weights} if "weights" in options else {}
    given |= {"log_kappa": log_kappa} if "kappa" in options else {}
    given |= {"target_prior": target} if "target" in options else {}
    prior = priors if "priors" in options else priors[-1] if "prior" in options else None
    answer, conflict = fuse(logits_in, prior, return_conflict=True, **given)
    torch.manual_seed(0)
    grad = torch.randn(answer.shape, device="cuda", dtype=torch.float64).to(dtype)
    used = [logits, *([weights] if "weights" in options else []), *([log_kappa] if "kappa" in options else [])]
    grads = torch.autograd.grad(answer, used, grad)
    with torch.no_grad():
        quiet = fuse(logits_in, prior, **given)
    return answer, conflict, quiet, *grads


@gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernel_and_reference_agree(monkeypatch, shape, dtype):
    for options in OPTIONS:
        case = make(*shape, dtype)
        ours = run(monkeypatch, "1", *case, options, dtype)
        reference = run(monkeypatch, "0", *case, options, dtype)
        tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 3e-2}[dtype]
        for one, other in zip(ours, reference):
            assert one.dtype == other.dtype
            assert not one.isnan().any()
            assert torch.equal(one.isneginf(), other.isneginf()), options
            # A weight's gradient is a sum over classes of both signs: small against its terms.
            scale = 1 + float(other.double().nan_to_num(neginf=0).abs().max())
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * scale)


@gpu
def test_kernel_is_what_runs(monkeypatch):
    called = []
    original = kernels.fuse_rows
    monkeypatch.setattr(kernels, "fuse_rows", lambda *given, **named: called.append(1) or original(*given, **named))
    logits = torch.randn(5, 2, 3, device="cuda")
    fuse(logits)
    assert called == [1]
    fuse(logits, reliability=torch.tensor([0.5, 1.0]))
    assert called == [1]


@gpu
def test_broken_logits_are_named():
    logits = torch.randn(5, 2, 3, device="cuda")
    logits[3, 1, 0] = math.nan
    with pytest.raises(InputError, match=r"opinions of expert 1 hold NaN or \+inf \(row 3\)"):
        fuse(logits)


@gpu
def test_extreme_logits_and_out():
    logits = torch.tensor([[[1e30, -1e30, 0.0], [1e30, 1e30, -1e30]], [[3e38, -3e38, 3e38], [3e38, 3e38, -3e38]]])
    out = torch.full((2, 3), 7.0, device="cuda")
    assert fuse(logits.cuda(), out=out) is out
    torch.testing.assert_close(out.cpu(), fuse(logits))


def test_the_cpu_and_the_switch_keep_the_kernel_out(monkeypatch):
    assert not kernels.serves(read_opinions(np.zeros((2, 3, 4))))
    monkeypatch.setenv("CONSILIENCE_TRITON", "0")
    assert not kernels.serves(read_opinions(torch.zeros(2, 3, 4)))


@pytest.mark.parametrize("shape", [*SHAPES, (10, 3, 32768)], ids=str)
def test_a_program_covers_every_class_and_fits(shape):
    padded = kernels._power_of_two(shape[2])
    step, height, warps = kernels._tile(shape[1], padded)
    assert shape[2] <= padded < 2 * shape[2]
    assert step.bit_count() == height.bit_count() == warps.bit_count() == 1
    assert step * height * padded <= max(kernels.TILE, padded)
    assert step < 2 * shape[1]
