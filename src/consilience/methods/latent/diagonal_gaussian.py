"""Diagonal Gaussians over the latent: Kullback–Leibler divergence, product of experts, draws and densities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def at_least_float32(values: Tensor) -> Tensor:
    """Return numbers in 32 bits or more: 16 are too few for divergences and for sums of many log-densities."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


@dataclass(frozen=True)
class Gaussian:
    """Diagonal Gaussians: mean and log_variance `[…, latent]`. Indexing acts on the leading dimensions.

    >>> Gaussian.standard(3, 2).draw(torch.zeros(3, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    mean: Tensor
    log_variance: Tensor

    @classmethod
    def standard(cls, *shape: int, like: Tensor | None = None) -> Gaussian:
        """Return the prior p(z) = N(0, 1) of this shape, with the type and device of `like`."""
        zeros = torch.zeros(shape) if like is None else like.new_zeros(shape)
        return cls(zeros, zeros)

    @property
    def variance(self) -> Tensor:
        """σ², `[…, latent]`."""
        return self.log_variance.exp()

    def __getitem__(self, key: Any) -> Gaussian:
        return Gaussian(self.mean[key], self.log_variance[key])

    def select(self, rows: Tensor) -> Gaussian:
        """Select along the first dimension; the gradient is cheaper than that of indexing."""
        return Gaussian(self.mean.index_select(0, rows), self.log_variance.index_select(0, rows))

    def draw(self, noise: Tensor | torch.Generator | None = None, samples: int | None = None) -> Tensor:
        """Draw z = mean + σ·noise.

        Args:
            noise: Standard normal numbers that broadcast against the mean, or the generator to draw them from.
            samples: How many to draw; None draws one.

        Returns:
            `[…, latent]`, or `[samples, …, latent]`.
        """
        if not isinstance(noise, Tensor):
            shape = self.mean.shape if samples is None else (samples, *self.mean.shape)
            noise = torch.randn(shape, generator=noise, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean + (0.5 * self.log_variance).exp() * noise

    def squared_distance(self, z: Tensor) -> Tensor:
        """((z − mean) / σ)², summed over the latent: `[…]`."""
        return ((z - self.mean).square() * (-self.log_variance).exp()).sum(-1)

    def log_density(self, z: Tensor) -> Tensor:
        """log N(z; mean, σ²), summed over the latent: `[…]`."""
        return -0.5 * (self.squared_distance(z) + (self.log_variance + math.log(2 * math.pi)).sum(-1))


def kl(q: Gaussian, p: Gaussian | None = None) -> Tensor:
    """KL(q ‖ p), summed over the latent (Korthals 2019, eq. 92, over all dimensions): `[…]`. p None: the prior N(0, 1).

    >>> kl(Gaussian(torch.tensor([1.0]), torch.tensor([0.0]))).item()
    0.5
    """
    if p is None:
        return 0.5 * (q.mean.square() + q.variance - 1 - q.log_variance).sum(-1)
    log_ratio = q.log_variance - p.log_variance
    distance = (q.mean - p.mean).square() * (-p.log_variance).exp()
    return 0.5 * (distance + log_ratio.exp() - 1 - log_ratio).sum(-1)


def product(mean: Tensor, log_variance: Tensor, present: Tensor, prior: bool = True) -> Gaussian:
    """Return the normalised product of the Gaussian experts that are present.

    Args:
        mean: `[expert, …, latent]`.
        log_variance: `[expert, …, latent]`.
        present: Booleans `[expert, …]`.
        prior: Whether the prior N(0, 1) is one more expert. Without any expert the product is the prior in any case.

    Returns:
        `[…, latent]`.

    Example:
        >>> ones = torch.ones(2, 1)
        >>> product(ones, 0 * ones, torch.tensor([True, False])).mean.item()
        0.5
    """
    there = present[..., None]
    precision = (-log_variance).exp().masked_fill(~there, 0)
    weighted = (precision * mean).masked_fill(~there, 0).sum(0)
    total = precision.sum(0)
    total = total + 1 if prior else torch.where(there.any(0), total, 1)
    return Gaussian(weighted / total, -total.log())


def product_of_all(experts: Gaussian, prior: bool = True) -> Gaussian:
    """Return the same as `product` of experts `[expert, …, latent]`, one or more, all of which are present.

    >>> ones = Gaussian(torch.ones(1, 2), torch.zeros(1, 2))
    >>> product_of_all(ones).mean.tolist(), product_of_all(ones, prior=False).mean.tolist()
    ([0.5, 0.5], [1.0, 1.0])
    """
    precision = (-experts.log_variance).exp()
    total = precision.sum(0)
    total = total + 1 if prior else total
    return Gaussian((precision * experts.mean).sum(0) / total, -total.log())


def bayes_product(mean: Tensor, log_variance: Tensor, present: Tensor) -> Gaussian:
    """p(z | S) from the posteriors p(z | m) of conditionally independent m ∈ S: Π_m p(z | m) / p(z)^(|S|−1).

    Unlike in `product` the prior N(0, 1), which every posterior contains, is counted once. A posterior that is wider
    than the prior, which no exact one is, adds no precision. Shapes as in `product`.
    """
    there = present[..., None]
    precision = (-log_variance).exp()
    weighted = (precision * mean).masked_fill(~there, 0).sum(0)
    total = 1 + (precision - 1).clamp(min=0).masked_fill(~there, 0).sum(0)
    return Gaussian(weighted / total, -total.log())
