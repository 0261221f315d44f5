"""Calibrated κ: weights of the experts and of the estimated dependence between them, learned together.

With the evidence e_j = z_j − ln π of each expert, a Gaussian's estimate κ̂ of the dependence and its density p̂,

    ln P(c | x) = ln π + Σ_j (τ + δ_j) e_j + α ln κ̂ + β ln p̂(z | c) + const

has few coefficients, which one convex problem fits. It uses cross-fitted estimates κ̂ and p̂. An estimate that is used
as it is (α = τ = 1) can be worse than none; here the data decide how much of it to use. How much τ is shrunk is chosen
by cross-fitting: where samples are few and experts nearly always right, the loss alone would make it too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError
from consilience.data.folds import fold_groups

# Penalties on coefficients of features scaled to a root mean square of 1, as if on a sum over samples.
_RIDGE = 3.0
RIDGES = (1.0, 3.0, 10.0)  # on τ, of which one is chosen
LEAST_RIDGE = RIDGES[0]
_FOLDS, _RIDGE_FOLDS = 5, 3
_LEAST_ROWS, _LEAST_COMPARED = 30, 300  # samples that a penalty and a calibration are chosen by
_ITERATIONS, _TOLERANCE = 100, 1e-11

Kappa = Literal["gaussian", "copula", "none"]
# The output of a dependence model: ln κ̂ and, if it has one, ln p̂, both [n, class].
Estimate = tuple[Tensor, Tensor | None]
Model = TypeVar("Model")


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the experts, τ + δ_j `[modality]`, of ln κ̂ (α) and of ln p̂ (β)."""

    weights: np.ndarray
    alpha: float
    beta: float


def coefficient_share(present: Tensor) -> Tensor:
    """The share of the pooled coefficients that applies: 0 where one modality is present, 1 where all are: `[n]`.

    Where one modality is present, its calibrated opinion is the answer; in between, weights are interpolated.

    >>> coefficient_share(torch.tensor([[True, True, True], [True, False, True], [False, True, False]])).tolist()
    [1.0, 0.5, 0.0]
    """
    several = present.shape[1] - 1
    count = present.sum(1).to(torch.float64 if present.device.type != "mps" else torch.float32)
    return ((count - 1) / max(several, 1)).clamp(min=0)


def fit_coefficients(
    evidence: Tensor,
    y: Tensor,
    log_prior: Tensor,
    present: Tensor,
    estimate: Estimate,
    weight: np.ndarray | None = None,
    *,
    share: Tensor | None = None,
    ridge: float = LEAST_RIDGE,
) -> Coefficients:
    """Fit τ, δ, α and β by a convex problem, with τ, α, β ≥ 0.

    If no two experts are ever present together, the coefficients are those of the theorem with κ = 1.

    Args:
        evidence: z_j − ln π, `[n, modality, class]`, finite also where missing.
        y: Class indices `[n]`.
        log_prior: `[class]`.
        present: `[n, modality]`.
        estimate: ln κ̂ and ln p̂ of each sample by a model that was fitted without it.
        weight: Sample weights `[n]`.
        share: How much of the coefficients applies to each sample `[n]`. None: `coefficient_share`.
        ridge: The penalty on τ.
    """
    share = coefficient_share(present) if share is None else share
    if present.shape[1] == 1 or not bool((share > 0).any()):
        return Coefficients(np.ones(present.shape[1]), 0.0, 0.0)
    problem = _Problem(evidence, y, log_prior, present, estimate, share)
    counted = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    return problem.coefficients(problem.solve(ridge, counted, problem.start))


