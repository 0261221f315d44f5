"""Proposals for importance sampling: mixtures that stay useful where the learned posterior is wrong.

A learned q_S is often too narrow or misplaced, and then a few draws have all the weight. A proposal therefore starts as
a mixture of q_S, of wider Gaussians and of the prior. Rounds of draws move it to the mean and variance of the weighted
draws (population Monte Carlo, Cappé et al. 2004). The draws that moved it are not used again, so that the mean of the
weights is an unbiased estimate of p(x_S) for any proposal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from consilience.methods.latent.diagonal_gaussian import Gaussian

# A round's weights are flattened until at least this share of its draws is effective: few draws give no variance.
LEAST_EFFECTIVE = 0.2
# The variance of draws that are all alike is replaced by this.
LEAST_VARIANCE = 1e-8
# The logarithm of a weight 0, which no power would raise.
LEAST_LOG_WEIGHT = -1e6


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians `[…, latent]`.

    Attributes:
        parts: The Gaussians. Neighbours that are the same object are computed together.
        shares: The weight of each.
        factors: What the variances of each are multiplied by.

    Example:
        >>> Mixture.of((Gaussian.standard(3, 2), 0.5), (Gaussian.standard(3, 2), 0.5, 2.0)).draw(7).shape
        torch.Size([7, 3, 2])
    """

    parts: tuple[Gaussian, ...]
    shares: tuple[float, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, *parts: tuple[Gaussian, float] | tuple[Gaussian, float, float]) -> Mixture:
        """Build a mixture of parts with their shares, which sum to 1, and their factors, by default 1."""
        return cls(*zip(*((*part, 1.0)[:3] for part in parts)))

    def draw(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw `[samples, …, latent]`, those of one part after those of another.

        The number of draws from each part is its share, rounded at random: this reduces the variance.
        """
        shift = torch.rand((), generator=generator, device=self.parts[0].mean.device).item()
        upto = [math.floor(samples * sum(self.shares[:place]) + shift) for place in range(len(self.parts))]
        counts = [after - before for before, after in zip(upto, [*upto[1:], samples])]
        wide = [part if factor == 1 else widened_by(part, factor) for part, factor in zip(self.parts, self.factors)]
        return torch.cat([part.draw(generator, count) for part, count in zip(wide, counts)])

    def log_density(self, z: Tensor) -> Tensor:
        """Log Σ_i share_i N_i(z): `[…]`."""
        each: list[Tensor] = []
        before: Gaussian | None = None
        for part, share, factor in zip(self.parts, self.shares, self.factors):
            if part is not before:
                squares, before = part.squared_distance(z), part
            size = part.log_variance.sum(-1) + z.shape[-1] * math.log(2 * math.pi * factor)
            each.append(math.log(share) - 0.5 * size - (0.5 / factor) * squares)
        return torch.stack(each).logsumexp(0)


def defensive(q: Gaussian, prior: Gaussian) -> Mixture:
    """Return a mixture of q, q with twice its variance, a Gaussian half-way to the prior, and the prior."""
    return Mixture.of((q, 0.4), (q, 0.3, 2.0), (towards(prior, q, 0.5), 0.2), (prior, 0.1))


def refined(
    start: Gaussian,
    log_joint: Callable[[Tensor], Tensor],
    rounds: Sequence[int],
    generator: torch.Generator | None = None,
    prior: Gaussian | None = None,
) -> Mixture:
    """Refine a proposal for z ∝ exp(log_joint), from a first guess `[batch, latent]`, in rounds of so many draws.

    prior: the density of z in log_joint, N(0, 1) if None. It stays a part of the mixture.
    """
    prior = Gaussian.standard(*start.mean.shape, like=start.mean) if prior is None else prior
    proposal = defensive(start, prior)
    for draws in rounds:
        z = proposal.draw(draws, generator)
        weights = flattened(log_joint(z) - proposal.log_density(z), LEAST_EFFECTIVE * draws).to(z.dtype)[..., None]
        mean = (weights * z).sum(0)
        variance = (weights * (z - mean).square()).sum(0)
        moved = Gaussian(mean, variance.clamp(min=LEAST_VARIANCE).log())
        proposal = Mixture.of((moved, 0.6), (moved, 0.2, 2.0), (start, 0.1), (prior, 0.1))
    return proposal


def flattened(log_weights: Tensor, effective: float) -> Tensor:
    """Return normalised weights `[draw, …]`, raised to the largest of 1, ¾, ¾², … with so many effective draws.

    >>> flattened(torch.tensor([0.0, 100.0, 0.0]), 2.0).square().sum().reciprocal().item() > 2
    True
    """
    log_weights = log_weights.double()
    log_weights = (log_weights - log_weights.amax(0)).clamp(min=LEAST_LOG_WEIGHT)
    weights = log_weights.softmax(0)
    while (few := weights.square().sum(0) * effective > 1).any():
        log_weights = torch.where(few, 0.75 * log_weights, log_weights)
        weights = log_weights.softmax(0)
    return weights


def widened_by(q: Gaussian, factor: float) -> Gaussian:
    """Return a Gaussian with the same mean, and its variances times a factor."""
    return Gaussian(q.mean, q.log_variance + math.log(factor))


def towards(prior: Gaussian, q: Gaussian, share: float) -> Gaussian:
    """Return the Gaussian ∝ q^share · prior^(1 − share)."""
    of_q, of_prior = share * (-q.log_variance).exp(), (1 - share) * (-prior.log_variance).exp()
    precision = of_q + of_prior
    return Gaussian((of_q * q.mean + of_prior * prior.mean) / precision, -precision.log())
