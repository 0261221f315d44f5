"""Class-conditional Gaussians for very many classes: a covariance of low rank plus a diagonal, scaled for each class.

A covariance of its own for each of 1000 classes would need gigabytes. Here all classes share diag(v) + L Lᵀ, and class
c has it times a level t_c; memory and time per sample grow with classes × features.

The rank is chosen from the data: a principal direction of the standardised residuals is kept if its variance is larger
than the largest that noise with the variance of the directions left over would show (the edge of the distribution of
Marchenko and Pastur), up to 64. The variance of the other directions is left on the diagonal. The result is shrunk
towards equal variances after Ledoit and Wolf, as the full form is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from consilience.bayes.class_gaussians import GaussianByPattern, class_residuals, least_variance, shrinkage

# The most directions that are kept, how many more are iterated so that these are exact, and the iterations.
MAX_RANK = 64
_SPARE, _ITERATIONS = 16, 6


@dataclass(frozen=True)
class _Factor:
    """What the densities of one pattern need: the whitening of its features, and the whitened means."""

    centre: Tensor  # [feature]
    precision_root: Tensor  # of the diagonal part, [feature]
    directions: Tensor  # orthonormal, [feature, rank]
    shortening: Tensor  # what whitening removes along each, [rank]
    mean: Tensor  # whitened, [class, feature]
    constant: Tensor  # ln p at the mean, [class]


@dataclass(frozen=True, eq=False)
class LowRankGaussian(GaussianByPattern):
    """A Gaussian for each class with the covariance t_c (diag(v) + L Lᵀ).

    The tensors must not be changed after the first call.

    Attributes:
        mean: `[class, feature]`.
        variance: v, `[feature]`.
        factors: L, `[feature, rank]`.
        level: t, `[class]`.
        widths: The number of features of each modality, in order.
    """

    mean: Tensor
    variance: Tensor
    factors: Tensor
    level: Tensor
    widths: tuple[int, ...]
    _factors: dict[tuple[int, ...], _Factor] = field(default_factory=dict, init=False, repr=False)

    def _numbers_per_row(self) -> int:
        return sum(self.mean.shape)

    def _block(self, x: Tensor, seen: tuple[int, ...], columns: Tensor) -> Tensor:
        factor = self._factors.get(seen)
        if factor is None:
            with torch.inference_mode(False), torch.no_grad():
                factor = self._factor(columns)
            # Each is about as large as the means of its features.
            if len(self._factors) < 4 * len(self.widths):
                self._factors[seen] = factor
        white = _whiten(x, factor)
        distance = (
            white.square().sum(1, keepdim=True) - 2 * white @ factor.mean.T + factor.mean.square().sum(1)
        ).clamp(min=0)
        return factor.constant - 0.5 * distance / self.level

    def _factor(self, columns: Tensor) -> _Factor:
        mean = self.mean[:, columns]
        centre, precision_root = mean.mean(0), self.variance[columns].rsqrt()
        directions, sizes, _ = torch.linalg.svd(self.factors[columns] * precision_root[:, None], full_matrices=False)
        grown = 1 + sizes.square()
        log_determinant = 0.5 * grown.log().sum() - precision_root.log().sum() + 0.5 * len(columns) * self.level.log()
        constant = -log_determinant - 0.5 * len(columns) * math.log(2 * math.pi)
        factor = _Factor(centre, precision_root, directions, 1 - grown.rsqrt(), mean, constant)
        return _Factor(centre, precision_root, directions, factor.shortening, _whiten(mean, factor), constant)


def _whiten(x: Tensor, factor: _Factor) -> Tensor:
    """Features `[n, feature]` in a basis in which the shared covariance is the identity."""
    scaled = (x - factor.centre) * factor.precision_root
    return scaled - (scaled @ factor.directions * factor.shortening) @ factor.directions.T


def fit_low_rank_gaussian(
    x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor | None = None
) -> LowRankGaussian:
    """Fit means, the shared covariance and each class's level.

    The level of a class is the mean of 1 and its own variance relative to that of all classes, as the full form takes
    the mean of both covariances.

    Args:
        x: `[n, feature]` in float64.
        y: Class indices `[n]`.
        classes: The number of classes.
        widths: The number of features of each modality.
        present: `[n, modality]`.
    """
    present = x.new_ones((len(x), len(widths)), dtype=torch.bool) if present is None else present
    mean, away, scale = class_residuals(x, y, classes, widths, present)
    n, features = away.shape
    there = present.to(x.dtype)
    # An entry of the covariance is over the samples that have both modalities.
    degrees = max(round(float((there.T @ there).mean())) - len(y.unique()), 1)
    values, vectors = _principal_directions(away, present, widths)
    rank, rest = choose_rank(values, features, degrees)
    values, vectors = values[:rank], vectors[:, :rank]
    # The squares of the noise's eigenvalues sum to this in the mean.
    squares = values.square().sum() + (features - rank) * rest**2 * (1 + features / degrees)
    ones = x.new_ones(features)
    weight = (n / there.sum(0).clamp(min=1)).repeat_interleave(torch.tensor(list(widths), device=x.device))
    share, variance = shrinkage(ones, squares, (away.square() * weight).sum(1).square().sum(), n)
    own = (1 - vectors.square() @ values).clamp(min=0)
    diagonal = ((1 - share) * own + share * variance).clamp(min=least_variance(ones))
    factors = vectors * ((1 - share) * values).sqrt()
    entries = there @ torch.tensor(list(widths), dtype=x.dtype, device=x.device)
    totals, seen = (x.new_zeros(classes).index_add(0, y, each) for each in (away.square().sum(1), entries))
    level = 0.5 * (1 + torch.where(seen > 0, totals / seen.clamp(min=1), 1.0))
    return LowRankGaussian(mean, diagonal * scale.square(), factors * scale[:, None], level, tuple(widths))


def choose_rank(values: Tensor, features: int, degrees: int) -> tuple[int, float]:
    """How many of the largest eigenvalues of a correlation matrix exceed noise, and the mean of all the others.

    Args:
        values: The largest eigenvalues in descending order, `[direction]`.
        features: The number of features: what all eigenvalues sum to.
        degrees: Samples less the means that were subtracted.

    >>> choose_rank(torch.tensor([30.0, 2.0, 1.5]), 100, 400)  # the edge is 2.25 times the mean of the others, .71
    (2, 0.6938775510204082)
    """
    edge = (1 + math.sqrt(features / degrees)) ** 2
    rank, left = 0, float(features)
    for value in values.tolist()[: min(MAX_RANK, features - 1)]:
        if value <= edge * left / (features - rank):
            break
        rank, left = rank + 1, max(left - value, 0.0)
    return rank, left / (features - rank)


def _principal_directions(away: Tensor, present: Tensor, widths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues, descending, and eigenvectors of the covariance of residuals `[n, feature]`.

    Each entry of the covariance is over the samples that have both of its modalities.
    """
    features = away.shape[1]
    there = present.to(away.dtype)
    share = 1 / (there.T @ there).clamp(min=1)
    parts = away.split(list(widths), dim=1)

    def covariance_times(basis: Tensor) -> Tensor:
        projected = torch.stack([part @ own for part, own in zip(parts, basis.split(list(widths)))])
        mixed = torch.einsum("ij,jnr->inr", share, projected)
        return torch.cat([part.T @ own for part, own in zip(parts, mixed)])

    # A generator of its own: fitting neither depends on the global one nor changes it.
    start = torch.randn(
        features, min(MAX_RANK + _SPARE, features), generator=torch.Generator().manual_seed(0), dtype=away.dtype
    )
    basis = torch.linalg.qr(start.to(away.device)).Q
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(covariance_times(basis)).Q
    inner = basis.T @ covariance_times(basis)
    values, turn = torch.linalg.eigh((inner + inner.T) / 2)
    return values.flip(0).clamp(min=0), basis @ turn.flip(1)