def choose_ridge(
    evidence: Tensor,
    y: Tensor,
    log_prior: Tensor,
    present: Tensor,
    estimate: Estimate,
    weight: np.ndarray | None = None,
    *,
    groups: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
    """The penalty on τ, of RIDGES, with the smallest cross-fitted log-loss, and that loss of each sample `[n]`.

    Very few samples get the smallest penalty, and losses of 0. Arguments as for `fit_coefficients`; groups: labels
    `[n]`, samples with the same one stay together.
    """
    share = coefficient_share(present)
    if len(y) < _LEAST_ROWS or present.shape[1] == 1 or not bool((share > 0).any()):
        return LEAST_RIDGE, np.zeros(len(y))
    problem = _Problem(evidence, y, log_prior, present, estimate, share)
    counted = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    fold_of = spread_folds(y.numpy(), _RIDGE_FOLDS, groups)
    losses = np.zeros((len(RIDGES), len(y)))
    for fold in np.unique(fold_of):
        x = problem.start
        for place, ridge in enumerate(RIDGES):
            x = problem.solve(ridge, counted * (fold_of != fold), x)
            losses[place, fold_of == fold] = problem.losses(x)[fold_of == fold]
    best = int((losses @ counted).argmin())
    return RIDGES[best], losses[best]


def clearly_lower(
    losses: np.ndarray, others: np.ndarray, weight: np.ndarray | None = None, groups: np.ndarray | None = None
) -> bool:
    """Whether the mean of losses `[n]` is lower than that of others by more than the standard error of the difference.

    Never for fewer than 300 samples: their losses rest on a few mistakes, and the error is estimated too low.

    Args:
        losses, others: Losses of the same samples `[n]`.
        weight: Sample weights `[n]`.
        groups: Labels `[n]`; samples with the same one are not independent.

    >>> losses = np.tile([0.1, 0.2], 200)
    >>> clearly_lower(losses, losses + 0.1), clearly_lower(losses[:100], losses[:100] + 0.1)
    (True, False)
    >>> clearly_lower(losses, np.append(losses[1:], 9.0))  # one sample makes the difference
    False
    """
    gain = others - losses if weight is None else weight * (others - losses)
    if groups is not None:
        gain = np.bincount(np.unique(groups, return_inverse=True)[1], weights=gain)
    if len(losses) < _LEAST_COMPARED or len(gain) < 2:
        return False
    error = np.std(gain, ddof=1) * np.sqrt(len(gain))
    return bool(gain.sum() > error)


class _Problem:
    """The penalised log-loss of numbers x: τ, δ, α, β, each on the scale of its feature.

    Arguments as for `fit_coefficients`.
    """

    def __init__(
        self, evidence: Tensor, y: Tensor, log_prior: Tensor, present: Tensor, estimate: Estimate, share: Tensor
    ):
        n, modalities, _ = evidence.shape
        share = share[:, None]
        counted_evidence = centred(evidence * present[:, :, None])
        log_kappa, log_density = estimate
        ratio = centred(log_kappa)
        density = torch.zeros_like(ratio) if log_density is None else centred(log_density)
        features = torch.cat([counted_evidence, ratio[:, None], density[:, None]], dim=1) * share[:, :, None]
        self.base = (log_prior + (1 - share) * counted_evidence.sum(1)).numpy()
        self.features = features.permute(1, 0, 2).contiguous().numpy()
        self.y, self.rows, self.modalities = y.numpy(), np.arange(n), modalities
        # The matrix from x to the coefficients.
        size = np.sqrt((self.features**2).mean(axis=(1, 2)))
        common = np.sqrt((self.features[:modalities].sum(axis=0) ** 2).mean())
        self.spread = np.zeros((modalities + 2, modalities + 3))
        self.spread[:modalities, 0] = 1 / common if common > 0 else 0.0
        self.spread[:, 1:] = np.diag(np.divide(1.0, size, out=np.zeros_like(size), where=size > 0))
        self.start = np.zeros(modalities + 3)
        self.start[0] = common / modalities
        self.bounded = np.zeros(modalities + 3, dtype=bool)
        self.bounded[[0, -2, -1]] = True

    def coefficients(self, x: np.ndarray) -> Coefficients:
        """The coefficients of the features."""
        found = self.spread @ x
        return Coefficients(found[: self.modalities], float(found[-2]), float(found[-1]))

    def losses(self, x: np.ndarray) -> np.ndarray:
        """The log-loss of each sample `[n]`."""
        return self._evaluate(x)[0]

    def solve(self, ridge: float, weight: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Projected Newton steps, damped: weight `[n]` of the samples → x."""
        penalty = np.array([ridge] + [_RIDGE] * (len(self.start) - 1))
        x = start
        losses, p = self._evaluate(x)
        value = weight @ losses + 0.5 * penalty @ x**2
        for _ in range(_ITERATIONS):
            off = p.copy()
            off[self.rows, self.y] -= 1
            gradient = self.spread.T @ np.tensordot(self.features, off * weight[:, None], 2) + penalty * x
            free = ~(self.bounded & (x <= 0) & (gradient > 0))
            hessian = self.spread.T @ self._curvature(p, weight) @ self.spread + np.diag(penalty)
            step = np.zeros_like(x)
            step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
            if gradient @ step <= _TOLERANCE * max(abs(value), 1.0):
                break
            length = 1.0
            while True:
                # Where the step leaves the bounds, it is cut off there.
                moved = np.where(self.bounded, np.maximum(x - length * step, 0.0), x - length * step)
                losses, moved_p = self._evaluate(moved)
                moved_value = weight @ losses + 0.5 * penalty @ moved**2
                if moved_value <= value - 1e-4 * gradient @ (x - moved):
                    break
                length /= 2
                if length < 1e-8:
                    return x
            x, p, value = moved, moved_p, moved_value
        return x

    def _evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-loss `[n]` and the posterior `[n, class]`."""
        scores = self.base + np.tensordot(self.spread @ x, self.features, 1)
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(axis=1)
        return np.log(total) - scores[self.rows, self.y], odds / total[:, None]

    def _curvature(self, p: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The second derivative of the loss by the coefficients, `[feature, feature]`."""
        away = (self.features - (self.features * p).sum(axis=2, keepdims=True)) * np.sqrt(p * weight[:, None])
        flat = away.reshape(len(away), -1)
        return flat @ flat.T


def cross_fit(
    fit: Callable[[np.ndarray], Callable[[np.ndarray], Estimate]], y: np.ndarray, groups: np.ndarray | None = None
) -> Estimate:
    """Compute estimates of all samples, each by a model fitted without it.

    Args:
        fit: Takes the rows to learn from; returns a function from other rows to their ln κ̂ and ln p̂.
        y: Class indices `[n]`.
        groups: Labels `[n]`; samples with the same one stay together.
    """
    return gather([(rows, model(rows)) for rows, model in cross_fitted_models(fit, y, groups)])


def cross_fitted_models(
    fit: Callable[[np.ndarray], Model], y: np.ndarray, groups: np.ndarray | None = None
) -> list[tuple[np.ndarray, Model]]:
    """The rows of each fold, and what `fit` makes of all other rows; arguments as for `cross_fit`."""
    fold_of = spread_folds(y, min(_FOLDS, len(y)), groups)
    folds = np.unique(fold_of)
    return [(np.flatnonzero(fold_of == fold), fit(np.flatnonzero(fold_of != fold))) for fold in folds]


def gather(parts: list[tuple[np.ndarray, Estimate]]) -> Estimate:
    """Estimates of some rows each, put together in the order of the rows."""
    back = torch.from_numpy(np.argsort(np.concatenate([rows for rows, _ in parts])))
    log_kappa = torch.cat([found[0] for _, found in parts])[back]
    densities = [found[1] for _, found in parts if found[1] is not None]
    return log_kappa, torch.cat(densities)[back] if densities else None


def spread_folds(y: np.ndarray, folds: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Each sample's fold `[n]`, every class spread evenly over the folds.

    Args:
        y: Class indices `[n]`.
        folds: The number of folds; with fewer groups, as many as groups.
        groups: Labels `[n]`; samples with the same one are in the same fold, and classes are spread as evenly as that
            allows.

    >>> spread_folds(np.array([0, 0, 1, 1]), 2)
    array([0, 1, 0, 1])
    >>> spread_folds(np.array([0, 1, 0, 1, 0, 1]), 2, np.array(["a", "a", "b", "b", "c", "c"]))
    array([0, 0, 1, 1, 0, 0])
    """
    if groups is not None:
        return _spread_groups(y, folds, groups)
    shuffled = np.random.default_rng(0).permutation(len(y))
    shuffled = shuffled[np.argsort(y[shuffled], kind="stable")]
    fold_of = np.empty(len(y), dtype=np.int64)
    fold_of[shuffled] = np.arange(len(y)) % folds
    return fold_of


def _spread_groups(y: np.ndarray, folds: int, groups: np.ndarray) -> np.ndarray:
    """Each sample's fold `[n]`, by `fold_groups`; refuses a single group."""
    names = np.unique(groups)
    if len(names) < 2:
        raise InputError(f"groups: cross-fitting needs at least 2 groups, all samples are of {names.tolist()}")
    return fold_groups(groups, y, folds)


def centred(scores: Any) -> Any:
    """Scores `[..., class]` minus their mean over the classes."""
    return scores - scores.mean(-1, keepdims=True)
