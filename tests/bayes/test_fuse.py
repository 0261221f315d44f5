"""`fuse` against closed forms and sums by hand, in every corner the theorem and its remarks have."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import log_softmax, logsumexp, softmax

import consilience as cs
from consilience.bayes import cpu_fuse as blocks
from consilience.bayes.fuse import fuse
from consilience.core.errors import InputError, UnknownNameError
from consilience.data import load_data

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.tuples(st.integers(0, 12), st.integers(1, 5), st.integers(2, 6))


def by_hand(z, prior, target, present, weights, rho, kappa):
    """One row, one class, one expert at a time, in probabilities where that is possible."""
    rows, experts, classes = z.shape
    answer, conflict = np.full((rows, classes), -np.inf), np.zeros(rows, bool)
    for row in range(rows):
        scores = []
        heard = sum(present[row, j] and weights[row, j] != 0 and rho[row, j] != 0 for j in range(experts))
        for c in range(classes):
            score = math.log(target[c]) if target[c] > 0 else -math.inf
            score += kappa[row, c] if heard > 1 else 0.0
            for j in range(experts):
                w, r = weights[row, j], rho[row, j]
                if not present[row, j] or w == 0 or r == 0:
                    continue
                p = softmax(z[row, j])[c] if np.isfinite(z[row, j]).any() else 0.0
                mixed = r * p + (1 - r) * prior[j, c]
                if prior[j, c] == 0 or mixed == 0:
                    score = -math.inf
                elif r == 1:  # the ratio of softmaxes underflows where the logarithm does not
                    score += w * (log_softmax(z[row, j])[c] - math.log(prior[j, c]))
                else:
                    score += w * math.log(mixed / prior[j, c])
            scores.append(score)
        conflict[row] = np.isneginf(scores).all()
        with np.errstate(divide="ignore"):
            scores = np.log(target) if conflict[row] else np.array(scores)
        answer[row] = scores - logsumexp(scores)
    return answer, conflict


def draw(rng, rows, experts, classes, holes=0.0):
    """Random arguments; with holes, also −inf logits, priors of zero, weights of zero and certain reliabilities."""
    z = rng.normal(size=(rows, experts, classes)) * 4
    prior, target = rng.dirichlet(np.ones(classes), size=experts), rng.dirichlet(np.ones(classes))
    weights, rho = rng.normal(1, 1, size=(rows, experts)), rng.random((rows, experts))
    kappa = rng.normal(size=(rows, classes))
    present = rng.random((rows, experts)) < 0.7
    if holes:
        z[rng.random(z.shape) < holes] = -np.inf
        prior[:, 0] *= rng.random(experts) > holes
        target[-1] *= rng.random() > holes
        weights[rng.random(weights.shape) < holes] = 0
        rho[rng.random(rho.shape) < holes] = 0
        rho[rng.random(rho.shape) < holes] = 1
        kappa[rng.random(kappa.shape) < holes] = -np.inf
    return z, prior / prior.sum(-1, keepdims=True), target / target.sum(), present, weights, rho, kappa


@given(SEEDS, SIZES, st.sampled_from([0.0, 0.05, 0.3]), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_fuse_is_the_sum_by_hand(seed, size, holes, weighted, unreliable, differentiable):
    z, prior, target, present, weights, rho, kappa = draw(np.random.default_rng(seed), *size, holes)
    weights, rho = weights if weighted else np.ones_like(weights), rho if unreliable else np.ones_like(rho)
    expected, expected_conflict = by_hand(z, prior, target, present, weights, rho, kappa)
    opinions = torch.tensor(np.where(present[..., None], z, np.nan), requires_grad=differentiable)
    answer, conflict = fuse(
        opinions,
        prior,
        target_prior=target,
        present=present,
        weights=weights if weighted else None,
        reliability=rho if unreliable else None,
        log_kappa=kappa,
        return_conflict=True,
    )
    assert answer.requires_grad == differentiable
    np.testing.assert_allclose(answer.detach().numpy(), expected, rtol=1e-9, atol=1e-9)
    assert conflict.tolist() == expected_conflict.tolist()


@pytest.mark.parametrize("dependence", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", range(2, 7))
def test_with_the_true_kappa_the_posterior_is_exact(n, dependence):
    data = load_data(
        "gaussians", n=200, n_modalities=n, n_classes=4, d=3, dependence=dependence, prior=[0.4, 0.3, 0.2, 0.1]
    )
    truth, rng = data.extra["truth"], np.random.default_rng(n)
    for present in (np.ones((200, n), bool), rng.random((200, n)) < 0.5):
        seen = data.samples.replaced({}, present=present)
        fused = fuse(truth.opinions(seen), truth.prior, present=present, log_kappa=truth.log_kappa(seen))
        np.testing.assert_allclose(fused, truth.log_posterior(seen), rtol=0, atol=1e-10)
        np.testing.assert_allclose(np.exp(fused), np.exp(truth.log_posterior(seen)), rtol=0, atol=1e-12)
    if dependence:  # the check can fail: without κ the posterior is another
        without = fuse(truth.opinions(data.samples), truth.prior)
        assert np.abs(without - truth.log_posterior(data.samples)).max() > 0.1


def test_label_shift_by_bayes_rule():
    # Two experts with different training priors, and a third population: likelihoods known, everything by Bayes' rule.
    rng = np.random.default_rng(0)
    likelihood = rng.random((2, 50, 3))  # p(x_j | c)
    priors, target = rng.dirichlet(np.ones(3), size=2), rng.dirichlet(np.ones(3))
    opinions = likelihood * priors[:, None]
    expected = likelihood.prod(axis=0) * target
    fused = fuse({"a": np.log(opinions[0]), "b": np.log(opinions[1])}, priors, target_prior=target)
    np.testing.assert_allclose(np.exp(fused), expected / expected.sum(1, keepdims=True), atol=1e-12)


@given(SEEDS, SIZES)
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_experts_does_not_matter(seed, size):
    rng = np.random.default_rng(seed)
    z, prior, target, present, weights, rho, kappa = draw(rng, *size, 0.1)
    order = rng.permutation(size[1])
    named = {"target_prior": target, "log_kappa": kappa, "return_conflict": True}
    one = fuse(z, prior, present=present, weights=weights, reliability=rho, **named)
    other = fuse(
        z[:, order],
        prior[order],
        present=present[:, order],
        weights=weights[:, order],
        reliability=rho[:, order],
        **named,
    )
    np.testing.assert_allclose(one[0], other[0], rtol=1e-9, atol=1e-9)
    assert np.array_equal(one[1], other[1])


@given(SEEDS, st.sampled_from(["float64", "float32"]), st.floats(-1e6, 1e6), st.booleans())
@example(0, "float32", 1e6, False)
@settings(max_examples=60, deadline=None)
def test_offsets_of_an_experts_logits_cancel(seed, dtype, offset, differentiable):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(20, 3, 5)).astype(dtype)
    # Numbers that carry the offset without rounding, so that only the fusion could lose digits.
    z = np.round(z * 16) / 16
    offsets = np.round(rng.choice([-1, 1], size=(20, 3, 1)) * offset).astype(dtype)
    moved = torch.tensor(z + offsets, requires_grad=differentiable)
    assert np.array_equal((z + offsets) - offsets, z)
    np.testing.assert_allclose(fuse(moved).detach(), fuse(z), atol=1e-12 if dtype == "float64" else 1e-5)


@given(SEEDS, SIZES, st.sampled_from([0.0, 0.1]))
@settings(max_examples=60, deadline=None)
def test_masking_an_expert_is_leaving_it_out(seed, size, holes):
    rng = np.random.default_rng(seed)
    z, prior, target, present, weights, rho, kappa = draw(rng, *size, holes)
    kept = rng.random(size[1]) < 0.5
    masked = fuse(
        np.where(kept[:, None], z, np.nan),
        prior,
        target_prior=target,
        present=np.broadcast_to(kept, present.shape),
        weights=np.where(kept, weights, np.nan),
        reliability=np.where(kept, rho, np.nan),
        log_kappa=kappa,
    )
    if kept.any():
        named = {"weights": weights[:, kept], "reliability": rho[:, kept]}
        dropped = fuse(z[:, kept], prior[kept], target_prior=target, log_kappa=kappa, **named)
    else:
        dropped = fuse(np.zeros((len(z), 1, size[2])), target_prior=target, log_kappa=kappa)
    np.testing.assert_allclose(masked, dropped, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_arrays_give_arrays_and_tensors_tensors_with_the_same_numbers(dtype):
    z, prior, target, present, _, rho, kappa = draw(np.random.default_rng(0), 30, 3, 4, 0.05)
    z = z.astype(dtype)
    for named in ({}, {"present": present}, {"reliability": rho, "log_kappa": kappa}):
        array = fuse(z, prior, target_prior=target, **named)
        tensor = fuse(torch.tensor(z), prior, target_prior=target, **{k: torch.tensor(v) for k, v in named.items()})
        assert isinstance(array, np.ndarray)
        assert isinstance(tensor, torch.Tensor)
        assert str(array.dtype) == dtype == str(tensor.dtype).removeprefix("torch.")
        assert np.array_equal(array, tensor.numpy())


def test_low_precision_is_summed_in_32_bits():
    z = torch.randn(2000, 50, 100, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    fused = fuse(z)
    assert fused.dtype == torch.bfloat16
    exact = fuse(z.to(torch.float64))
    torch.testing.assert_close(fused.to(torch.float64), exact, rtol=2**-8, atol=1e-6)  # the answer's own rounding


@pytest.mark.parametrize("shape", [(3, 4), (7, 3, 4), (2, 5, 3, 4), (0, 3, 4), (2, 0, 3, 4)])
def test_any_leading_dimensions(shape):
    z = np.random.default_rng(0).normal(size=shape)
    present = np.random.default_rng(1).random(shape[:-1]) < 0.6
    fused, conflict = fuse(z, present=present, return_conflict=True)
    assert fused.shape == (*shape[:-2], shape[-1])
    assert conflict.shape == shape[:-2]
    flat = fuse(z.reshape(-1, *shape[-2:]), present=present.reshape(-1, shape[-2]))
    np.testing.assert_allclose(fused.reshape(-1, shape[-1]), flat)


def test_a_list_of_arrays_is_refused_rather_than_misread():
    with pytest.raises(InputError, match=r"list of arrays.*mapping name"):
        fuse([np.zeros((5, 3)), np.zeros((5, 3))])


def test_mappings_and_stacked_arrays_agree():
    z, prior, _, present, weights, rho, _ = draw(np.random.default_rng(0), 20, 3, 4)
    names = ("image", "audio", "text")
    columns = {name: z[:, number] for number, name in enumerate(names)}
    stacked = fuse(z, prior, present=present, weights=weights, reliability=rho)
    by_name = fuse(
        columns,
        {name: prior[number] for number, name in reversed(list(enumerate(names)))},
        present={name: present[:, number] for number, name in enumerate(names)},
        weights={name: weights[:, number] for number, name in enumerate(names)},
        reliability={name: rho[:, number] for number, name in enumerate(names)},
    )
    np.testing.assert_allclose(stacked, by_name, atol=1e-12)
    some = fuse(columns, weights={"audio": 0.5}, present={"text": False})
    np.testing.assert_allclose(some, fuse(z, weights=[1, 0.5, 1], present=[True, True, False]), atol=1e-12)


def test_tables_name_their_classes():
    a = pd.DataFrame({"cat": [0.1, 0.2], "dog": [0.9, 0.8]})
    fused = fuse({"a": a, "b": a}, from_probabilities=True)
    np.testing.assert_allclose(fused, fuse({"a": np.log(a), "b": np.log(a)}))
    with pytest.raises(
        InputError, match=r"same classes in the same order: 'a' has \['cat', 'dog'\], 'b' has \['dog', 'cat'\]"
    ):
        fuse({"a": a, "b": a[["dog", "cat"]]})


def test_remark_1_an_impossible_class_has_posterior_exactly_zero():
    z = np.array([[1.0, -np.inf, 2.0], [0.5, 3.0, 1.0]])
    assert np.exp(fuse(z))[1] == 0
    fused = fuse(np.ones((2, 3)), [0.5, 0.5, 0.0])
    assert np.isneginf(fused[2])
    np.testing.assert_allclose(np.exp(fused), [0.5, 0.5, 0.0])
    assert np.isneginf(fuse(np.ones((2, 3)), target_prior=[0.5, 0.5, 0.0])[2])
    assert np.isneginf(fuse(np.ones((2, 3)), log_kappa=[0.0, 0.0, -np.inf])[2])
    only_for_b = {"a": [0.2, 0.2, 0.6], "b": [0.5, 0.5, 0.0]}
    two = {"a": np.zeros((2, 3)), "b": np.zeros((2, 3))}
    fused = fuse(two, only_for_b, present={"b": [True, False]}, target_prior=[0.2, 0.2, 0.6])
    assert np.isneginf(fused[0, 2])
    np.testing.assert_allclose(np.exp(fused[1]), [1 / 3, 1 / 3, 1 / 3])
    against = fuse(z, weights=[-1.0, 1.0])
    assert np.isneginf(against[1])  # impossible stays impossible, whatever the sign of the weight
    assert np.isfinite(fuse(z, weights=[0.0, 1.0])).all()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_where_all_is_impossible_the_target_prior_answers_and_the_conflict_is_told(requires_grad):
    z = torch.tensor([[[0.0, -math.inf], [-math.inf, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[-math.inf] * 2, [0.0, 1.0]]])
    z.requires_grad_(requires_grad)
    fused, conflict = fuse(z, [0.5, 0.5], target_prior=[0.3, 0.7], return_conflict=True)
    assert conflict.tolist() == [True, False, True]
    np.testing.assert_allclose(fused[[0, 2]].detach().exp(), [[0.3, 0.7]] * 2, atol=1e-7)
    if requires_grad:
        fused.sum().backward()
        assert z.grad.isfinite().all()
        assert not z.grad[[0, 2]].any()


def test_all_missing_gives_the_target_prior_without_conflict():
    z = np.full((4, 3, 2), np.nan)
    for named in ({"present": np.zeros((4, 3))}, {"weights": np.zeros(3)}, {"reliability": np.zeros(3)}):
        fused, conflict = fuse(z, [0.6, 0.4], target_prior=[0.2, 0.8], return_conflict=True, **named)
        np.testing.assert_allclose(np.exp(fused), [[0.2, 0.8]] * 4)
        assert not conflict.any()
    shared = fuse(z, [0.6, 0.4], present=np.zeros((4, 3)))
    np.testing.assert_allclose(np.exp(shared), [[0.6, 0.4]] * 4)
    each = fuse(z, [[0.6, 0.4], [0.2, 0.8], [0.1, 0.9]], present=np.zeros((4, 3)))
    np.testing.assert_allclose(np.exp(each), [[0.3, 0.7]] * 4)  # the mean of their priors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_extreme_logits_stay_exact(dtype, requires_grad):
    z = torch.tensor(
        [
            [[1e30, 1e30 / 2, -1e30], [0.0, 5.0, 7.0]],
            [[1e30, 1e30, -1e30], [-1e30, -1e30, 1e30]],
            [[1e30, 1e30, 1e30], [-1e30, -1e30, -1e30]],
            [[0.0, -1e30, 1.0], [1.0, 1.0, 2.0]],
        ],
        dtype=dtype,
        requires_grad=requires_grad,
    )
    fused = fuse(z)
    assert not fused.isnan().any()
    p = fused.exp().detach()
    np.testing.assert_allclose(p[0], [1, 0, 0])
    np.testing.assert_allclose(p[2], [1 / 3] * 3, rtol=1e-6)
    np.testing.assert_allclose(p[3], [1 / (1 + math.e**2), 0, math.e**2 / (1 + math.e**2)], rtol=1e-6)
    if requires_grad:
        fused.exp().sum().backward()
        assert z.grad.isfinite().all()


@given(SEEDS, st.sampled_from([1e30, 3e38]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_nothing_becomes_nan_at_the_end_of_the_numbers(seed, size, requires_grad):
    rng = np.random.default_rng(seed)
    z = torch.tensor(rng.choice([-size, 0, 1, size], size=(30, 50, 4)).astype(np.float32), requires_grad=requires_grad)
    weights = torch.tensor(rng.normal(size=50), dtype=torch.float32, requires_grad=requires_grad)
    fused = fuse(z, weights=weights)
    assert not fused.isnan().any()
    np.testing.assert_allclose(fused.detach().exp().sum(-1), np.ones(30), rtol=1e-5)


def test_fifty_experts():
    z, prior, *_ = draw(np.random.default_rng(0), 100, 50, 10)
    exact = log_softmax(z.sum(1) - 49 * np.log(prior[0]), axis=1)
    np.testing.assert_allclose(fuse(z, prior[0]), exact, atol=1e-11)
    single = fuse(z.astype(np.float32), prior[0])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-5, atol=1e-3)


def test_weights_multiply_the_evidence_and_not_the_prior():
    z, prior = np.random.default_rng(0).normal(size=(20, 1, 3)), np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(fuse(z, prior, weights=[1.0]), log_softmax(z[:, 0], axis=1))
    np.testing.assert_allclose(fuse(z, prior, weights=[0.0]), [np.log(prior)] * 20)
    halved = log_softmax(0.5 * (z[:, 0] - np.log(prior)) + np.log(prior), axis=1)
    np.testing.assert_allclose(fuse(z, prior, weights=[0.5]), halved)


def test_reliability_one_changes_nothing_and_zero_is_missing():
    z, prior, target, present, *_ = draw(np.random.default_rng(0), 40, 3, 4, 0.1)
    plain = fuse(z, prior, target_prior=target, present=present, return_conflict=True)
    sure = fuse(z, prior, target_prior=target, present=present, reliability=np.ones((40, 3)), return_conflict=True)
    np.testing.assert_allclose(plain[0], sure[0], rtol=1e-12, atol=1e-12)
    assert np.array_equal(plain[1], sure[1])
    np.testing.assert_allclose(
        fuse(z, prior, target_prior=target, reliability=present.astype(float)),
        fuse(z, prior, target_prior=target, present=present),
        rtol=1e-12,
        atol=1e-12,
    )


def test_reliability_marginalises_the_hidden_flags():
    # Each witness is sound with ρ or says something independent of the class: sum over all 2^N cases.
    rng = np.random.default_rng(0)
    p, prior, rho = rng.dirichlet(np.ones(3), size=4), rng.dirichlet(np.ones(3)), rng.random(4)
    total = np.zeros(3)
    for flags in np.ndindex(*[2] * 4):
        sound = np.array(flags, bool)
        chance = np.where(sound, rho, 1 - rho).prod()
        total += chance * prior * (p[sound] / prior).prod(axis=0)
    np.testing.assert_allclose(np.exp(fuse(np.log(p), prior, reliability=rho)), total / total.sum(), rtol=1e-12)


def test_a_loud_broken_witness_is_bounded():
    confident = np.array([[0.0, 1e30], [0.0, 1.0]])
    bounded = fuse(confident, reliability=[0.9, 1.0])
    expected = log_softmax(np.log([0.1 * 0.5, 0.9 + 0.1 * 0.5]) + log_softmax([0.0, 1.0]))
    np.testing.assert_allclose(bounded, expected, rtol=1e-12)


def test_probabilities():
    p = np.random.default_rng(0).dirichlet(np.ones(4), size=(30, 3))
    p[0, 0] = [0, 0.5, 0.5, 0]
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(fuse(p, from_probabilities=True), fuse(np.log(p)))
    assert np.isneginf(fuse(p, from_probabilities=True)[0, 0])
    opinions = torch.tensor(p, requires_grad=True)
    fuse(opinions, from_probabilities=True)[:, 1].sum().backward()
    assert opinions.grad.isfinite().all()
    assert opinions.grad.any()
    p[3, 1] = np.nan
    present = np.ones((30, 3), bool)
    present[3, 1] = False
    assert np.isfinite(fuse(p, present=present, from_probabilities=True)[1:]).all()
    rounded = torch.tensor(np.random.default_rng(1).dirichlet(np.ones(50), size=(30, 3))).to(torch.bfloat16)
    assert fuse(rounded, from_probabilities=True).isfinite().all()


def grad_case(seed, holes=0.0):
    z, prior, target, present, weights, rho, kappa = draw(np.random.default_rng(seed), 5, 3, 4, holes)
    tensors = [torch.tensor(values, requires_grad=True) for values in (z, weights, rho * 0.98 + 0.01, kappa)]
    return tensors, prior, target, present


@pytest.mark.parametrize("reliable", [False, True])
def test_gradients_against_finite_differences(reliable):
    tensors, prior, target, present = grad_case(0)

    def probabilities(z, weights, rho, kappa):
        rho = None if reliable else rho
        return fuse(z, prior, target_prior=target, present=present, weights=weights, reliability=rho, log_kappa=kappa)

    assert torch.autograd.gradcheck(probabilities, tensors)
    assert torch.autograd.gradgradcheck(probabilities, tensors)


def test_gradient_of_reliability_at_its_ends():
    z, prior = np.random.default_rng(0).normal(size=(6, 2, 3)), np.array([0.5, 0.3, 0.2])
    rho = torch.tensor([[0.0, 1.0]] * 6, dtype=torch.float64, requires_grad=True)
    fuse(torch.tensor(z), prior, reliability=rho)[:, 0].sum().backward()
    step = 1e-6
    for expert, sign in ((0, 1), (1, -1)):
        moved = rho.detach().clone()
        moved[:, expert] += sign * step
        slope = sign * (fuse(z, prior, reliability=moved)[:, 0] - fuse(z, prior, reliability=rho.detach())[:, 0]) / step
        np.testing.assert_allclose(rho.grad[:, expert], slope, rtol=1e-4, atol=1e-6)


@given(SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_gradients_are_finite_whatever_absent_slots_hold(seed, reliable):
    (z, weights, rho, kappa), prior, target, present = grad_case(seed, holes=0.1)
    there = torch.tensor(present)
    with torch.no_grad():
        for garbage in (math.nan, math.inf, -math.inf, 1e300):
            z[torch.rand(z.shape[:2]) < 0.5] = garbage
        z.copy_(torch.where(there[..., None], torch.randn_like(z), z))
        for values in (weights, rho):
            values[~there] = math.nan
    used = [z, weights, kappa] if reliable else [z, weights, rho, kappa]
    fused = fuse(
        z,
        prior,
        target_prior=target,
        present=there,
        weights=weights,
        reliability=None if reliable else rho,
        log_kappa=kappa,
    )
    assert not fused.isnan().any()
    fused.masked_fill(fused.isneginf(), 0).sum().backward()
    for values in used:
        assert values.grad.isfinite().all()
    assert not z.grad[~there].any()
    assert not weights.grad[~there].any()


def test_without_gradients_nothing_is_followed():
    (z, weights, rho, kappa), prior, _, present = grad_case(0)
    for named in ({"weights": weights}, {"reliability": rho, "log_kappa": kappa}):
        with torch.no_grad():
            quiet = fuse(z, prior, present=present, **named)
        assert not quiet.requires_grad
        torch.testing.assert_close(quiet, fuse(z, prior, present=present, **named).detach())


def test_gradient_reaches_a_weight_of_zero():
    z = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    fuse(z, weights=weights)[:, 0].sum().backward()
    moved = (fuse(z, weights=[1e-6, 1.0]) - fuse(z, weights=[0.0, 1.0]))[:, 0].sum() / 1e-6
    assert weights.grad[0].item() == pytest.approx(moved.item(), rel=1e-4)


@pytest.mark.parametrize("bad", ["plain", "prior", "masks", "nan", "offset", "impossible", "conflict"])
def test_blocks_and_reference_agree(monkeypatch, bad):
    # The same rows through one-row blocks, large blocks, and the differentiable reference.
    z, prior, target, present, _, _, kappa = draw(np.random.default_rng(0), 64, 3, 7)
    named = {}
    if bad != "plain":
        named |= {"prior": prior, "target_prior": target, "log_kappa": kappa}
    if bad in ("masks", "nan"):
        named |= {"present": present}
    if bad == "nan":
        z[~present] = np.nan
    if bad == "offset":
        z[20:] += np.random.default_rng(1).choice([-1e5, 1e5], size=(44, 3, 1))
    if bad == "impossible":
        z[10:30, 1, 2] = -np.inf
    if bad == "conflict":
        z[5, 0] = -np.inf
    reference, conflicts = fuse(torch.tensor(z, requires_grad=True), return_conflict=True, **named)
    for size in (1, 7 * 8 * 10, 2**21):
        monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
        fused, conflict = fuse(z, return_conflict=True, **named)
        np.testing.assert_allclose(fused, reference.detach(), rtol=1e-9, atol=1e-9)
        assert np.array_equal(conflict, conflicts)


def test_the_common_case_never_needs_the_reference(monkeypatch):
    monkeypatch.setattr(blocks, "expert_evidence", None)
    z, prior, target, present, weights, _, kappa = draw(np.random.default_rng(0), 50, 3, 7)
    fuse(z, prior, target_prior=target, log_kappa=kappa, weights=weights)
    z[~present] = np.nan
    fuse(z, prior, present=present)
    z[0, 0, 0] = -np.inf
    fuse(z[:, :1], prior[:1], present=present[:, :1])


def test_out_takes_the_result():
    z = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    out = np.full((5, 4), np.nan, np.float32)
    assert fuse(z, out=out) is out
    assert np.array_equal(out, fuse(z))
    tensor = torch.full((5, 4), math.nan)
    assert fuse(torch.tensor(z), out=tensor) is tensor
    assert np.array_equal(tensor, out)
    for wrong in (tensor, out[:4], out.astype(float), np.full((4, 5), 0, np.float32).T):
        with pytest.raises(InputError, match="out must"):
            fuse(z, out=wrong)
    with pytest.raises(InputError, match="gradient"):
        fuse(torch.tensor(z, requires_grad=True), out=tensor)


def test_inputs_are_left_alone_and_read_only_arrays_do():
    z, prior, _, present, *_ = draw(np.random.default_rng(0), 20, 3, 4, 0.1)
    z[:10] += 1e4
    before = z.copy()
    z.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fuse(z, prior, present=present)
        reversed_order = fuse(z[::-1], prior, present=present[::-1])
    assert np.array_equal(z, before)
    np.testing.assert_allclose(reversed_order[::-1], fuse(z, prior, present=present))
    assert fuse([[1, 2], [3, 4]]).dtype == np.float64


@pytest.mark.parametrize(
    ("opinions", "named", "message"),
    [
        (np.zeros(3), {}, r"shape \[..., expert, class\] with at least one expert, got \[3\]"),
        ({}, {}, "at least one expert"),
        (np.zeros((4, 1)), {}, r"at least two classes .* the pair \(0, z\)"),
        (np.array([["a", "b"]]), {}, "must be numbers"),
        ({"a": np.zeros((2, 3)), "b": np.zeros((2, 4))}, {}, r"'b' has \[2, 4\]: they differ in their classes"),
        ({"a": np.zeros((2, 3)), "b": np.zeros((1, 3))}, {}, "they differ in their rows"),
        ({"a": np.zeros(3), "b": torch.zeros(3)}, {}, r"all tensors or all arrays; tensors: \['b'\]"),
        (np.zeros((2, 3)), {"prior": [0.5, 0.5]}, "prior must be one probability for each of 3 classes"),
        (np.zeros((2, 3)), {"prior": [0.5, 0.7, -0.2]}, r"prior must be finite and ≥ 0: \[ 0.5,  0.7, -0.2\]"),
        (np.zeros((2, 3)), {"prior": [0.5, np.nan, 0.5]}, "prior must be finite"),
        (np.zeros((2, 3)), {"prior": [1, 1, 1]}, "prior must sum to one, it sums to 3"),
        (np.zeros((2, 3)), {"prior": np.full((3, 3), 1 / 3)}, r"\[expert, class\] = \[2, 3\], got \[3, 3\]"),
        (np.zeros((2, 3)), {"prior": {"a": [1, 0, 0]}}, "the opinions are one array"),
        (np.zeros((2, 3)), {"target_prior": [0.1, 0.2, 0.3]}, "target_prior must sum to one"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, {"prior": {"a": [0.5, 0.5]}}, r"lacks \['b'\]"),
        ({"a": np.zeros(2)}, {"present": {"a": 0.5}}, "present must be booleans, got values such as 0.5"),
        (np.zeros((5, 2, 3)), {"present": np.ones((4, 2))}, r"present must have shape \[..., expert\] = \[5, 2\]"),
        (np.zeros((5, 2, 3)), {"weights": {"a": 1}}, "the opinions are one array"),
        (np.zeros((5, 2, 3)), {"weights": [1, np.nan]}, r"weights must be finite numbers: expert 1 has nan \(rows 0"),
        (np.zeros((1, 2, 3)), {"reliability": [1, 1.5]}, r"from 0 to 1: expert 1 has 1.5 \(row 0\)"),
        (np.zeros((1, 2, 3)), {"reliability": [-0.1, 0.5]}, "expert 0 has -0.1"),
        (np.zeros((5, 2, 3)), {"log_kappa": np.zeros((5, 2))}, r"log_kappa must have shape \[..., class\] = \[5, 3\]"),
        (np.zeros((2, 2, 3)), {"log_kappa": [[0, 0, 0], [0, np.nan, 0]]}, r"log_kappa holds NaN or \+inf \(row 1\)"),
    ],
)
def test_bad_input_is_named(opinions, named, message):
    with pytest.raises(InputError, match=message):
        fuse(opinions, **named)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_broken_opinions_are_named(requires_grad):
    z = torch.zeros(6, 3)
    broken = z.clone()
    broken[2, 1], broken[4, 0] = math.nan, math.inf
    with pytest.raises(InputError, match=r"opinions of expert 'audio' hold NaN or \+inf \(rows 2, 4\); .*present"):
        fuse({"image": z, "audio": broken.requires_grad_(requires_grad)})


def test_probabilities_that_are_none_are_named():
    good = np.full((4, 2), 0.5)
    for wrong, what in (([0.5, 0.6], "sums to 1.1"), ([1.5, -0.5], "least is -0.5"), ([np.nan, 1], "nan")):
        bad = good.copy()
        bad[2] = wrong
        with pytest.raises(InputError, match=rf"probabilities of expert 'b' .* row 2 does not .*{what}.*Logits"):
            fuse({"a": good, "b": bad}, from_probabilities=True)


def test_unknown_experts_are_named_with_the_near_miss():
    two = {"image": np.zeros(2), "audio": np.zeros(2)}
    for argument in ("present", "weights", "reliability"):
        with pytest.raises(UnknownNameError, match=f"unknown expert 'imge': did you mean 'image'.*given in {argument}"):
            fuse(two, **{argument: {"imge": 1}})
    with pytest.raises(UnknownNameError, match="given in prior"):
        fuse(two, {"imge": [0.5, 0.5]})


@given(hnp.arrays(np.float64, (6, 2, 3), elements=st.floats(-50, 50)))
@settings(max_examples=50, deadline=None)
def test_the_answer_is_a_distribution(z):
    assert cs.fuse is fuse
    np.testing.assert_allclose(np.exp(fuse(z)).sum(-1), np.ones(6))


def test_where_nothing_has_to_be_waited_for_the_check_is_made_anyway():
    logits = np.random.default_rng(0).normal(size=(5, 2, 3))
    np.testing.assert_array_equal(fuse(logits, check=False), fuse(logits))
    logits[3, 1, 0] = np.nan
    for opinions in (logits, torch.tensor(logits, requires_grad=True)):
        with pytest.raises(InputError, match=r"opinions of expert 1 hold NaN or \+inf \(row 3\)"):
            fuse(opinions, check=False)


def test_infinite_against_a_negative_weight_is_refused():
    logits = np.zeros((2, 2, 3))
    logits[1, 0, 2] = np.inf
    with pytest.raises(InputError, match=r"opinions of expert 0 hold NaN or \+inf \(row 1\)"):
        fuse(logits, weights=[-1.0, 1.0])
    logits[1, 0, 2] = -np.inf  # a class that an expert rules out is ruled out at any weight but 0
    assert np.isneginf(fuse(logits, weights=[-1.0, 1.0])).tolist() == [[False] * 3, [False, False, True]]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_kappa_counts_only_where_two_experts_are_active(kind):
    opinions = np.log(np.array([[[0.7, 0.3], [0.4, 0.6]]] * 4))
    present = np.array([[False, False], [True, False], [False, True], [True, True]])
    opinions[~present] = np.nan
    kappa = np.array([[2.0, 0.0]] * 4)
    found = np.exp(np.asarray(fuse(kind(opinions), [0.5, 0.5], present=kind(present), log_kappa=kind(kappa))))
    np.testing.assert_allclose(found[:3], [[0.5, 0.5], [0.7, 0.3], [0.4, 0.6]])
    odds = 0.7 / 0.3 * 0.4 / 0.6 * np.exp(2)
    np.testing.assert_allclose(found[3, 0], odds / (1 + odds))
    for silent in ({"weights": kind(np.array([[1.0, 0.0]]))}, {"reliability": kind(np.array([[1.0, 0.0]]))}):
        alone = fuse(kind(opinions[3:]), [0.5, 0.5], log_kappa=kind(kappa[3:]), **silent)
        np.testing.assert_allclose(np.exp(np.asarray(alone)), [[0.7, 0.3]])
    one = fuse(kind(opinions[3:, :1]), [0.5, 0.5], log_kappa=kind(np.array([[-np.inf, 0.0]])))
    np.testing.assert_allclose(np.exp(np.asarray(one)), [[0.7, 0.3]])
