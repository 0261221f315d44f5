"""Likelihoods of numbers around a location: Gaussian and Laplace."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.samples import Modality
from consilience.core.settings import PositiveFloat
from consilience.methods.latent.likelihoods.likelihood import Likelihood, feature_shape, register_likelihood, uniform

# The least logarithm of a learned scale, in units of the prepared data. With less, precision alone would buy density.
LEAST_LOG_SCALE = -6.0
Scale = Annotated[
    Literal["modality", "feature"] | PositiveFloat, "learned for the modality or each feature, or a fixed number"
]


class _LocationScale(Likelihood):
    standardised = True

    def __init__(self, modality: Modality, *, scale: Scale = "modality"):
        super().__init__(modality)
        if isinstance(scale, str):
            self.log_scale = nn.Parameter(torch.zeros(feature_shape(modality) if scale == "feature" else ()))
        else:
            self.register_buffer("log_scale", torch.tensor(math.log(scale)))

    def clamped_log_scale(self) -> Tensor:
        """Return the logarithm of the scale, at least `LEAST_LOG_SCALE`."""
        return self.log_scale.clamp(min=LEAST_LOG_SCALE)

    def mean(self, decoded: Tensor) -> Tensor:
        """Return the location."""
        return decoded


@register_likelihood("gaussian")
class GaussianLikelihood(_LocationScale):
    """N(x; decoded, scale²)."""

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Return the sum; with one scale, squares are summed before they are scaled, in fewer passes over memory."""
        log_scale = self.clamped_log_scale()
        if log_scale.ndim:
            return super().total(decoded, x)
        squares = functional.mse_loss(decoded, x.expand_as(decoded), reduction="none")
        squares = squares.flatten(decoded.ndim - len(self.shape)).sum(-1)
        constant = self.outputs * (log_scale + 0.5 * math.log(2 * math.pi))
        return -0.5 * squares * (-2 * log_scale).exp() - constant

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """−½ ((x − decoded)/scale)² − log scale − ½ log 2π."""
        log_scale = self.clamped_log_scale()
        return -0.5 * ((x - decoded) * (-log_scale).exp()).square() - log_scale - 0.5 * math.log(2 * math.pi)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Decoded + scale·noise."""
        noise = torch.randn(decoded.shape, generator=generator, dtype=decoded.dtype, device=decoded.device)
        return decoded + self.clamped_log_scale().exp() * noise


@register_likelihood("laplace")
class LaplaceLikelihood(_LocationScale):
    """Laplace(x; decoded, scale)."""

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """−|x − decoded|/scale − log 2·scale."""
        log_scale = self.clamped_log_scale()
        return -(x - decoded).abs() * (-log_scale).exp() - log_scale - math.log(2)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw by inversion."""
        half = uniform(decoded, generator) - 0.5
        return decoded - self.clamped_log_scale().exp() * half.sign() * torch.log1p(-2 * half.abs())
