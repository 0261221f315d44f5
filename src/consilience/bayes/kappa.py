"""Calibrated κ: weights of the experts and of the estimated dependence between them, learned together.

With the evidence e_j = z_j − ln π of each expert, a Gaussian's estimate κ̂ of the dependence and its density p̂,

    ln P(c | x) = ln π + Σ_j (τ + δ_j) e_j + α ln κ̂ + β ln p̂(z | c) + const

has few coefficients, which one convex problem fits. It uses cross-fitted estimates κ̂ and p̂. An estimate that is used
as it is (α = τ = 1) can be worse than none; here the data decide how much of it to use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from consilience.core.errors import InputError
from consilience.data.folds import fold_groups

# Penalties on coefficients of features scaled to a root mean square of 1, as if on a sum over samples.
_RIDGE, _RIDGE_COMMON = 3.0, 0.01
_FOLDS = 5

Kappa = Literal["gaussian", "copula", "none"]
# The output of a dependence model: ln κ̂ and, if it has one, ln p̂, both [n, class].
Estimate = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the experts, τ + δ_j `[modality]`, of ln κ̂ (α) and of ln p̂ (β)."""

    weights: np.ndarray
    alpha: float
    beta: float


def coefficient_share(present: Tensor) -> Tensor:
    """The share of the fitted coefficients that applies: 0 where one modality is present, 1 where all are: `[n]`.

    Where one modality is present, its calibrated opinion is the answer; in between, weights are interpolated.

    >>> coefficient_share(torch.tensor([[True, True, True], [True, False, True], [False, True, False]])).tolist()
    [1.0, 0.5, 0.0]
    """
    several = present.shape[1] - 1
    count = present.sum(1).to(torch.float64 if present.device.type != "mps" else torch.float32)
    return ((count - 1) / max(several, 1)).clamp(min=0)


def expert_weights(weights: Tensor, present: Tensor) -> Tensor:
    """Each expert's weight `[n, modality]`: 1 alone, the fitted one `[modality]` where all are present."""
    share = coefficient_share(present)[:, None].to(weights.dtype)
    return ((1 - share) + share * weights) * present


def dependence_terms(alpha: Tensor, beta: Tensor, present: Tensor, estimate: Estimate) -> Tensor:
    """α ln κ̂ + β ln p̂, which `fuse` takes in place of ln κ: `[n, class]`."""
    log_kappa, log_density = estimate
    terms = alpha * log_kappa
    if log_density is not None:
        terms = terms + beta * log_density
    return coefficient_share(present)[:, None] * centred(terms)


def fit_coefficients(
    evidence: Tensor,
    y: Tensor,
    log_prior: Tensor,
    present: Tensor,
    estimate: Estimate,
    weight: np.ndarray | None = None,
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
    """
    from scipy.optimize import minimize

    n, modalities, classes = evidence.shape
    if modalities == 1:
        return Coefficients(np.ones(1), 0.0, 0.0)
    share = coefficient_share(present)[:, None]
    if not bool((share > 0).any()):
        return Coefficients(np.ones(modalities), 0.0, 0.0)
    counted_evidence = centred(evidence * present[:, :, None])
    log_kappa, log_density = estimate
    ratio = centred(log_kappa)
    density = torch.zeros_like(ratio) if log_density is None else centred(log_density)
    features = torch.cat([counted_evidence, ratio[:, None], density[:, None]], dim=1) * share[:, :, None]
    offset = log_prior + (1 - share) * counted_evidence.sum(1)
    columns = features.permute(1, 0, 2).reshape(modalities + 2, n * classes).numpy()
    base, labels = offset.numpy(), y.numpy()

    # The matrix from the penalised numbers (τ, δ, α, β, each on the scale of its feature) to the coefficients.
    size = np.sqrt((columns**2).mean(axis=1))
    common = np.sqrt((columns[:modalities].sum(axis=0) ** 2).mean())
    spread = np.zeros((modalities + 2, modalities + 3))
    spread[:modalities, 0] = 1 / common if common > 0 else 0.0
    spread[:, 1:] = np.diag(np.divide(1.0, size, out=np.zeros_like(size), where=size > 0))
    ridge = np.array([_RIDGE_COMMON] + [_RIDGE] * (modalities + 2))
    rows, counted = np.arange(n), np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        scores = base + ((spread @ x) @ columns).reshape(n, classes)
        scores = scores - scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        total = odds.sum(axis=1, keepdims=True)
        value = counted @ (np.log(total[:, 0]) - scores[rows, labels]) + 0.5 * ridge @ x**2
        off = odds / total
        off[rows, labels] -= 1
        off *= counted[:, None]
        return float(value), spread.T @ (columns @ off.ravel()) + ridge * x

    start = np.zeros(modalities + 3)
    start[0] = common / modalities
    options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
    bounds = [(low, None) for low in (0, *[None] * modalities, 0, 0)]
    coefficients = spread @ minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return Coefficients(coefficients[:modalities], float(coefficients[-2]), float(coefficients[-1]))


def cross_fit(
    fit: Callable[[np.ndarray], Callable[[np.ndarray], Estimate]], y: np.ndarray, groups: np.ndarray | None = None
) -> Estimate:
    """Compute estimates of all samples, each by a model fitted without it.

    Args:
        fit: Takes the rows to learn from; returns a function from other rows to their ln κ̂ and ln p̂.
        y: Class indices `[n]`.
        groups: Labels `[n]`; samples with the same one stay together.
    """
    fold_of = spread_folds(y, min(_FOLDS, len(y)), groups)
    parts, order = [], []
    for fold in np.unique(fold_of):
        held_out = np.flatnonzero(fold_of == fold)
        parts.append(fit(np.flatnonzero(fold_of != fold))(held_out))
        order.append(held_out)
    back = torch.from_numpy(np.argsort(np.concatenate(order)))
    log_kappa = torch.cat([part[0] for part in parts])[back]
    densities = [part[1] for part in parts if part[1] is not None]
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
