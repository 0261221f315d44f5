"""Likelihoods of counts: Poisson, and negative binomial for counts that vary more."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.samples import Modality, Samples
from consilience.methods.latent.likelihoods.likelihood import Likelihood, feature_shape, register_likelihood

# The most logarithm of a rate: larger counts do not occur, and exp would overflow early in training.
MOST_LOG_RATE = 20.0


class _Counts(Likelihood):
    """Counts whose mean is e^decoded."""

    def encoder_input(self, x: Tensor) -> Tensor:
        """log(1 + x): counts span orders of magnitude."""
        return x.log1p()

    def mean(self, decoded: Tensor) -> Tensor:
        """Return the rate."""
        return decoded.clamp(max=MOST_LOG_RATE).exp()

    def check(self, samples: Samples, name: str) -> None:
        """Values must be whole numbers ≥ 0."""
        self._check_values(
            samples,
            name,
            lambda values: (values >= 0) & (values == np.round(values)),
            "counts must be whole numbers ≥ 0",
        )


@register_likelihood("poisson")
class PoissonLikelihood(_Counts):
    """Poisson(x; e^decoded)."""

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """x·decoded − e^decoded − log x!."""
        log_rate = decoded.clamp(max=MOST_LOG_RATE)
        return x * log_rate - log_rate.exp() - torch.lgamma(x + 1)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw counts."""
        return torch.poisson(self.mean(decoded), generator=generator)


@register_likelihood("negative-binomial")
class NegativeBinomialLikelihood(_Counts):
    """Counts of mean μ = e^decoded and variance μ + μ²/r, with a dispersion r learned for every feature."""

    def __init__(self, modality: Modality):
        super().__init__(modality)
        self.log_dispersion = nn.Parameter(torch.zeros(feature_shape(modality)))

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """log Γ(x+r)/(Γ(r) x!) + r log r/(r+μ) + x log μ/(r+μ)."""
        log_rate, log_r = decoded.clamp(max=MOST_LOG_RATE), self.log_dispersion
        r, log_sum = log_r.exp(), torch.logaddexp(log_r, log_rate)
        ways = torch.lgamma(x + r) - torch.lgamma(r) - torch.lgamma(x + 1)
        return ways + r * (log_r - log_sum) + x * (log_rate - log_sum)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw Poisson counts of gamma-distributed rates."""
        r = self.log_dispersion.exp().expand_as(decoded)
        rate = torch._standard_gamma(r, generator=generator) / r * self.mean(decoded)
        return torch.poisson(rate, generator=generator)
