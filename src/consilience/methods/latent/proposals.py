"""Where to draw z for importance sampling: mixtures that a wrong posterior cannot spoil, refined by what they find.

A learned q_S is often too narrow or off its place, and then a few draws carry all weight. So a proposal starts as a
mixture of q_S, of wider Gaussians and of the prior, is moved by rounds of draws to the mean and variance of the
weighted draws (population Monte Carlo, Cappé et al. 2004), and stays a mixture. The draws that moved it are not used
again, so that the mean of the weights is an unbiased estimate of p(x_S) whatever became of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from consilience.methods.latent.diagonal_gaussian import Gaussian

# A round's weights are flattened until at least this share of its draws counts: few draws say little about a variance.
LEAST_EFFECTIVE = 0.2
# Below this a variance comes from draws that are all alike.
LEAST_VARIANCE = 1e-8
# A density of 0, whose logarithm no power would lift.
LEAST_LOG_WEIGHT = -1e6


@dataclass(frozen=True)
class Mixture:
    """Gaussians `[…, latent]` of the same shape, each with its share, and possibly widened.

    factors: what each one's variances are multiplied by. Neighbours that are one object but for the factor are computed
    together.

    >>> Mixture.of((Gaussian.standard(3, 2), 0.5), (Gaussian.standard(3, 2), 0.5, 2.0)).draw(7).shape
    torch.Size([7, 3, 2])
    """

    parts: tuple[Gaussian, ...]
    shares: tuple[float, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, *parts: tuple[Gaussian, float] | tuple[Gaussian, float, float]) -> Mixture:
        """Parts with their shares, which sum to 1, and their factors, 1 where there is none."""
        return cls(*zip(*((*part, 1.0)[:3] for part in parts)))

    def draw(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws `[samples, …, latent]`, those of one part after those of another.

        As many from each part as its share says, up to one that chance decides: what all samples have in common should
        not be left to chance.
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
                squares, before = part.squares(z), part
            size = part.log_variance.sum(-1) + z.shape[-1] * math.log(2 * math.pi * factor)
            each.append(math.log(share) - 0.5 * size - (0.5 / factor) * squares)
        return torch.stack(each).logsumexp(0)


def defensive(q: Gaussian) -> Mixture:
    """q, q twice as wide in variance, half-way between q and the prior, and the prior."""
    return Mixture.of(
        (q, 0.4),
        (q, 0.3, 2.0),
        (towards_prior(q, 0.5), 0.2),
        (Gaussian.standard(*q.mean.shape, like=q.mean), 0.1),
    )


def refined(
    start: Gaussian,
    log_joint: Callable[[Tensor], Tensor],
    rounds: Sequence[int],
    generator: torch.Generator | None = None,
) -> Mixture:
    """A proposal for z ∝ exp(log_joint), from a first guess `[batch, latent]`. rounds: draws of each."""
    prior = Gaussian.standard(*start.mean.shape, like=start.mean)
    proposal = defensive(start)
    for draws in rounds:
        z = proposal.draw(draws, generator)
        weights = flattened(log_joint(z) - proposal.log_density(z), LEAST_EFFECTIVE * draws).to(z.dtype)[..., None]
        mean = (weights * z).sum(0)
        variance = (weights * (z - mean).square()).sum(0)
        moved = Gaussian(mean, variance.clamp(min=LEAST_VARIANCE).log())
        proposal = Mixture.of((moved, 0.6), (moved, 0.2, 2.0), (start, 0.1), (prior, 0.1))
    return proposal


def flattened(log_weights: Tensor, effective: float) -> Tensor:
    """Normalised weights `[draw, …]`, raised to the largest of 1, ¾, ¾², … that leaves so many draws effective.

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
    """The same mean, and variances times the factor."""
    return Gaussian(q.mean, q.log_variance + math.log(factor))


def towards_prior(q: Gaussian, share: float) -> Gaussian:
    """The Gaussian ∝ q^share · p(z)^(1 − share)."""
    pull = share * (-q.log_variance).exp()
    precision = pull + 1 - share
    return Gaussian(pull * q.mean / precision, -precision.log())
