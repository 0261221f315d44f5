"""Gaussian copula: the dependence between what experts say, apart from how each of their numbers is distributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.class_gaussians import ClassGaussian, Covariance, fit_gaussian

# Quantiles by which a margin is remembered, so that what is learned does not grow with the samples.
KNOTS = 33


@dataclass(frozen=True, eq=False)
class ClassCopula:
    """Each feature's ranks within a class as normal scores, and a Gaussian a class over those.

    knots: `[class, feature, quantile]` where the margins' quantiles lie · gaussian: over the scores. κ needs no more
    than that: the densities of the margins cancel in it.
    """

    knots: Tensor
    gaussian: ClassGaussian

    def log_kappa(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln κ over what is present: x `[n, feature]`, present `[n, modality]` → `[n, class]`."""
        return self.gaussian.log_kappa(normal_scores(x, self.knots), present)


def fit_copula(
    x: Tensor,
    y: Tensor,
    classes: int,
    widths: Sequence[int],
    present: Tensor | None = None,
    covariance: Covariance = "half",
) -> ClassCopula:
    """Margins and dependence of each class; arguments as for `fit_gaussian`."""
    knots = fit_margins(x, y, classes, widths, present)
    return ClassCopula(knots, fit_gaussian(normal_scores(x, knots), y, classes, widths, present, covariance))


def fit_margins(x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor | None = None) -> Tensor:
    """The quantiles of each feature in each class, over the samples that have it: `[class, feature, quantile]`."""
    values = x.detach().cpu().numpy()
    if present is not None:
        mask = np.repeat(present.cpu().numpy(), list(widths), axis=1)
        values = np.where(mask, values, np.nan)
    overall = _quantiles(values, np.broadcast_to(normal_quantiles().numpy(), (x.shape[1], KNOTS)))
    labels = y.cpu().numpy()
    each = [_quantiles(values[labels == number], overall) for number in range(classes)]
    return torch.from_numpy(np.stack(each)).to(x)


def normal_quantiles(dtype: torch.dtype = torch.float64) -> Tensor:
    """The normal scores of the knots: `[quantile]`.

    >>> normal_quantiles()[[0, KNOTS // 2]].numpy().round(3).tolist()
    [-2.166, 0.0]
    """
    return torch.special.ndtri((torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS).to(dtype)


def normal_scores(x: Tensor, knots: Tensor) -> Tensor:
    """Each feature's place within each class on a normal scale: `[n, feature]` → `[n, class, feature]`.

    Linear between the knots and constant beyond the last: nothing is more extreme than what was seen.
    """
    score = normal_quantiles(knots.dtype).to(knots.device)
    spread = x.T.expand(len(knots), -1, -1).contiguous()
    above = torch.searchsorted(knots.contiguous(), spread).clamp(1, KNOTS - 1)
    low, high = knots.gather(2, above - 1), knots.gather(2, above)
    width = high - low
    share = ((spread - low) / torch.where(width > 0, width, 1.0)).clamp(0, 1)
    return (score[above - 1] + share * (score[above] - score[above - 1])).permute(2, 0, 1)


def _quantiles(values: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Quantiles of each column, without its NaN: `[feature, quantile]`; of an empty column, what is given."""
    share = (np.arange(KNOTS) + 0.5) / KNOTS
    seen = ~np.isnan(values).all(axis=0) if len(values) else np.zeros(values.shape[1], dtype=bool)
    found = np.array(otherwise)
    if seen.any():
        quantile = np.nanquantile if np.isnan(values[:, seen]).any() else np.quantile  # the former is far slower
        found[seen] = quantile(values[:, seen], share, axis=0, method="hazen").T
    return found
