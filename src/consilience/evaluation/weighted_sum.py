"""Weighted sums of opinions, of which theorem 1 speaks: whether an output is one, and what bounds its loss.

Zhang et al. 2023, *Provable Dynamic Fusion for Low-Quality Multimodal Data*, eq. 2 and eq. 19–24.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.core.settings import checked
from consilience.evaluation.metric_inputs import SUM_TOLERANCE, as_array

# Relative to the largest term of the sum: what float32 loses in a sum of a few logits, and no more.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Terms:
    """What eq. 2 sums over modalities, one entry a modality, so that Term-L and Term-Cov are the sums of products.

    Attributes:
        share: Of the samples that have the modality.
        weight: E(w), the mean weight over those samples.
        loss: The empirical loss, the mean over those samples.
        covariance: Of weight and loss over those samples, divided by their number.
    """

    share: np.ndarray
    weight: np.ndarray
    loss: np.ndarray
    covariance: np.ndarray

    @property
    def term_loss(self) -> np.ndarray:
        """Each modality's part in Term-L: share · E(w) · loss."""
        return self.share * self.weight * self.loss

    @property
    def term_covariance(self) -> np.ndarray:
        """Each modality's part in Term-Cov: share · Cov(w, loss)."""
        return self.share * self.covariance


@checked
def bound_terms(trust: Any, losses: Any, present: Any = None) -> Terms:
    """Term-L and Term-Cov of theorem 1, from trust and each expert's own loss, both `[n, modality]`.

    The step from eq. 19 to eq. 20 is Jensen's inequality, which needs weights that are ≥ 0 and sum to one: so trust,
    not raw weights, and anything else is refused. Term-L + Term-Cov is then exactly the mean of Σ_m w_m·l_m, which the
    loss of Σ_m w_m·f_m cannot exceed. A missing modality has weight 0, and means are over the samples that have the
    modality; samples without any modality are left out.

    >>> terms = bound_terms([[0.9, 0.1], [0.5, 0.5]], [[0.2, 2.0], [0.6, 0.6]])
    >>> float(terms.term_loss.sum().round(6)), float(terms.term_covariance.sum().round(6))
    (0.67, -0.18)
    """
    weights, own = as_array(trust).astype(np.float64), as_array(losses).astype(np.float64)
    there = np.ones(weights.shape, dtype=bool) if present is None else as_array(present).astype(bool)
    if weights.ndim != 2 or not weights.shape == own.shape == there.shape:
        raise InputError(
            "trust, losses and present must share one shape [n, modality], got "
            f"{list(weights.shape)}, {list(own.shape)} and {list(there.shape)}"
        )
    some = there.any(axis=1)
    weights, own, there = weights[some], np.where(there, own, 0.0)[some], there[some]
    off = (np.where(there, weights, 0.0) < 0).any(axis=1)
    off |= np.abs((weights * there).sum(axis=1) - 1) > SUM_TOLERANCE
    if off.any():
        rows = np.flatnonzero(some)[off]
        raise InputError(
            f"the bound needs weights that are ≥ 0 and sum to one over what is present, unlike {name_rows(rows)}: "
            "trust_from_weights makes them so"
        )
    return weighted_terms(weights, own, there)


def weighted_terms(weights: np.ndarray, losses: np.ndarray, present: np.ndarray) -> Terms:
    """What eq. 2 sums, of any weights; all `[n, modality]`. Samples without any modality are left out.

    >>> terms = weighted_terms(np.array([[2.0], [1.0]]), np.array([[1.0], [3.0]]), np.ones((2, 1), dtype=bool))
    >>> terms.term_loss.tolist(), terms.term_covariance.tolist()  # 3.0 − 0.5 is the mean of 2 · 1 and 1 · 3
    ([3.0], [-0.5])
    """
    some = present.any(axis=1)
    weights, own, there = weights[some], np.where(present, losses, 0.0)[some], present[some]
    n = there.sum(axis=0)
    many = np.maximum(n, 1)
    weight, loss = (weights * there).sum(axis=0) / many, own.sum(axis=0) / many
    covariance = ((weights - weight) * (own - loss) * there).sum(axis=0) / many
    return Terms(n / max(1, len(there)), weight, loss, covariance)


def is_weighted_sum(output: np.ndarray, weights: np.ndarray, opinions: np.ndarray, classification: bool = True) -> bool:
    """Return whether an output `[n, output]` is Σ_m w_m f_m of weights `[n, modality]` and opinions, up to rounding.

    Logits that differ by a constant per sample give the same probabilities, and count as the same.

    >>> opinions, weights = np.array([[[2.0, 0.0], [0.0, 1.0]]]), np.array([[0.5, 2.0]])
    >>> [is_weighted_sum(np.array([logits]), weights, opinions) for logits in ([1.0, 2.0], [0.0, 1.0], [1.0, 0.0])]
    [True, True, False]
    """
    summed = np.einsum("nm,nmc->nc", weights, opinions)
    difference = output - summed
    if classification:
        difference = difference - difference.mean(axis=1, keepdims=True)
    scale = 1 + np.abs(weights[:, :, None] * opinions).max(axis=(1, 2), initial=0.0)
    return bool((np.abs(difference) <= _ROUNDING * scale[:, None]).all())


