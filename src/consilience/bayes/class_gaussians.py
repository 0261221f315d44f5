"""Class-conditional Gaussians: densities of the experts' opinions under each class, jointly and of each expert alone.

Their ratio κ = p(z_1, …, z_N | c) / Π_j p(z_j | c) is the correction of Bayesian fusion for modalities that are not
independent given the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from consilience.bayes.row_pieces import in_pieces
from consilience.core.errors import InputError, unknown_name

Covariance = Literal["tied", "class", "half"]
# The smallest variance of a direction, as a share of the mean variance: a smaller one is a rounding error.
_MIN_VARIANCE = 1e-6
# The most numbers of [row, class, feature] that are computed at a time: 16 MB in float64.
PIECE = 2**21


class GaussianByPattern:
    """Densities of each class over the modalities that a row has; a missing modality is integrated out.

    A subclass sets `mean` `[class, feature]` and `widths`, the number of features of each modality, and computes the
    log-density of some modalities together.
    """

    mean: Tensor
    widths: tuple[int, ...]

    def log_density_and_kappa(self, x: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """ln p of the present modalities together, and ln κ, its difference to the sum of those of each alone.

        Args:
            x: `[n, feature]`, or `[n, class, feature]` where a subclass allows it.
            present: `[n, modality]`. None: all.

        Returns:
            `[n, class]` each; 0 where no modality is present, and ln κ = 0 where one is.
        """
        if x.shape[-1] != sum(self.widths):
            raise InputError(f"the Gaussian has {sum(self.widths)} features, got {list(x.shape)}")
        present = x.new_ones((len(x), len(self.widths)), dtype=torch.bool) if present is None else present
        blocks = torch.arange(x.shape[-1], device=x.device).split(list(self.widths))
        piece = max(PIECE // self._numbers_per_row(), 1)

        def density(rows: Tensor, seen: tuple[int, ...]) -> Tensor:
            columns = torch.cat([blocks[number] for number in seen])
            return in_pieces(lambda some: self._block(x[some][..., columns], seen, columns), piece, rows)

        joint = own = x.new_zeros(len(x), len(self.mean))
        for number in range(len(self.widths)):
            rows = present[:, number].nonzero()[:, 0]
            if len(rows):
                own = own.index_add(0, rows, density(rows, (number,)))
        several = present & (present.sum(1, keepdim=True) > 1)
        for rows, seen in patterns(several):
            joint = joint.index_add(0, rows, density(rows, tuple(seen)))
        joint = torch.where(several.any(1, keepdim=True), joint, own)
        return joint, joint - own

    def _numbers_per_row(self) -> int:
        return self.mean.numel()

    def _block(self, x: Tensor, seen: tuple[int, ...], columns: Tensor) -> Tensor:
        """Log-density of some modalities together, given their features, their numbers and those of the features."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ClassGaussian(GaussianByPattern):
    """One Gaussian for each class over the concatenated features of all modalities.

    Rows are computed in pieces, and Cholesky factors are kept for the next call, so the tensors must not be changed
    afterwards.

    Attributes:
        mean: `[class, feature]`.
        covariance: `[class, feature, feature]`.
        widths: The number of features of each modality, in order.
    """

    mean: Tensor
    covariance: Tensor
    widths: tuple[int, ...]
    _factors: dict[tuple[int, ...], tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def log_density(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln p(present modalities | c): x `[n, feature]`, present `[n, modality]` → `[n, class]`; 0 if none is present.

        x may also be `[n, class, feature]`, where each class has features of its own.
        """
        return self.log_density_and_kappa(x, present)[0]

    def log_kappa(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln κ = ln p(x_1, …, x_N | c) − Σ_j ln p(x_j | c) over the present modalities: `[n, class]`."""
        return self.log_density_and_kappa(x, present)[1]

    def _block(self, x: Tensor, seen: tuple[int, ...], columns: Tensor) -> Tensor:
        """Log-density of some modalities together: `[rows, feature]` or `[rows, class, feature]` → `[rows, class]`."""
        lower, constant = self._factor(seen, columns)
        x = x if x.ndim == 3 else x[:, None]
        away = (x - self.mean[:, columns]).permute(1, 2, 0)
        white = torch.linalg.solve_triangular(lower, away, upper=False)
        return (constant[:, None] - 0.5 * white.square().sum(1)).T

    def _factor(self, seen: tuple[int, ...], columns: Tensor) -> tuple[Tensor, Tensor]:
        """The Cholesky factors `[class, feature, feature]` of some modalities' covariances, and ln p at the means.

        Factors are kept up to twice the size of the covariances. Threads that compute the same factor at the same time
        compute the same numbers, and either may be kept.
        """
        kept = self._factors.get(seen)
        if kept is not None:
            return kept
        with torch.inference_mode(False), torch.no_grad():  # a factor made in inference mode could not be used outside
            whole = len(columns) == self.mean.shape[1]
            lower = torch.linalg.cholesky(self.covariance if whole else self.covariance[:, columns[:, None], columns])
            log_determinant = lower.diagonal(dim1=1, dim2=2).log().sum(1)
            factor = lower, -log_determinant - 0.5 * len(columns) * math.log(2 * math.pi)
        size = sum(other.numel() for other, _ in list(self._factors.values())) + lower.numel()
        if size <= 2 * self.covariance.numel():
            self._factors[seen] = factor
        return factor


def fit_gaussian(
    x: Tensor,
    y: Tensor,
    classes: int,
    widths: Sequence[int],
    present: Tensor | None = None,
    covariance: Covariance = "half",
) -> ClassGaussian:
    """Fit means and covariances of each class, shrunk after Ledoit and Wolf.

    Ledoit and Wolf 2004, A Well-Conditioned Estimator for Large-Dimensional Covariance Matrices.

    Args:
        x: `[n, feature]` in float64, or `[n, class, feature]` where each class has features of its own.
        y: Class indices `[n]`.
        classes: The number of classes.
        widths: The number of features of each modality.
        present: `[n, modality]`; every mean and covariance is taken over the samples that have its modalities.
        covariance: "tied", one for all classes; "class", one for each; "half", the mean of the two.
    """
    if covariance not in get_args(Covariance):
        raise unknown_name("covariance", covariance, get_args(Covariance))
    if sum(widths) != x.shape[-1]:
        raise InputError(f"widths {list(widths)} sum to {sum(widths)}, the features are {x.shape[-1]}")
    present = x.new_ones((len(x), len(widths)), dtype=torch.bool) if present is None else present
    mean, away, scale = class_residuals(x, y, classes, widths, present)
    outer = scale[:, None] * scale
    tied = None if covariance == "class" else shrunk_covariance(away, present, widths)
    if covariance == "tied":
        assert tied is not None
        return ClassGaussian(mean, (tied * outer).repeat(classes, 1, 1), tuple(widths))
    covariances = x.new_empty(classes, x.shape[-1], x.shape[-1])
    for number in range(classes):
        rows = (y == number).nonzero()[:, 0]
        shrunk = shrunk_covariance(away[rows], present[rows], widths)
        torch.mul(shrunk if tied is None else shrunk.add_(tied).div_(2), outer, out=covariances[number])
    return ClassGaussian(mean, covariances, tuple(widths))


def class_residuals(
    x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Means of each class, and what is left without them at a root mean square of 1; arguments as for `fit_gaussian`.

    Returns:
        Means `[class, feature]`; residuals over their scale `[n, feature]`, 0 where absent; the scale `[feature]`.
    """
    mask = present.repeat_interleave(torch.tensor(list(widths), device=x.device), dim=1).to(x.dtype)
    own = x if x.ndim == 2 else x[torch.arange(len(x), device=x.device), y]
    own = torch.where(mask > 0, own, 0.0)
    overall = own.sum(0) / mask.sum(0).clamp(min=1)
    sums, seen = (x.new_zeros(classes, own.shape[1]).index_add(0, y, values) for values in (own, mask))
    # A class without samples gets the overall mean: it is neither preferred nor excluded.
    mean = torch.where(seen > 0, sums / seen.clamp(min=1), overall)
    away = (own - mean[y]) * mask
    # Shrinkage is towards equal variances, so that features are scaled first.
    scale = (away.square().sum(0) / mask.sum(0).clamp(min=1)).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    return mean, away / scale, scale


def shrinkage(diagonal: Tensor, squares: Tensor, fourth: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The share s and the variance v of Ledoit and Wolf's estimate (1 − s) C + s v I, never less than a rounding error.

    Args:
        diagonal: The diagonal of the empirical covariance C.
        squares: The sum of the squares of all entries of C.
        fourth: The sum over samples of the fourth power of their lengths.
        n: The number of samples.
    """
    variance = diagonal.mean().clamp(min=_MIN_VARIANCE)
    noise = (fourth / n - squares) / n
    signal = squares - diagonal.square().sum() + (diagonal - variance).square().sum()
    return (noise.clamp(min=0) / signal.clamp(min=1e-300)).clamp(max=1), variance


def least_variance(diagonal: Tensor) -> Tensor:
    """The smallest variance of any direction that a covariance with this diagonal is allowed."""
    return _MIN_VARIANCE * diagonal.mean().clamp(min=_MIN_VARIANCE)


def shrunk_covariance(away: Tensor, present: Tensor, widths: Sequence[int]) -> Tensor:
    """The covariance of rows of zero mean `[n, feature]`, absent entries 0, shrunk towards equal variances."""
    n, features = away.shape
    if n == 0:
        return torch.eye(features, dtype=away.dtype, device=away.device)
    complete = bool(present.all())
    empirical = away.T @ away
    square = away.square()
    if complete:
        empirical /= n
    else:
        # Counts are the same for all features of a modality.
        repeats = torch.tensor(list(widths), device=away.device)
        there = present.to(away.dtype)
        pairs = (there.T @ there).clamp(min=1)
        empirical /= pairs.repeat_interleave(repeats, 0).repeat_interleave(repeats, 1)
        # Entries with fewer samples get more weight each; where all are present this is the usual form.
        square *= (n / there.sum(0).clamp(min=1)).repeat_interleave(repeats)
    diagonal = empirical.diagonal()
    share, target = shrinkage(diagonal, empirical.square().sum(), square.sum(1).square().sum(), n)
    empirical *= 1 - share
    diagonal += share * target
    # Covariances over different samples need not be positive definite together, and constant features have variance 0.
    least = least_variance(diagonal)
    if complete and bool(share * target >= 2 * least):
        return empirical  # the empirical part has no negative eigenvalues
    diagonal -= least
    definite = not bool(torch.linalg.cholesky_ex(empirical).info)
    diagonal += least
    if definite:
        return empirical
    values, vectors = torch.linalg.eigh(empirical)
    return empirical if values[0] >= least else (vectors * values.clamp(min=least)) @ vectors.T


def contrasts(classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """An orthonormal basis of the differences between logits: `[class, class − 1]`, columns sum to 0.

    >>> z = torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.float64)
    >>> torch.allclose(z @ contrasts(3), (z + 7) @ contrasts(3))
    True
    """
    rank = torch.arange(1, classes, dtype=dtype)
    below = torch.arange(classes)[:, None] < torch.arange(1, classes)
    ladder = below.to(dtype) - torch.diag(rank, -1)[:, : classes - 1]
    return ladder / (rank * (rank + 1)).sqrt()


def patterns(present: Tensor) -> Iterator[tuple[Tensor, list[int]]]:
    """Group rows by the modalities they have: row numbers and modality numbers; rows without any are left out.

    >>> [(rows.tolist(), seen) for rows, seen in patterns(torch.tensor([[True, False], [True, True], [True, False]]))]
    [([0, 2], [0]), ([1], [0, 1])]
    """
    if bool(present.all()):
        yield torch.arange(len(present), device=present.device), list(range(present.shape[1]))
        return
    distinct, pattern_of = torch.unique(present, dim=0, return_inverse=True)
    for number, pattern in enumerate(distinct.tolist()):
        if any(pattern):
            yield (pattern_of == number).nonzero()[:, 0], [modality for modality, seen in enumerate(pattern) if seen]
