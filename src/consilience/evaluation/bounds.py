"""The bound on a fusion's loss and its terms: Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InputError, name_rows
from consilience.evaluation.metric_inputs import SUM_TOLERANCE, as_array


@dataclass(frozen=True)
class Terms:
    """What eq. 2 sums over modalities, one entry a modality, so that Term-L and Term-Cov are the sums of products.

    share: of the samples that have the modality · weight, loss: their means over those samples, E(w) and the empirical
    loss · covariance: of the two over those samples, divided by their number.
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


def bound_terms(trust: Any, losses: Any, present: Any = None) -> Terms:
    """Term-L and Term-Cov of theorem 1, from trust and each expert's own loss, both `[n, modality]`.

    The step from eq. 19 to eq. 20 is Jensen's inequality, which needs weights that are ≥ 0 and sum to one: so trust,
    not raw weights, and anything else is refused. Term-L + Term-Cov is then exactly the mean of Σ_m w_m·l_m, which the
    loss of Σ_m w_m·f_m cannot exceed. A modality that is missing has weight 0, and all means are over who is present;
    samples without any modality are left out.

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
    n = there.sum(axis=0)
    many = np.maximum(n, 1)
    weight, loss = (weights * there).sum(axis=0) / many, own.sum(axis=0) / many
    covariance = ((weights - weight) * (own - loss) * there).sum(axis=0) / many
    return Terms(n / max(1, len(there)), weight, loss, covariance)


def confidence_term(modalities: int, n: int, delta: float = 0.05) -> float:
    """The last term of eq. 2, M·√(ln(1/δ) / 2N), as printed there.

    It takes losses to lie between 0 and 1, which a cross entropy does not: where losses are larger it is too small.
    With weights that sum to one, √(ln(M/δ) / 2N) would do, so for M ≥ 2 the paper's is the more cautious.

    >>> round(confidence_term(2, 1000), 4)
    0.0774
    """
    if not 0 < delta < 1:
        raise InputError(f"delta, the probability that the bound fails, must be between 0 and 1, got {delta!r}")
    if modalities < 1 or n < 1:
        raise InputError(f"the bound needs at least one modality and one sample, got {modalities} and {n}")
    return modalities * math.sqrt(math.log(1 / delta) / (2 * n))


@dataclass(frozen=True)
class Bound:
    """The whole of eq. 2: with probability 1 − delta, the expected loss of the fusion is at most `total`.

    loss: Term-L, with the losses of training · complexity: Term-C · covariance: Term-Cov · confidence: the last term ·
    n: training samples · guessing: ln K, what giving every class the same probability costs.
    """

    loss: float
    complexity: float
    covariance: float
    confidence: float
    n: int
    delta: float
    guessing: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.loss + self.complexity + self.covariance + self.confidence

    @property
    def vacuous(self) -> bool:
        """Whether one could promise as much without looking at the samples."""
        return self.total >= self.guessing

    @property
    def words(self) -> str:
        """What it promises, in a sentence."""
        covariance = f"{self.covariance:+.3f}".replace("-", "−")
        parts = (
            f"Term-L {self.loss:.3f}, Term-C {self.complexity:.3f}, "
            f"Term-Cov {covariance}, confidence {self.confidence:.3f}"
        )
        about = (
            f"which is vacuous: to answer at random costs {self.guessing:.3f}"
            if self.vacuous
            else f"less than the {self.guessing:.3f} of answering at random"
        )
        return f"eq. 2 bounds the loss by {self.total:.3f} ({parts}), {about}"
