"""Fusing experts' numbers when any expert may be broken: a sum over which of them are sound.

Each modality has a hidden flag. If it is sound, its number is a measurement of the target as in `gaussian_fusion`. If
it is broken, its number is independent of the target, and spread three times as widely as usual. With F the set of
sound modalities and ρ_m the probability that m is sound given its input,

    P(F | u) ∝ Π_{m∈F} ρ_m · Π_{m∉F} (1 − ρ_m) N(u_m; 0, 3² Var u_m) · N(u_F; 0, R_F + v_0 h_F h_Fᵀ)

The result is the mixture over F of the Gaussians that F alone gives, of which the mean and variance are kept. A number
far from all targets is therefore ignored, and so is one that contradicts the others.

Errors with heavier tails than a Gaussian's would make sound samples look contradictory. The densities are therefore
raised to a power η ≤ 1, learned from sound samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from consilience.bayes.gaussian_fusion import Measurements, invert_subsets
from consilience.bayes.learned_buffers import Learned
from consilience.core.modality_sets import all_sets

# Up to so many modalities the sum is over all 2^modalities sets, beyond over the modalities + 1 nested ones.
MAX_MODALITIES = 10
_BROKEN_SPREAD = 3.0
_MAX_LOG_ODDS = 50.0
# In all but this share of sound samples, no other set may explain the numbers better than the set of all, by more than
# this log-density.
_RARE, _MOST_AGAINST = 0.005, 2.0


class SetEvidence(NamedTuple):
    """What the measurements say for each set F of sound modalities.

    Attributes:
        sets: Booleans `[n, set, modality]`, or `[1, set, modality]` if they are the same for all samples.
        mean: Of the target if F is sound, `[n, set, target]`.
        variance: `[n, set, target]`.
        log_density: Of all present measurements, averaged over targets, `[n, set]`; −inf if F is not all present.
    """

    sets: Tensor
    mean: Tensor
    variance: Tensor
    log_density: Tensor


def set_evidence(measured: Measurements, present: Tensor, rho: Tensor) -> SetEvidence:
    """Compute the evidence for each set of sound modalities.

    The targets of a sample usually depend on one another, so that their log-densities are averaged, not added.

    Args:
        measured: Of n samples.
        present: Booleans `[n, modality]`.
        rho: P(sound) `[n, modality]`, by which sets are chosen if there are many modalities.
    """
    prior, h, d = measured.variance, measured.h, measured.u
    sets, quadratics = [], []
    for part, inverse, log_determinant in _inverses(measured, present, rho):
        sets.append(part)
        hh, hd, dd = (_quadratic(inverse, a, b) for a, b in ((h, h), (h, d), (d, d)))
        quadratics.append((hh.clamp(min=0), hd, dd, log_determinant.expand_as(hh)))
    chosen = torch.cat(sets, dim=1)
    hh, hd, dd, log_determinant = (torch.cat(parts, dim=1) for parts in zip(*quadratics))
    precision = 1 / prior + hh
    # The determinant lemma and the Woodbury formula for R_F + v_0 h hᵀ.
    sound = -0.5 * (dd - hd.square() / precision + log_determinant + torch.log1p(prior * hh))
    spread = _BROKEN_SPREAD**2 * (1 + prior[:, None] * h.square())
    broken = (-0.5 * (d.square() / spread + spread.log())).mean(dim=1)
    log_density = sound.mean(dim=2) + ((~chosen & present[:, None]) * broken[:, None]).sum(dim=2)
    possible = (present[:, None] | ~chosen).all(dim=2)
    log_density = torch.where(possible, log_density, -torch.inf)
    return SetEvidence(chosen, measured.mean + hd / precision, 1 / precision, log_density)


class Temper(Learned):
    """The power η of the densities. 1 before `fit`."""

    eta: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.learn(eta=torch.tensor(1.0))

    def fit(self, evidence: SetEvidence, present: Tensor) -> Temper:
        """Learn from the evidence of sound samples, out-of-fold, and which of their modalities are present."""
        everything = (evidence.sets == present[:, None]).all(dim=2)
        of_all = torch.where(everything, evidence.log_density, -torch.inf).amax(dim=1)
        against = (evidence.log_density.amax(dim=1) - of_all).quantile(1 - _RARE)
        self.learn(eta=min(1.0, _MOST_AGAINST / max(float(against), 1e-12)))
        return self

    def forward(self, evidence: SetEvidence) -> SetEvidence:
        """The same evidence with tempered densities."""
        return evidence._replace(log_density=self.eta.to(evidence.log_density) * evidence.log_density)


def log_weights(evidence: SetEvidence, present: Tensor, rho: Tensor) -> Tensor:
    """Unnormalised ln P(F | u) `[n, set]`; rho: P(sound) of the present modalities, strictly between 0 and 1."""
    inside = rho.where(present, 0.5)
    believed = torch.where(evidence.sets, inside.log()[:, None], (-inside).log1p()[:, None])
    return evidence.log_density + (believed * present[:, None]).sum(dim=2)


def mixture_moments(weights: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of mixtures: weights `[n, part]`, moments `[n, part, target]` → `[n, target]` twice.

    >>> mixture_moments(torch.tensor([[0.5, 0.5]]), torch.tensor([[[0.0], [2.0]]]), torch.ones(1, 2, 1))
    (tensor([[1.]]), tensor([[2.]]))
    """
    share = weights[..., None]
    centre = (share * mean).sum(dim=1)
    return centre, (share * (variance + (mean - centre[:, None]).square())).sum(dim=1)


