"""Class-conditional Gaussians: densities of the experts' opinions under each class, jointly and of each expert alone.

Their ratio κ = p(z_1, …, z_N | c) / Π_j p(z_j | c) is the correction of Bayesian fusion for modalities that are not
independent given the class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from consilience.core.errors import InputError, unknown_name

Covariance = Literal["tied", "class", "half"]
# The smallest variance of a direction, as a share of the mean variance: a smaller one is a rounding error.
_MIN_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class ClassGaussian:
    """One Gaussian for each class over the concatenated features of all modalities.

    A missing modality is integrated out: densities are those of the blocks of the present modalities.

    Attributes:
        mean: `[class, feature]`.
        covariance: `[class, feature, feature]`.
        widths: The number of features of each modality, in order.
    """

    mean: Tensor
    covariance: Tensor
    widths: tuple[int, ...]

    def log_density(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln p(present modalities | c): x `[n, feature]`, present `[n, modality]` → `[n, class]`; 0 if none is present.

        x may also be `[n, class, feature]`, where each class has features of its own.
        """
        return self._both(x, present)[0]

    def log_kappa(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln κ = ln p(x_1, …, x_N | c) − Σ_j ln p(x_j | c) over the present modalities: `[n, class]`."""
        return self.log_density_and_kappa(x, present)[1]

    def log_density_and_kappa(self, x: Tensor, present: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at the cost of one."""
        joint, own = self._both(x, present)
        return joint, joint - own

    def _both(self, x: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor]:
        """The joint log-density of the present modalities, and the sum of those of each modality alone."""
        if x.shape[-1] != self.mean.shape[1]:
            raise InputError(f"the Gaussian has {self.mean.shape[1]} features, got {list(x.shape)}")
        present = x.new_ones((len(x), len(self.widths)), dtype=torch.bool) if present is None else present
        x = x[:, None] if x.ndim == 2 else x
        starts = [sum(self.widths[:number]) for number in range(len(self.widths))]
        blocks = [torch.arange(start, start + width, device=x.device) for start, width in zip(starts, self.widths)]
        own = x.new_zeros(len(x), len(self.mean))
        for number, block in enumerate(blocks):
            rows = present[:, number].nonzero()[:, 0]
            own = own.index_add(0, rows, self._block(x[rows], block))
        joint = x.new_zeros(len(x), len(self.mean))
        for rows, seen in patterns(present):
            block = torch.cat([blocks[number] for number in seen])
            joint = joint.index_add(0, rows, self._block(x[rows], block))
        return joint, own

    def _block(self, x: Tensor, block: Tensor) -> Tensor:
        """Log-density of some features together: `[rows, 1 or class, feature]` → `[rows, class]`."""
        lower = torch.linalg.cholesky(self.covariance[:, block[:, None], block])
        away = (x[:, :, block] - self.mean[:, block]).permute(1, 2, 0)
        white = torch.linalg.solve_triangular(lower, away, upper=False)
        log_determinant = lower.diagonal(dim1=1, dim2=2).log().sum(1)
        return (-0.5 * white.square().sum(1) - log_determinant[:, None] - 0.5 * len(block) * math.log(2 * math.pi)).T


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
    mask = present.repeat_interleave(torch.tensor(list(widths), device=x.device), dim=1).to(x.dtype)
    own = x if x.ndim == 2 else x[torch.arange(len(x), device=x.device), y]
    own = torch.where(mask > 0, own, 0.0)
    member = torch.nn.functional.one_hot(y, classes).to(x.dtype)
    overall = own.sum(0) / mask.sum(0).clamp(min=1)
    seen = member.T @ mask
    # A class without samples gets the overall mean: it is neither preferred nor excluded.
    mean = torch.where(seen > 0, (member.T @ own) / seen.clamp(min=1), overall)
    away = (own - mean[y]) * mask
    # Shrinkage is towards equal variances, so that features are scaled first.
    scale = (away.square().sum(0) / mask.sum(0).clamp(min=1)).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    away = away / scale
    covariances = torch.zeros(classes, x.shape[-1], x.shape[-1], dtype=x.dtype, device=x.device)
    if covariance != "tied":
        for number in range(classes):
            rows = (y == number).nonzero()[:, 0]
            covariances[number] = _shrunk(away[rows], mask[rows])
    if covariance != "class":
        tied = _shrunk(away, mask)
        covariances = tied.repeat(classes, 1, 1) if covariance == "tied" else (covariances + tied) / 2
    return ClassGaussian(mean, covariances * scale[:, None] * scale, tuple(widths))


def _shrunk(away: Tensor, mask: Tensor) -> Tensor:
    """The covariance of rows of zero mean `[n, feature]`, absent entries 0, shrunk towards equal variances."""
    n, features = away.shape
    if n == 0:
        return torch.eye(features, dtype=away.dtype, device=away.device)
    pairs = mask.T @ mask
    empirical = (away.T @ away) / pairs.clamp(min=1)
    level = empirical.diagonal().mean()
    target = level.clamp(min=_MIN_VARIANCE) * torch.eye(features, dtype=away.dtype, device=away.device)
    # Entries with fewer samples get more weight each; where all are present this is the usual form.
    square = away.square() * (n / mask.sum(0).clamp(min=1))
    noise = ((square.T @ square).sum() / n - empirical.square().sum()) / n
    signal = (empirical - target).square().sum()
    share = (noise.clamp(min=0) / signal.clamp(min=1e-300)).clamp(max=1)
    shrunk = (1 - share) * empirical + share * target
    # Covariances over different samples need not be positive definite together, and constant features have variance 0.
    values, vectors = torch.linalg.eigh(shrunk)
    least = _MIN_VARIANCE * values.mean().clamp(min=_MIN_VARIANCE)
    return shrunk if values[0] >= least else (vectors * values.clamp(min=least)) @ vectors.T


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
