"""Does a method trust the modalities that are right? The theorems of quality-aware fusion, as measurements.

Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023): eq. 2 bounds the loss of a fusion, and
theorem 2 asks for weights that fall when their modality is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.correlation import Correlation, correlation, static_weights
from consilience.core.errors import InputError, UnsupportedError, name_rows
from consilience.core.samples import Samples
from consilience.corruption import Corruptor
from consilience.evaluation.metric_inputs import SUM_TOLERANCE, as_array
from consilience.evaluation.rademacher import head_complexity, linear_heads, seen_by
from consilience.evaluation.trust import ExpertRecord, record_experts, trust_from_weights
from consilience.evaluation.trust_verdict import ModalityTrust, TrustDiagnostics, signed


def trust_diagnostics(
    model: Any,
    X: Mapping[str, Any] | Samples,
    y: Any = None,
    *,
    corruption: str | Mapping[str, str] | None = None,
    level: float = 0.0,
    probability: float = 0.5,
    modalities: Sequence[str] | None = None,
    reference: Any = None,
    random_state: int = 0,
    train: Any = None,
    delta: float = 0.05,
    confidence: float = 0.95,
    **options: Any,
) -> TrustDiagnostics:
    """Measure whether a fitted model trusts the modalities that are right, and what that does to its bound.

    Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023): weights that vary with the sample
    have a smaller bound on the loss than equal ones if each is, on average, what it would be in static fusion (eq. 5)
    and r(weight, own loss) ≤ 0 for every modality (eq. 6). Both are measured here, per modality, with intervals.

    Args:
        model: a fitted `FusionClassifier`, `FusionRegressor`, `BayesFusion` or `training.Model` whose method gives
            weights and opinions.
        X, y: labelled samples that the model was not trained on; y by default those of the `Samples`. What is missing
            is left out, modality by modality.
        corruption, level, probability, modalities, random_state, options: measure on corrupted samples, as in
            `corrupt`; at level 0, the default, on the samples as they are.
        reference: as in `robustness_curve`.
        train: `Samples` with y, or a pair (X, y): the samples the model was trained on, and the whole bound of eq. 2
            is computed, for classifiers with linear heads.
        delta: the probability with which that bound may fail.
        confidence: of the intervals of r.

    >>> from consilience import FusionClassifier, load_data
    >>> data = load_data("digits")
    >>> model = FusionClassifier("late", epochs=2).fit(data.train, data.train.y)
    >>> trust_diagnostics(model, data.test).verdict
    'the weights are static: they do not depend on what a sample looks like, so there is no correlation. ...'
    """
    truth = _truth(X, y, "X")
    if level != 0:  # a negative one is refused where all levels are checked
        scale = getattr(model, "reference_", None) if reference is None else reference
        if scale is None and hasattr(model, "reference"):
            scale = model.reference()
        X = Corruptor(X if scale is None else scale).apply(
            X,
            corruption,
            level,
            probability=probability,
            modalities=modalities,
            random_state=random_state,
            **options,
        )
    elif options:
        raise InputError(f"trust_diagnostics: {', '.join(options)} belongs to a corruption; give a level above 0")
    record = record_experts(model, X, truth)
    bound = None if train is None else _bound(model, record, train, delta, random_state)
    where = {"corruption": corruption, "level": float(level)} if level else {}
    return diagnose(record, confidence=confidence, bound=bound, **where)


def diagnose(
    record: ExpertRecord, *, confidence: float = 0.95, bound: Bound | None = None, **where: Any
) -> TrustDiagnostics:
    """The diagnostics of weights and losses that are known already; where: the corruption and level they are from."""
    if not 0 < confidence < 1:
        raise InputError(f"trust diagnostics: confidence must be between 0 and 1, got {confidence!r}")
    there = record.present
    counted = there.any(axis=1)
    if not counted.any():
        raise InputError("trust diagnostics need samples with at least one modality, and there are none")
    trust = trust_from_weights(record.weights, there)
    equal = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    ours, static = bound_terms(trust, record.losses, there), bound_terms(equal, record.losses, there)
    gaps = ours.term_loss + ours.term_covariance - static.term_loss - static.term_covariance
    unmoved = static_weights(record.weights, there)
    rows = []
    for place, name in enumerate(record.names):
        seen, own = there[:, place], record.losses[:, place]
        undefined = Correlation(math.nan, math.nan, math.nan, int(seen.sum()))
        moves = not unmoved[place]
        by_weight, by_trust = (
            correlation(values[:, place], own, seen, confidence=confidence) if moves else undefined
            for values in (record.weights, trust)
        )
        rows.append(
            ModalityTrust(
                modality=name,
                samples=int(seen.sum()),
                share=float(ours.share[place]),
                correlation=by_weight,
                trust_correlation=by_trust,
                static=bool(unmoved[place]),
                weight=float(record.weights[seen, place].mean()) if seen.any() else 0.0,
                trust=float(ours.weight[place]),
                static_trust=float(static.weight[place]),
                loss=float(ours.loss[place]),
                covariance=float(ours.covariance[place]),
                gap=float(gaps[place]),
            )
        )
    fused, averaged = (float(losses[counted].mean()) for losses in (record.fused, record.averaged))
    return TrustDiagnostics(tuple(rows), int(counted.sum()), fused, averaged, bound, confidence=confidence, **where)


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

    Attributes:
        loss: Term-L, with the losses of training.
        complexity: Term-C.
        covariance: Term-Cov.
        confidence: The last term.
        n: Training samples.
        delta: The probability with which the bound may fail.
        guessing: ln K, the loss of giving every class the same probability.
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
        """Whether the bound is no better than the loss of giving every class the same probability."""
        return self.total >= self.guessing

    @property
    def words(self) -> str:
        """The bound in a sentence."""
        parts = (
            f"Term-L {self.loss:.3f}, Term-C {self.complexity:.3f}, Term-Cov {signed(self.covariance, 3)}, "
            f"confidence {self.confidence:.3f}"
        )
        about = (
            f"which is vacuous: to answer at random costs {self.guessing:.3f}"
            if self.vacuous
            else f"less than the {self.guessing:.3f} of answering at random"
        )
        return f"eq. 2 bounds the loss by {self.total:.3f} ({parts}), {about}"


def _truth(X: Any, y: Any, what: str) -> Any:
    truth = X.y if y is None and isinstance(X, Samples) else y
    if truth is None:
        raise InputError(f"trust diagnostics need the targets of {what}, and the samples carry none")
    return truth


def _bound(model: Any, record: ExpertRecord, train: Any, delta: float, seed: int) -> Bound:
    """Eq. 2 with the losses, the features and the number of the training samples, and the trust of the others."""
    if not isinstance(train, Samples) and not (isinstance(train, tuple | list) and len(train) == 2):
        raise InputError(f"train must be Samples with y, or a pair (X, y), got {type(train).__name__}")
    X, y = (train, None) if isinstance(train, Samples) else train
    inner = getattr(model, "model_", model)
    heads = linear_heads(getattr(inner, "method", None), record.names)
    if heads is None or not inner.task.classification:
        raise UnsupportedError(
            "the bound of eq. 2 is for classifiers whose experts have linear heads, such as those of late, qmf or "
            f"bayes; {getattr(inner, 'name', type(model).__name__)!r} is none: leave train out"
        )
    with seen_by(heads) as features:
        learned = record_experts(model, X, _truth(X, y, "train"))
    import torch

    trust = trust_from_weights(record.weights, record.present)
    terms = bound_terms(trust, record.losses, record.present)
    fitted = bound_terms(trust_from_weights(learned.weights, learned.present), learned.losses, learned.present)
    complexity = 0.0
    for place, (name, head) in enumerate(heads.items()):
        seen = learned.present[:, place]
        reached = torch.cat(features[name]).numpy()
        if len(reached) != len(seen):
            raise UnsupportedError(
                f"the bound of eq. 2 needs heads that are called once per sample; that of {name!r} is not"
            )
        if seen.any():
            found = head_complexity(reached[seen], head.weight, head.bias, random_state=seed)
            complexity += float(terms.share[place] * terms.weight[place]) * found.estimate
    n = int(learned.present.any(axis=1).sum())
    return Bound(
        loss=float((terms.share * terms.weight * fitted.loss).sum()),
        complexity=complexity,
        covariance=float(terms.term_covariance.sum()),
        confidence=confidence_term(len(record.names), n, delta),
        n=n,
        delta=delta,
        guessing=math.log(inner.task.outputs),
    )
