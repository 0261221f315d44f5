"""Numbers around a location: Gaussian and Laplace."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from consilience.core.errors import InputError, unknown_name
from consilience.core.samples import Modality
from consilience.methods.latent.likelihoods.likelihood import Likelihood, normal, register_likelihood, uniform

# Below this logarithm of a learned scale (in units of the prepared data), density would be bought by precision alone.
LEAST_LOG_SCALE = -6.0


class _Located(Likelihood):
    """A location from the decoder and a scale: of the whole modality, of every feature, or fixed."""

    standardised = True

    def __init__(self, modality: Modality, *, scale: float | str = "modality"):
        super().__init__(modality)
        if isinstance(scale, str):
            if scale not in ("modality", "feature"):
                raise unknown_name("scale", scale, ("modality", "feature"), "Or give a number to fix it")
            # Shared over time and place: the last axis of vectors and sequences, the channels of images.
            sizes = {"vector": modality.shape, "sequence": modality.shape[-1:], "image": (modality.shape[0], 1, 1)}
            self.log_scale = nn.Parameter(torch.zeros(sizes[modality.kind] if scale == "feature" else ()))
        elif isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
            raise InputError(f"scale must be 'modality', 'feature' or a number > 0, got {scale!r}")
        else:
            self.register_buffer("log_scale", torch.tensor(math.log(scale)))

    def bounded(self) -> Tensor:
        """The logarithm of the scale."""
        return self.log_scale.clamp(min=LEAST_LOG_SCALE)

    def mean(self, decoded: Tensor) -> Tensor:
        """The location."""
        return decoded


@register_likelihood("gaussian")
class GaussianLikelihood(_Located):
    """N(x; decoded, scale²)."""

    def total(self, decoded: Tensor, x: Tensor) -> Tensor:
        """Where one scale serves all, squares are summed before they are scaled: fewer passes over all numbers."""
        log_scale = self.bounded()
        if log_scale.ndim:
            return super().total(decoded, x)
        squares = functional.mse_loss(decoded, x.expand_as(decoded), reduction="none")
        squares = squares.flatten(decoded.ndim - len(self.shape)).sum(-1)
        constant = self.outputs * (log_scale + 0.5 * math.log(2 * math.pi))
        return -0.5 * squares * (-2 * log_scale).exp() - constant

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """−½ ((x − decoded)/scale)² − log scale − ½ log 2π."""
        log_scale = self.bounded()
        return -0.5 * ((x - decoded) * (-log_scale).exp()).square() - log_scale - 0.5 * math.log(2 * math.pi)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Decoded + scale·noise."""
        return decoded + self.bounded().exp() * normal(decoded, generator)


@register_likelihood("laplace")
class LaplaceLikelihood(_Located):
    """Laplace(x; decoded, scale)."""

    def pointwise(self, decoded: Tensor, x: Tensor) -> Tensor:
        """−|x − decoded|/scale − log 2·scale."""
        log_scale = self.bounded()
        return -(x - decoded).abs() * (-log_scale).exp() - log_scale - math.log(2)

    def draw(self, decoded: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """By inversion."""
        half = uniform(decoded, generator) - 0.5
        return decoded - self.bounded().exp() * half.sign() * torch.log1p(-2 * half.abs())