@dataclass(frozen=True)
class SumBound:
    """What the mean loss of Σ_m w_m f_m cannot exceed, on the samples themselves (eq. 20–23), without Term-C.

    Attributes:
        term_loss: Term-L, Σ_m E[w_m] · own loss.
        term_covariance: Term-Cov, Σ_m Cov(w_m, own loss).
        shortfall: E[max(0, 1 − Σ_m w_m)] · ln K: weights below one in total draw the output towards equal odds.
        static_loss: E[Σ_m w̄_m · own loss] with static weights w̄ of the same means; Term-L if no modality is missing.
        static_shortfall: The shortfall of the static weights.
    """

    term_loss: float
    term_covariance: float
    shortfall: float
    static_loss: float
    static_shortfall: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.term_loss + self.term_covariance + self.shortfall

    @property
    def static(self) -> float:
        """The bound on Σ_m w̄_m f_m: static weights of the same means, as theorem 2 compares with (eq. 5)."""
        return self.static_loss + self.static_shortfall

    @property
    def moving(self) -> float:
        """What weights that move with the losses add: Term-Cov, given which modalities are present."""
        return self.term_loss + self.term_covariance - self.static_loss

    @property
    def gap(self) -> float:
        """The bound less that of static weights: `moving`, and what the shortfall differs by."""
        return self.total - self.static

    def to_dict(self) -> dict[str, float]:
        """Return the terms, the bound, that of static weights, and the gap."""
        return asdict(self) | {name: getattr(self, name) for name in ("total", "static", "moving", "gap")}


def why_unbounded(weights: np.ndarray, present: np.ndarray, summed: bool, classification: bool = True) -> str | None:
    """Return why theorem 1 does not bound the loss of a method's output, or None where it does.

    Jensen's inequality (eq. 20) needs an output Σ_m w_m f_m with w_m ≥ 0 and Σ_m w_m = 1. For the cross entropy a total
    c above one serves as well: ℓ(c·z) = ln Σ_k a_k^c with a_k = exp(z_k − z_y), and Σ a_k^c ≤ (Σ a_k)^c for c ≥ 1, so
    ℓ(c·z) ≤ c·ℓ(z). Below one, 1 − c is the weight of an expert that gives equal odds, whose loss is ln K.

    Args:
        weights: `[n, modality]`.
        present: `[n, modality]`.
        summed: Whether the output is the weighted sum.
        classification: Whether losses are cross entropies, not squared errors.
    """
    if not summed:
        return "its output is not the weighted sum Σ w·f of which theorem 1 speaks"
    below = (np.where(present, weights, 0.0) < 0).any(axis=1)
    if below.any():
        return f"a weight is below 0 in {below.sum()} of {len(weights)} samples, and theorem 1 needs weights ≥ 0"
    total = np.where(present, weights, 0.0).sum(axis=1)[present.any(axis=1)]
    if not classification and (np.abs(total - 1) > SUM_TOLERANCE).any():
        return "its weights do not sum to one, which theorem 1 needs for squared errors"
    return None


def bound_sum(weights: np.ndarray, losses: np.ndarray, present: np.ndarray, guessing: float = 0.0) -> SumBound:
    """Bound the mean loss of Σ_m w_m f_m and of static weights of the same means, where `why_unbounded` allows it.

    Args:
        weights: ≥ 0, `[n, modality]`.
        losses: Each expert's own `[n, modality]`.
        present: `[n, modality]`.
        guessing: ln K, the loss of equal odds; not needed where weights sum to one.

    >>> everything = np.ones((2, 2), dtype=bool)
    >>> bound = bound_sum(np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[0.2, 2.0], [1.0, 0.1]]), everything)
    >>> round(bound.total, 3), round(bound.static, 3)
    (0.9, 1.238)
    """
    terms, some = weighted_terms(weights, losses, present), present.any(axis=1)
    dynamic = np.where(present, weights, 0.0)[some]
    static = mean_weights(weights, present)[some]
    own = np.where(present, losses, 0.0)[some]
    n = max(1, len(own))
    short, static_short = (guessing * float(np.maximum(1 - w.sum(axis=1), 0).sum()) / n for w in (dynamic, static))
    static_loss = float((static * own).sum()) / n
    return SumBound(float(terms.term_loss.sum()), float(terms.term_covariance.sum()), short, static_loss, static_short)


def mean_weights(weights: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Static weights of the same means as dynamic ones, both `[n, modality]`: w̄_m = E[w_m] of theorem 2 (eq. 5).

    The paper has no missing modalities. Weights that depend only on which modalities are present count as static here,
    so the mean is over the samples that have the same modalities.

    >>> mean_weights(np.array([[0.2, 0.8], [0.6, 0.4], [1.0, 0.0]]), np.array([[1, 1], [1, 1], [1, 0]], dtype=bool))
    array([[0.4, 0.6],
           [0.4, 0.6],
           [1. , 0. ]])
    """
    _, pattern, counts = np.unique(present, axis=0, return_inverse=True, return_counts=True)
    pattern = pattern.ravel()
    sums = np.zeros((len(counts), present.shape[1]))
    np.add.at(sums, pattern, np.where(present, weights, 0.0))
    return (sums / counts[:, None])[pattern]
