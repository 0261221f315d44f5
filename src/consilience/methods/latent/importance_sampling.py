"""Likelihoods of any modalities given any others, by importance sampling, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consilience.core.batches import Batch
from consilience.methods.latent.diagonal_gaussian import Gaussian
from consilience.methods.latent.proposals import refined

if TYPE_CHECKING:
    from consilience.methods.latent.latent_model import LatentModel

# Numbers of a decoder's widest layer that are computed at once, to stay in a processor's cache; the limits of the
# number of pairs of a sample and a draw that follows from it, and its factor on other devices than a CPU.
NUMBERS_AT_ONCE, LEAST_PAIRS, MOST_PAIRS, TIMES_ON_A_DEVICE = 2**19, 2**10, 2**13, 64
# Rounds that refine the proposal, each with a sixth of the requested draws but at least this many. If fewer are
# requested in all, the proposal is not refined.
ROUNDS, LEAST_PILOT = 5, 100


@dataclass(frozen=True)
class LogLikelihood:
    """Estimated log-likelihoods `[n]`, in nats.

    Attributes:
        value: The estimate.
        standard_error: Its standard error.
        effective_samples: How many independent draws from the exact posterior the weighted draws are worth; for a
            conditional, the smaller number of its two estimates. If it is small, the estimate of log p(x_S) tends to be
            too low, which the standard error does not show.
    """

    value: Tensor
    standard_error: Tensor
    effective_samples: Tensor

    def given(self, condition: LogLikelihood) -> LogLikelihood:
        """log p(T | S) = log p(S ∪ T) − log p(S), two independent estimates; the fewer effective samples are kept."""
        return LogLikelihood(
            self.value - condition.value,
            torch.hypot(self.standard_error, condition.standard_error),
            torch.minimum(self.effective_samples, condition.effective_samples),
        )

    def where(self, has_any: Tensor, samples: int) -> LogLikelihood:
        """Keep the estimates where a sample `[n]` has a modality; the likelihood of nothing is 1."""
        return LogLikelihood(
            self.value.masked_fill(~has_any, 0),
            self.standard_error.masked_fill(~has_any, 0),
            self.effective_samples.masked_fill(~has_any, samples),
        )


class WeightSums:
    """Running sums of importance weights and of their squares, over draws that come in pieces: all `[batch]`.

    >>> sums = WeightSums()
    >>> sums.add(torch.tensor([[0.0], [math.log(3)]]))
    >>> sums.add(torch.tensor([[math.log(2)]]))
    >>> estimate = sums.estimate()
    >>> round(estimate.value.exp().item(), 4), round(estimate.effective_samples.item(), 4)
    (2.0, 2.5714)
    """

    def __init__(self) -> None:
        self.draws = 0
        self._log_sum: Tensor | None = None
        self._log_squares: Tensor | None = None

    def add(self, log_weights: Tensor) -> None:
        """Add the weights of further draws: `[draw, batch]`."""
        self.draws += len(log_weights)
        log_weights = log_weights.double()
        total, squares = log_weights.logsumexp(0), (2 * log_weights).logsumexp(0)
        self._log_sum = total if self._log_sum is None else torch.logaddexp(self._log_sum, total)
        self._log_squares = squares if self._log_squares is None else torch.logaddexp(self._log_squares, squares)

    def estimate(self) -> LogLikelihood:
        """Return the log of the mean weight, its standard error (delta method) and Kish's effective number of draws."""
        assert self._log_sum is not None
        assert self._log_squares is not None
        concentration = (self._log_squares - 2 * self._log_sum).exp()  # Σw² / (Σw)², 1/K at best
        spread = (self.draws * concentration - 1).clamp(min=0) / max(self.draws - 1, 1)
        error = spread.sqrt() if self.draws > 1 else torch.full_like(spread, math.nan)
        return LogLikelihood(self._log_sum - math.log(self.draws), error, 1 / concentration)


