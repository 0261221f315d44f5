"""Counts: Poisson, and negative binomial for those that spread more."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.samples import Modality, Samples
from consilience.methods.latent.likelihoods.likelihood import Likelihood, register_likelihood

# Beyond this logarithm of a rate, counts are beyond any data, and exp would overflow early in training.
MOST_LOG_RATE = 20.0


class _Counts(Likelihood):
    """Counts whose mean is e^decoded."""

    def seen(self, x: Tensor) -> Tensor:
        """log(1 + x): counts span orders of magnitude."""
        return x.log1p()

    def mean(self, decoded: Tensor) -> Tensor:
        """The rate."""
        return decoded.clamp(max=MOST_LOG_RATE).exp()

    def check(self, samples: Samples, name: str) -> None:
        """Whole numbers ≥ 0."""
        self._refuse(
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
        """Counts."""
        return torch.poisson(self.mean(decoded), generator=generator)


@register_likelihood("negative-binomial")
class NegativeBinomialLikelihood(_Counts):
    """Counts of mean μ = e^decoded and variance μ + μ²/r, with a dispersion r learned for every feature."""

    def __init__(self, modality: Modality):
        super().__init__(modality)
        sizes = {"vector": modality.shape, "sequence": modality.shape[-1:], "image": (modality.shape[0], 1, 1)}
        self.log_dispersion = nn.Parameter(torch.zeros(sizes[modality.kind]))

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """log Γ(x+r)/(Γ(r) x!) + r log r/(r+μ) + x log μ/(r+μ)."""
        log_rate, log_r = decoded.clamp(max=MOST_LOG_RATE), self.log_dispersion
        r, log_sum = log_r.exp(), torch.logaddexp(log_r, log_rate)
        ways = torch.lgamma(x + r) - torch.lgamma(r) - torch.lgamma(x + 1)
        return ways + r * (log_r - log_sum) + x * (log_rate - log_sum)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A Poisson count of a gamma-distributed rate."""
        r = self.log_dispersion.exp().expand_as(decoded)
        rate = torch._standard_gamma(r, generator=generator) / r * self.mean(decoded)
        return torch.poisson(rate, generator=generator)