def flag_posterior(evidence: SetEvidence, present: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean and variance of the target `[n, target]`, and P(sound | inputs and opinions) `[n, modality]`."""
    weights = log_weights(evidence, present, rho).softmax(dim=1)
    mean, variance = mixture_moments(weights, evidence.mean, evidence.variance)
    return mean, variance, (weights[..., None] * evidence.sets).sum(dim=1)


def all_sound_log_odds(evidence: SetEvidence, present: Tensor, rho: Tensor) -> Tensor:
    """The log-odds that no present modality is broken: `[n]`, at most 50 and at least −50."""
    weights = log_weights(evidence, present, rho)
    everything = (evidence.sets == present[:, None]).all(dim=2)
    sound = torch.where(everything, weights, -torch.inf).logsumexp(dim=1)
    others = torch.where(everything, -torch.inf, weights).logsumexp(dim=1)
    return (sound - others).clamp(-_MAX_LOG_ODDS, _MAX_LOG_ODDS)


def _inverses(measured: Measurements, present: Tensor, rho: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Sets `[1 or n, set, modality]` with the inverses and log-determinants of R restricted to them."""
    modalities, correlation = present.shape[1], measured.correlation
    if modalities <= MAX_MODALITIES:
        flags = all_sets(modalities).to(present.device)[None]
        if measured.inverses is None:
            yield flags, *invert_subsets(correlation, flags)
        else:
            inverse, log_determinant = measured.inverses
            yield flags, inverse[None], log_determinant[None]
        return
    # Of many modalities, the k most probably sound ones of each sample, for every k.
    rank = rho.where(present, -1.0).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    for k in range(modalities + 1):
        flags = (rank < k)[:, None]  # missing ones come last, and sets with them have no weight
        yield flags, *invert_subsets(correlation, flags)


def _quadratic(inverse: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """aᵀ R_F⁻¹ b `[n, set, target]` of vectors `[n, target, modality]`."""
    outer = (a[..., :, None] * b[..., None, :]).flatten(2)
    if len(inverse) == 1:
        return torch.einsum("ntq,ftq->nft", outer, inverse[0].flatten(2))
    return torch.einsum("ntq,nftq->nft", outer, inverse.flatten(3))