@torch.no_grad()
def log_likelihood(
    model: LatentModel,
    batch: Batch,
    of: Sequence[str],
    given: Sequence[str] = (),
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> LogLikelihood:
    """Estimate log p(x_of | x_given) of each sample `[batch]`; missing modalities are left out of both.

    log p(x_S)       ≈ log 1/K Σ_k p(z_k) Π_{m∈S} p(x_m | z_k) / g(z_k),        z_k ~ g, a mixture around q(z | x_S)
    log p(x_T | x_S) = log p(x_{S∪T}) − log p(x_S)
    """
    both = [name for name in model.names if name in of or name in given]
    joint = log_evidence(model, batch, both, samples, generator)
    return joint if not given else joint.given(log_evidence(model, batch, list(given), samples, generator))


@torch.no_grad()
def log_predictive(
    model: LatentModel,
    batch: Batch,
    of: Sequence[str],
    given: Sequence[str] = (),
    samples: int = 1000,
    generator: torch.Generator | None = None,
) -> LogLikelihood:
    """Estimate the log-density of what the model generates, with the learned posterior: `[batch]`.

    log ∫ p(x_T | z) q(z | x_S) dz ≈ log 1/K Σ_k q(z_k | x_S) Π_{m∈T} p(x_m | z_k) / g(z_k),        z_k ~ g

    It is eq. 89 of Korthals 2019 with q in place of p(z | x_S). With nothing given it is log p(x_T).
    """
    prior = model.posterior(batch, list(given)) if given else None
    start = model.posterior(batch, [name for name in model.names if name in of or name in given])
    return log_evidence(model, batch, list(of), samples, generator, prior, start)


@torch.no_grad()
def log_evidence(
    model: LatentModel,
    batch: Batch,
    names: Sequence[str],
    samples: int = 1000,
    generator: torch.Generator | None = None,
    prior: Gaussian | None = None,
    start: Gaussian | None = None,
) -> LogLikelihood:
    """Estimate log p(x_S) of each sample `[batch]`, S being what it has of the names.

    The draws come from a proposal that was refined before by other draws (see `proposals`).

    Args:
        model: The latent model.
        batch: Prepared samples.
        names: The modalities S.
        samples: Draws per sample.
        generator: Of the draws.
        prior: The density of z, N(0, 1) if None.
        start: The first guess at the posterior, q(z | x_S) if None.
    """
    at_once = max(1, pairs_at_once(model, batch.device) // max(len(batch), 1))

    def target(z: Tensor) -> Tensor:
        return torch.cat([log_joint(model, batch, names, piece, prior) for piece in z.split(at_once)])

    rounds = [max(LEAST_PILOT, samples // 6)] * ROUNDS if samples >= LEAST_PILOT else []
    proposal = refined(model.posterior(batch, names) if start is None else start, target, rounds, generator, prior)
    sums = WeightSums()
    while sums.draws < samples:
        z = proposal.draw(min(at_once, samples - sums.draws), generator)
        sums.add(target(z) - proposal.log_density(z))
    return sums.estimate().where(torch.stack([batch.present_in(name) for name in names]).any(0), samples)


def pairs_at_once(model: LatentModel, device: torch.device) -> int:
    """Return how many pairs of a sample and a draw are decoded in one call."""
    widest = max((weight.shape[0] for weight in model.decoders.parameters() if weight.ndim), default=1)
    pairs = min(max(NUMBERS_AT_ONCE // widest, LEAST_PAIRS), MOST_PAIRS)
    return pairs * (1 if device.type == "cpu" else TIMES_ON_A_DEVICE)


def log_joint(
    model: LatentModel, batch: Batch, names: Sequence[str], z: Tensor, prior: Gaussian | None = None
) -> Tensor:
    """log p(z) + Σ_m log p(x_m | z) over the names that are present: z `[draw, batch, latent]` → `[draw, batch]`.

    prior: the density of z, N(0, 1) if None.
    """
    decoded = sum(model.log_densities(model.decode(z, names), batch).values())
    if prior is not None:
        return prior.log_density(z) + decoded
    return decoded - 0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))
