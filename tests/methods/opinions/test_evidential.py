"""`tmc`, `etmc` and `ecml`: what they join, what they learn from, and how they take missing and extreme opinions."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, gammaln

from consilience.core.errors import InputError, UnknownNameError
from consilience.core.samples import Modality
from consilience.methods import Spec, Step
from consilience.methods.opinions.ecml import Ecml, conflict_of_views, evidence_share
from consilience.methods.opinions.etmc import Etmc
from consilience.methods.opinions.evidence import dempster
from consilience.methods.opinions.tmc import Tmc
from toy_batches import CLASSES, VECTORS, batch_of

EVERY = (Tmc, Etmc, Ecml)
MISSING = torch.tensor([[True, True], [True, False], [False, True], [False, False]])
few = settings(deadline=None, max_examples=25)


def made(cls, batch=None, **settings):
    torch.manual_seed(0)
    method = cls(Spec(VECTORS, CLASSES), **settings).eval()
    return method, method(batch_of(4, MISSING) if batch is None else batch)


def loss_by_hand(alpha, y, annealing):
    """The loss of one opinion `[class]` in its textbook form."""
    wrong = np.where(np.arange(len(alpha)) == y, 1.0, alpha)
    pull = ((wrong - 1) * (digamma(wrong) - digamma(wrong.sum()))).sum()
    divergence = gammaln(wrong.sum()) - gammaln(wrong).sum() - gammaln(len(wrong)) + pull
    return digamma(alpha.sum()) - digamma(alpha[y]) + annealing * divergence


@pytest.mark.parametrize("cls", EVERY)
def test_a_missing_modality_is_vacuous(cls):
    _, prediction = made(cls)
    assert (prediction.opinions[~MISSING] == 0).all()
    assert (prediction.weights[~MISSING] == 0).all()
    assert (prediction.weights[MISSING] > 0).all()
    assert (prediction.output[3] == 0).all()  # softmax of zeros: all classes alike


@pytest.mark.parametrize("cls", [Tmc, Ecml])
def test_a_modality_alone_speaks_for_itself(cls):
    _, prediction = made(cls)
    torch.testing.assert_close(prediction.output[1], prediction.opinions[1, 0])
    torch.testing.assert_close(prediction.output[2], prediction.opinions[2, 1])


def test_opinions_are_the_evidence_of_the_experts_logits():
    method, prediction = made(Tmc)
    logits = method.heads["image"](prediction.features["image"].pooled)
    alpha = torch.nn.functional.softplus(logits) + 1
    torch.testing.assert_close(prediction.opinions[:2, 0].exp(), alpha[:2])
    torch.testing.assert_close(prediction.weights[:2, 0], 1 - 3 / alpha[:2].sum(1))


def test_the_pseudo_view_of_etmc_is_one_more_opinion():
    method, prediction = made(Etmc)
    pseudo = prediction.extra["pseudo-view"]
    assert (pseudo[3] == 0).all()
    expected = dempster(torch.cat([prediction.opinions, pseudo[:, None]], dim=1))
    torch.testing.assert_close(prediction.output, expected)
    alpha = torch.nn.functional.softplus(method.head(prediction.joint)) + 1
    torch.testing.assert_close(pseudo[:3].exp(), alpha[:3])


def test_the_weights_of_ecml_are_those_of_the_probabilities():
    _, prediction = made(Ecml)
    mixed = torch.einsum("bm,bmc->bc", prediction.weights, prediction.opinions.softmax(-1))
    torch.testing.assert_close(prediction.output.softmax(-1)[:3], mixed[:3])
    torch.testing.assert_close(prediction.weights[:3].sum(1), torch.ones(3))


def test_the_weights_of_ecml_by_hand():
    alpha = torch.tensor([[[3.0, 2.0, 1.0], [1.0, 1.0, 1.0], [8.0, 2.0, 5.0]]])  # S = 6, 3, 15
    torch.testing.assert_close(
        evidence_share(alpha.log(), torch.ones(1, 3, dtype=torch.bool)), torch.tensor([[6, 3, 15]]) / 24
    )
    torch.testing.assert_close(
        evidence_share(alpha.log(), torch.tensor([[True, False, True]])), torch.tensor([[6, 0, 15]]) / 21
    )


@given(st.integers(0, 10_000), st.integers(1, 4))
@few
def test_conflict_by_loops_over_pairs(seed, views):
    random = np.random.default_rng(seed)
    alpha = 1 + random.exponential(4, size=(3, views, 3))
    present = random.random((3, views)) < 0.7
    got = conflict_of_views(torch.tensor(alpha).log(), torch.tensor(present))
    for row in range(3):
        p = alpha[row] / alpha[row].sum(1, keepdims=True)
        sure = 1 - 3 / alpha[row].sum(1)
        there = np.flatnonzero(present[row])
        pairs = [np.abs(p[a] - p[b]).sum() / 2 * sure[a] * sure[b] for a, b in combinations(there, 2)]
        assert got[row].item() == pytest.approx(len(there) * np.mean(pairs) if pairs else 0.0, abs=1e-9)


@pytest.mark.parametrize("cls", EVERY)
def test_the_objective_by_hand(cls):
    batch = batch_of(4, MISSING, weight=[1.0, 2.0, 0.5, 3.0])
    method, prediction = made(cls, batch, annealing=10, expert_loss=0.5)
    losses = {name: loss.item() for name, loss in method.objective(prediction, batch, Step(epoch=3)).items()}
    output, opinions = (np.exp(values.detach().double().numpy()) for values in (prediction.output, prediction.opinions))
    y, weight = batch.y.numpy(), batch.weight.numpy()
    fused = [loss_by_hand(output[row], y[row], 0.4) for row in range(4)]
    own = [sum(loss_by_hand(opinions[row, m], y[row], 0.4) for m in range(2) if MISSING[row, m]) for row in range(4)]
    assert losses.pop("task") == pytest.approx(np.average(fused, weights=weight), rel=1e-4)
    assert losses.pop("experts") == pytest.approx(0.5 * np.average(own, weights=weight), rel=1e-4)
    if cls is Etmc:
        pseudo = np.exp(prediction.extra["pseudo-view"].detach().double().numpy())
        alone = [loss_by_hand(pseudo[row], y[row], 0.4) for row in range(4)]
        assert losses.pop("pseudo-view") == pytest.approx(0.5 * np.average(alone, weights=weight), rel=1e-4)
    if cls is Ecml:
        conflict = conflict_of_views(prediction.opinions, batch.present).detach()
        assert losses.pop("conflict") == pytest.approx(np.average(conflict, weights=weight), rel=1e-4)
    assert not losses


def test_the_divergence_grows_over_the_annealing_epochs():
    batch = batch_of(8)
    method, prediction = made(Tmc, batch, annealing=4)
    at = [method.objective(prediction, batch, Step(epoch=epoch))["task"].item() for epoch in (0, 1, 3, 4, 50)]
    assert at[0] < at[1] < at[2] == at[3] == at[4]
    assert at[1] - at[0] == pytest.approx((at[2] - at[0]) / 3, rel=1e-4)


@pytest.mark.parametrize("cls", EVERY)
def test_without_their_losses_only_the_joined_opinion_counts(cls):
    batch = batch_of(4)
    off = {"expert_loss": 0, **({"conflict": 0} if cls is Ecml else {})}
    method, prediction = made(cls, batch, **off)
    assert list(method.objective(prediction, batch, Step())) == ["task"]


@pytest.mark.parametrize("cls", EVERY)
@pytest.mark.parametrize("evidence", ["softplus", "exp", "relu"])
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_gradients_are_finite_at_extreme_logits(cls, evidence, size):
    modalities = {name: Modality(name, "vector", (3,)) for name in "abcdef"}
    present = torch.rand(8, 6, generator=torch.Generator().manual_seed(0)) < 0.7
    present[0] = False
    batch = batch_of(8, present, modalities=modalities)
    method = cls(Spec(modalities, CLASSES), evidence=evidence)
    with torch.no_grad():
        for head in [*method.heads.values(), *([method.head] if cls is Etmc else [])]:
            head.bias.copy_(torch.tensor([size, -size, 0.0]))
    prediction = method(batch)
    losses = method.objective(prediction, batch, Step(epoch=99))
    assert all(torch.isfinite(values).all() for values in (prediction.output, prediction.weights, *losses.values()))
    sum(losses.values()).backward()
    assert all(parameter.grad is None or torch.isfinite(parameter.grad).all() for parameter in method.parameters())


@pytest.mark.parametrize("cls", EVERY)
def test_bfloat16_weights_give_32_bit_opinions(cls):
    batch = batch_of(4)
    method = cls(Spec(VECTORS, CLASSES)).to(torch.bfloat16).eval()
    batch.values = {name: value.to(torch.bfloat16) for name, value in batch.values.items()}
    prediction = method(batch)
    assert prediction.output.dtype == prediction.opinions.dtype == prediction.weights.dtype == torch.float32
    sum(method.objective(prediction, batch, Step()).values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())


@pytest.mark.parametrize(
    ("cls", "settings", "words"),
    [
        (Tmc, {"annealing": 0}, "annealing must be a whole number ≥ 1, got 0"),
        (Tmc, {"expert_loss": -1}, "expert_loss must be a number ≥ 0, got -1"),
        (Ecml, {"conflict": float("nan")}, "conflict must be a number ≥ 0, got nan"),
        (Etmc, {"width": 0}, "width must be a whole number ≥ 1, got 0"),
        (Etmc, {"dropout": 1}, "dropout must be a number ≥ 0 and < 1, got 1"),
        (Ecml, {"conflict": True}, "conflict must be a number ≥ 0, got True"),
    ],
)
def test_settings_are_checked(cls, settings, words):
    with pytest.raises(InputError, match=words):
        cls(Spec(VECTORS, CLASSES), **settings)


def test_unknown_evidence_is_named():
    with pytest.raises(UnknownNameError, match="unknown evidence 'sigmoid'"):
        Tmc(Spec(VECTORS, CLASSES), evidence="sigmoid")
