"""The GPU kernel gives what the reference gives. Most of this needs a GPU, and is skipped where there is none."""

import math

import numpy as np
import pytest
import torch

from consilience.bayes import gpu_fuse as kernels
from consilience.bayes.fuse import fuse
from consilience.bayes.opinion_inputs import read_opinions
from consilience.core.errors import InputError, UnsupportedError

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU, and there is none here")
SHAPES = [(1, 1, 2), (7, 3, 10), (300, 4, 10), (65, 2, 100), (33, 50, 37), (9, 5, 1000), (3, 4, 10_000)]

OPTIONS = [
    set(),
    {"present", "prior"},
    {"weights", "kappa"},
    {"present", "weights", "kappa", "target", "priors"},
]


def make(rows, experts, classes, kind, seed=0):
    """Logits as usual, or with everything that can happen: offsets, excluded classes, contradictions, priors of zero;
    absent experts hold NaN.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, experts, classes)) * 3
    present = rng.random((rows, experts)) < 0.7
    weights = rng.normal(size=(rows, experts))
    priors = rng.dirichlet(np.ones(classes), size=experts)
    if kind == "large offsets":
        logits += rng.normal(size=(rows, experts, 1)) * 300
    if kind == "excluded classes":
        logits[rng.random(logits.shape) < 0.02] = -math.inf
        weights *= rng.random((rows, experts)) < 0.9
        priors[0, 0] = 0
        logits[0, 0] = -math.inf
        present[0], weights[0] = True, 1
    target, log_kappa = rng.dirichlet(np.ones(classes)), rng.normal(size=(rows, classes))
    return logits, weights, log_kappa, present, priors / priors.sum(1, keepdims=True), target


def run(monkeypatch, switch, case, options, dtype, wide):
    """Answer, conflict, answers without gradients and waiting, gradients: in `wide`, from numbers of `dtype`."""
    monkeypatch.setenv("CONSILIENCE_TRITON", switch)
    *numbers, present, priors, target = case
    if "present" in options:
        numbers[0] = np.where(present[..., None], numbers[0], math.nan)
    tensors = [torch.tensor(values, device="cuda").to(dtype).to(wide).requires_grad_() for values in numbers]
    logits, weights, log_kappa = tensors
    given = {"present": torch.tensor(present, device="cuda")} if "present" in options else {}
    given |= {"weights": weights} if "weights" in options else {}
    given |= {"log_kappa": log_kappa} if "kappa" in options else {}
    given |= {"target_prior": target} if "target" in options else {}
    prior = priors if "priors" in options else priors[-1] if "prior" in options else None
    answer, conflict = fuse(logits, prior, return_conflict=True, **given)
    torch.manual_seed(0)
    grad = torch.randn(answer.shape, device="cuda", dtype=torch.float64).to(wide)
    used = [logits, *([weights] if "weights" in options else []), *([log_kappa] if "kappa" in options else [])]
    grads = torch.autograd.grad(answer, used, grad)
    with torch.no_grad():
        quiet = fuse(logits, prior, **given)
        queued, barred = fuse(logits, prior, return_conflict=True, check=False, **given)
    assert torch.equal(conflict, barred)
    return answer, conflict, quiet, queued, *grads


@gpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["usual", "large offsets", "excluded classes"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernel_and_reference_agree(monkeypatch, shape, kind, dtype):
    tolerance = {torch.float64: 1e-10, torch.float32: 3e-5, torch.bfloat16: 1e-2}[dtype]
    for options in OPTIONS:
        case = make(*shape, kind)
        ours = run(monkeypatch, "1", case, options, dtype, dtype)
        reference = run(monkeypatch, "0", case, options, dtype, torch.float64)
        for one, other in zip(ours, reference):
            assert not one.isnan().any()
            assert torch.equal(one.isneginf(), other.isneginf()), options
            # A weight's gradient is a sum over classes of both signs: small against its terms.
            scale = 1 + float(other.double().nan_to_num(neginf=0).abs().max())
            torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=tolerance * scale)


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
def test_usual_rows_need_no_second_look(monkeypatch):
    launched = []
    launch = kernels._launch
    monkeypatch.setattr(kernels, "_launch", lambda kernel, *given: launched.append(kernel) or launch(kernel, *given))
    logits = torch.randn(300, 4, 10, device="cuda")
    fuse(logits)
    assert launched == ["plain"]
    fuse(logits, check=False)
    assert launched == ["plain", "plain", "careful"]
    fuse(logits * 1000)
    assert launched[3:] == ["plain", "careful"]


@gpu
def test_without_a_check_nothing_is_waited_for():
    """A recording allows no waiting."""
    first, second = (torch.randn(300, 4, 10, device="cuda") for _ in range(2))
    second[7] *= 1000
    present = torch.rand(300, 4, device="cuda") < 0.7
    weights, log_kappa = torch.rand(300, 4, device="cuda"), torch.randn(300, 10, device="cuda")
    given = {"present": present, "weights": weights, "log_kappa": log_kappa}
    logits, out = first.clone(), torch.empty(300, 10, device="cuda")
    fuse(logits, out=out, check=False, **given)  # compiled, and the table of priors is there
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fuse(logits, out=out, check=False, **given)
    for values in (second, first):
        logits.copy_(values)
        graph.replay()
        torch.testing.assert_close(out, fuse(values, **given))


@gpu
def test_a_recording_outlives_the_tables_of_other_priors():
    rng = np.random.default_rng(0)
    prior, *others = rng.dirichlet(np.ones(10), size=12)
    logits, out = torch.randn(300, 4, 10, device="cuda"), torch.empty(300, 10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(UnsupportedError, match="call fuse once with the same priors"), torch.cuda.graph(graph):
        fuse(logits, prior, out=out, check=False)
    expected = fuse(logits, prior, check=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fuse(logits, prior, out=out, check=False)
    for other in others:
        fuse(logits, other)
    rubbish = [torch.full((12, 10), math.nan, device="cuda") for _ in range(100)]
    graph.replay()
    torch.testing.assert_close(out, expected)
    del rubbish


@gpu
def test_few_programs_reconsider_many_rows(monkeypatch):
    logits = torch.randn(5000, 3, 10, device="cuda")
    logits[::3] *= 1000
    monkeypatch.setenv("CONSILIENCE_TRITON", "0")
    expected = fuse(logits)
    monkeypatch.setenv("CONSILIENCE_TRITON", "1")
    monkeypatch.setattr(kernels, "PROGRAMS", 1)
    for check in (True, False):
        torch.testing.assert_close(fuse(logits, check=check), expected, rtol=1e-5, atol=1e-3)


@gpu
def test_gradients_without_a_check():
    logits, weights = torch.randn(40, 3, 10, device="cuda"), torch.rand(40, 3, device="cuda")
    weights[::4, 1] = 0
    found = []
    for check in (True, False):
        given = [values.clone().requires_grad_() for values in (logits, weights)]
        answer = fuse(given[0], weights=given[1], check=check)
        found.append(torch.autograd.grad(answer[:, 0].sum(), given))
    for one, other in zip(*found):
        assert torch.equal(one, other)
    broken = logits.clone()
    broken[4, 0, 0] = math.nan
    broken.requires_grad_()
    answer, conflict = fuse(broken, weights=weights, check=False, return_conflict=True)
    gradient = torch.autograd.grad(answer[:, 0].sum(), broken)[0]
    assert gradient[4, 0].isnan().any()
    assert not gradient[4, 1].any()
    assert not gradient[[row for row in range(40) if row != 4]].isnan().any()
    assert not conflict.any()


@gpu
@pytest.mark.parametrize("check", [True, False])
def test_infinite_against_a_negative_weight_is_broken(check):
    logits = torch.zeros(2, 2, 3, device="cuda")
    logits[1, 0, 2] = math.inf
    weights = torch.tensor([[-1.0, 1.0]], device="cuda").expand(2, 2)
    if check:
        with pytest.raises(InputError, match=r"expert 0 hold NaN or \+inf \(row 1\)"):
            fuse(logits, weights=weights)
    else:
        assert fuse(logits, weights=weights, check=False).isnan().any(1).tolist() == [False, True]


@gpu
def test_without_a_check_broken_rows_are_nan():
    logits, weights = torch.randn(40, 3, 10, device="cuda"), torch.ones(40, 3, device="cuda")
    log_kappa, present = torch.zeros(40, 10, device="cuda"), torch.ones(40, 3, dtype=torch.bool, device="cuda")
    given = {"weights": weights, "log_kappa": log_kappa, "present": present}
    whole = fuse(logits, **given)
    logits[3, 1, 0], logits[5, 2, 4] = math.nan, math.inf
    weights[7, 0], weights[9, 1], weights[11, 1] = math.nan, math.inf, -math.inf
    log_kappa[13, 2], log_kappa[15, 3] = math.nan, math.inf
    logits[17, 0, 0], present[17, 0] = math.nan, False
    found = fuse(logits, **given, check=False)
    broken = torch.arange(3, 16, 2, device="cuda")
    assert found[broken].isnan().all()
    sound = [row for row in range(40) if row not in range(3, 18, 2)]
    torch.testing.assert_close(found[sound], whole[sound])
    assert not found[17].isnan().any()
    p = torch.softmax(logits.nan_to_num(), -1)
    p[2, 1, 1], p[4, 0, 0] = -0.1, math.nan
    assert fuse(p, from_probabilities=True, check=False).isnan().any(1).nonzero().flatten().tolist() == [2, 4]


@gpu
def test_broken_logits_are_named():
    logits = torch.randn(5, 2, 3, device="cuda")
    logits[3, 1, 0] = math.nan
    with pytest.raises(InputError, match=r"opinions of expert 1 hold NaN or \+inf \(row 3\)"):
        fuse(logits)


@gpu
def test_the_digits_of_classes_survive_what_an_expert_adds_to_all():
    # Numbers that carry the offsets without rounding, so that only the fusion could lose digits.
    rng = np.random.default_rng(0)
    logits = torch.tensor(np.round(rng.normal(size=(400, 3, 10)) * 16) / 16, dtype=torch.float32, device="cuda")
    for size in (1e1, 1e2, 1e3, 1e5):
        offsets = torch.tensor(np.round(rng.normal(size=(400, 3, 1)) * size), dtype=torch.float32, device="cuda")
        torch.testing.assert_close(fuse(logits + offsets), fuse(logits), rtol=0, atol=1e-5)


@gpu
def test_extreme_logits_and_out():
    logits = torch.tensor([[[1e30, -1e30, 0.0], [1e30, 1e30, -1e30]], [[3e38, -3e38, 3e38], [3e38, 3e38, -3e38]]])
    out = torch.full((2, 3), 7.0, device="cuda")
    assert fuse(logits.cuda(), out=out) is out
    torch.testing.assert_close(out.cpu(), fuse(logits))


def test_the_cpu_and_the_switch_keep_the_kernel_out(monkeypatch):
    assert not kernels.supports(read_opinions(np.zeros((2, 3, 4))))
    monkeypatch.setenv("CONSILIENCE_TRITON", "0")
    assert not kernels.supports(read_opinions(torch.zeros(2, 3, 4)))


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("shape", [*SHAPES, (10, 4, 3000), (10, 3, 10_000), (10, 3, 32768)], ids=str)
def test_a_program_covers_every_class_and_fits(shape, split, itemsize):
    _, experts, classes = shape
    tile = kernels._tile(experts, classes, itemsize, split=split)
    assert classes <= tile.main + tile.rest < 2 * classes
    for size in (tile.experts, tile.rows, tile.main, tile.warps, *([tile.rest] if tile.rest else [])):
        assert size.bit_count() == 1
    assert tile.experts < 2 * experts
    assert tile.experts * tile.rows * (tile.main + tile.rest) <= max(kernels.TILE, 2 * classes)
    # A multiprocessor's 65 536 registers.
    assert tile.warps * 32 * (tile.registers or 1) <= 2**16
    assert split or not tile.rest


def test_what_depends_on_the_class_alone():
    logits = torch.zeros(2, 3, 4)
    target = np.array([0.1, 0.2, 0.7, 0.0])
    each = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]])
    for prior in (each, each[:1]):
        table = kernels._tabulate(prior, target, logits).double().exp().numpy()
        everyone = target / np.broadcast_to(prior, each.shape).prod(0).clip(1e-9) * (prior > 0).all(0)
        np.testing.assert_allclose(table, np.stack([*prior, target, everyone]), rtol=1e-6)


def test_a_table_is_made_once():
    prior, target, logits = np.array([[0.2, 0.8]]), np.array([0.5, 0.5]), torch.zeros(2, 3, 2)
    table = kernels._tabulate(prior, target, logits)
    assert kernels._tabulate(prior.copy(), target.copy(), torch.ones(5, 3, 2)) is table
    before = table.clone()
    prior[0] = 0.4, 0.6  # the caller's, who may change it
    for others in (
        (prior, target, logits),
        (np.array([[0.2, 0.8]]), np.array([0.1, 0.9]), logits),
        (np.array([[0.2, 0.8]]), target, torch.zeros(2, 4, 2)),
        (np.array([[0.2, 0.8]] * 3), target, logits),
        (np.array([[0.2, 0.8]]), target, logits.double()),
    ):
        assert kernels._tabulate(*others) is not table
    assert torch.equal(table, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_table_made_for_inference_is_an_ordinary_tensor(dtype):
    with torch.inference_mode():
        table = kernels._tabulate(np.array([[0.3, 0.7]]), np.array([0.35, 0.65]), torch.zeros(2, 3, 2, dtype=dtype))
    assert not table.is_inference()


@gpu
def test_a_table_made_for_inference_serves_gradients():
    logits, prior = torch.randn(5, 2, 3, device="cuda"), [0.21, 0.32, 0.47]
    with torch.inference_mode():
        fuse(logits, prior)
    fuse(logits.clone().requires_grad_(), prior).sum().backward()
