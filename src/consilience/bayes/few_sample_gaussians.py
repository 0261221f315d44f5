"""Class-conditional Gaussians where a class has fewer samples than features: the same densities, computed faster.

The covariance that `fit_gaussian` gives a class is the mean of one for all classes and its own, and its own is a
multiple of the identity plus a product of the class's few samples. In the directions in which the covariance for all
classes is diagonal, each is therefore diagonal plus a product of low rank, whose inverse needs no matrix of features ×
features (Woodbury's identity). Nothing is approximated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from consilience.bayes.class_gaussians import (
    GaussianByPattern,
    class_residuals,
    least_variance,
    shrinkage,
    shrunk_covariance,
)

# The most samples of a class, as a share of the features, for which this form is faster.
_FEW = 1 / 3


@dataclass(frozen=True)
class _Factor:
    """One pattern's directions `[feature, feature]` and, in these directions, what the densities need of each class."""

    directions: Tensor
    mean: Tensor  # [class, 1, feature]
    precision_root: Tensor  # of the diagonal part, [class, 1, feature]
    samples: Tensor  # scaled by it, [class, feature, sample]
    lower: Tensor  # the Cholesky factor of I + samplesᵀ samples, [class, sample, sample]
    constant: Tensor  # ln p at the mean, [class]


@dataclass(frozen=True, eq=False)
class FewSampleGaussian(GaussianByPattern):
    """The densities of `ClassGaussian` with `covariance="half"`, without its covariances.

    Attributes:
        mean: `[class, feature]`.
        scale: `[feature]`; everything below is in units of it.
        tied: The covariance for all classes, `[feature, feature]`.
        samples: Each class's samples without their mean, times the square root of what each adds to the covariance,
            0 where a class has fewer: `[class, sample, feature]`.
        level: What each class's own covariance adds to the variance of every feature `[class]`.
        widths: The number of features of each modality, in order.
    """

    mean: Tensor
    scale: Tensor
    tied: Tensor
    samples: Tensor
    level: Tensor
    widths: tuple[int, ...]
    _factors: dict[tuple[int, ...], _Factor] = field(default_factory=dict, init=False, repr=False)

    def _block(self, x: Tensor, seen: tuple[int, ...], columns: Tensor) -> Tensor:
        factor = self._factors.get(seen)
        if factor is None:
            factor = self._factors[seen] = self._factor(columns)
        turned = (x / self.scale[columns]) @ factor.directions
        white = (turned - factor.mean).mul_(factor.precision_root)
        explained = torch.linalg.solve_triangular(factor.lower, (white @ factor.samples).mT, upper=False)
        distance = torch.linalg.vector_norm(white, dim=2).square_() - explained.square_().sum(1)
        return (factor.constant[:, None] - 0.5 * distance).T

    def _factor(self, columns: Tensor) -> _Factor:
        values, directions = torch.linalg.eigh(self.tied[columns[:, None], columns])
        precision_root = (0.5 * (values + self.level[:, None])).rsqrt()[:, None]
        samples = (self.samples[:, :, columns] @ directions) * precision_root
        inner = samples @ samples.mT
        inner.diagonal(dim1=1, dim2=2).add_(1)
        lower = torch.linalg.cholesky(inner)
        log_determinant = (
            lower.diagonal(dim1=1, dim2=2).log().sum(1)
            - precision_root.log().sum((1, 2))
            + self.scale[columns].log().sum()
        )
        constant = -log_determinant - 0.5 * len(columns) * math.log(2 * math.pi)
        mean = (self.mean[:, columns] / self.scale[columns]) @ directions
        return _Factor(directions, mean[:, None], precision_root, samples.mT.contiguous(), lower, constant)


def has_few_samples(y: Tensor, classes: int, features: int, present: Tensor) -> bool:
    """Whether `fit_few_sample_gaussian` serves and is faster: all modalities present, few samples in every class."""
    largest = int(torch.bincount(y, minlength=classes).max()) if len(y) else 0
    return 0 < largest <= _FEW * features and bool(present.all())


def fit_few_sample_gaussian(x: Tensor, y: Tensor, classes: int, widths: Sequence[int]) -> FewSampleGaussian:
    """Fit the Gaussians of `fit_gaussian(x, y, classes, widths)`: x `[n, feature]` in float64, y `[n]`."""
    present = x.new_ones((len(x), len(widths)), dtype=torch.bool)
    mean, away, scale = class_residuals(x, y, classes, widths, present)
    samples, levels = [], []
    for number in range(classes):
        own = away[y == number]
        n = len(own)
        if n == 0:
            samples.append(own)
            levels.append(x.new_ones(()))
            continue
        squares = own.square()
        diagonal = squares.mean(0)
        share, variance = shrinkage(diagonal, (own @ own.T).square().sum() / n**2, squares.sum(1).square().sum(), n)
        level = share * variance
        levels.append(torch.maximum(level, least_variance((1 - share) * diagonal + level)))
        samples.append(own * (0.5 * (1 - share) / n).sqrt())
    tied = shrunk_covariance(away, present, widths)
    return FewSampleGaussian(mean, scale, tied, pad_sequence(samples, True), torch.stack(levels), tuple(widths))
