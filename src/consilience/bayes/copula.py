"""Gaussian copula: the dependence between the experts' opinions, apart from the distribution of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes.class_gaussians import PIECE, ClassGaussian, fit_gaussian
from consilience.bayes.row_pieces import in_pieces
from consilience.core.tracing import is_traced

# Quantiles that are kept of each margin, so that the model does not grow with the samples.
KNOTS = 33


@dataclass(frozen=True, eq=False)
class ClassCopula:
    """Each feature's ranks within a class as normal scores, and a Gaussian for each class over those.

    The densities of the margins cancel in κ and are not kept.

    Attributes:
        knots: Quantiles of the margins, `[class, feature, quantile]`.
        gaussian: The Gaussians over the scores.
    """

    knots: Tensor
    gaussian: ClassGaussian

    @property
    def mean(self) -> Tensor:
        """The means of the scores, `[class, feature]`."""
        return self.gaussian.mean

    def log_kappa(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """ln κ over the present modalities: x `[n, feature]`, present `[n, modality]` → `[n, class]`."""
        if present is None:
            present = x.new_ones((len(x), len(self.gaussian.widths)), dtype=torch.bool)
        size = max(PIECE // self.gaussian.mean.numel(), 1)
        return in_pieces(self._log_kappa, size, x, present)

    def _log_kappa(self, x: Tensor, present: Tensor) -> Tensor:
        return self.gaussian.log_kappa(normal_scores(x, self.knots), present)


def fit_copula(
    x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor | None = None, **options: Any
) -> ClassCopula:
    """Fit margins and dependence of each class; arguments as for `fit_gaussian`."""
    knots = fit_margins(x, y, classes, widths, present)
    own = torch.empty_like(x)
    for number in range(classes):
        rows = (y == number).nonzero()[:, 0]
        own[rows] = normal_scores(x[rows], knots[number : number + 1])[:, 0]
    return ClassCopula(knots, fit_gaussian(own, y, classes, widths, present, **options))


def fit_margins(x: Tensor, y: Tensor, classes: int, widths: Sequence[int], present: Tensor | None = None) -> Tensor:
    """The quantiles of each feature in each class, over the samples that have it: `[class, feature, quantile]`."""
    values = x.detach().cpu().numpy()
    if present is not None:
        mask = np.repeat(present.cpu().numpy(), list(widths), axis=1)
        values = np.where(mask, values, np.nan)
    overall = _quantiles(values, np.broadcast_to(normal_quantiles().numpy(), (x.shape[1], KNOTS)))
    labels = y.cpu().numpy()
    by_class = [_quantiles(values[labels == number], overall) for number in range(classes)]
    return torch.from_numpy(np.stack(by_class)).to(x)


def normal_quantiles(dtype: torch.dtype = torch.float64) -> Tensor:
    """The normal scores of the knots: `[quantile]`.

    >>> normal_quantiles()[[0, KNOTS // 2]].numpy().round(3).tolist()
    [-2.166, 0.0]
    """
    return torch.special.ndtri((torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS).to(dtype)


def normal_scores(x: Tensor, knots: Tensor) -> Tensor:
    """Each feature's place within each class on a normal scale: `[n, feature]` → `[n, class, feature]`.

    Linear between the knots and constant beyond the last.
    """
    score = normal_quantiles(knots.dtype).to(knots.device)
    spread = x.T.expand(len(knots), -1, -1).contiguous()
    if is_traced():
        above = (knots[:, :, None] < spread[..., None]).sum(dim=3).clamp(1, KNOTS - 1)
    else:
        above = torch.searchsorted(knots.contiguous(), spread).clamp(1, KNOTS - 1)
    low, high = knots.gather(2, above - 1), knots.gather(2, above)
    width = high - low
    share = ((spread - low) / torch.where(width > 0, width, 1.0)).clamp(0, 1)
    return (score[above - 1] + share * (score[above] - score[above - 1])).permute(2, 0, 1)


def _quantiles(values: np.ndarray, default: np.ndarray) -> np.ndarray:
    """Quantiles of each column without its NaN: `[feature, quantile]`; the default for an empty column."""
    share = (np.arange(KNOTS) + 0.5) / KNOTS
    seen = ~np.isnan(values).all(axis=0) if len(values) else np.zeros(values.shape[1], dtype=bool)
    quantiles = np.array(default)
    if seen.any():
        quantile = np.nanquantile if np.isnan(values[:, seen]).any() else np.quantile  # the former is far slower
        quantiles[seen] = quantile(values[:, seen], share, axis=0, method="hazen").T
    return quantiles
