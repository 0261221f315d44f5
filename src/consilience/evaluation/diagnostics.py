"""Does a method trust the modalities that are right? The theorems of quality-aware fusion, as measurements.

Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023): eq. 2 bounds the loss of a fusion, and
theorem 2 asks for weights that fall when their modality is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from consilience.core.correlation import Correlation, correlation, static_weights
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Fraction, NonNegativeFloat, OwnCheck, Share, checked
from consilience.corruption import Corruptor
from consilience.evaluation.model_scores import read_for_corruption
from consilience.evaluation.rademacher import Bound, bound_of
from consilience.evaluation.static_comparison import StaticComparison, compare_with_static
from consilience.evaluation.trust import ExpertRecord, record_experts, targets_of
from consilience.evaluation.trust_verdict import READINGS, Reading, say_row, say_verdict_on
from consilience.evaluation.weighted_sum import SumBound, bound_terms

if TYPE_CHECKING:
    import polars


@checked
def trust_diagnostics(
    model: Any,
    X: Annotated[Mapping[str, Any] | Samples, OwnCheck],
    y: Any = None,
    *,
    corruption: str | Mapping[str, str] | None = None,
    level: NonNegativeFloat = 0.0,
    probability: Fraction = 0.5,
    modalities: str | Iterable[str] | None = None,
    reference: Any = None,
    random_state: int = 0,
    train: Any = None,
    delta: Share = 0.05,
    confidence: Share = 0.95,
    **options: Any,
) -> TrustDiagnostics:
    """Measure whether a fitted model trusts the modalities that are right, and what that does to its loss.

    Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023): weights that vary with the sample
    have a smaller bound on the loss than constant weights of the same means (eq. 5) if r(weight, own loss) ≤ 0 for
    every modality (eq. 6). The correlations are measured per modality, with intervals. The bound is given for methods
    whose output is the weighted sum Σ w·f with weights ≥ 0; `no_bound` says why others have none.

    Args:
        model: a fitted `FusionClassifier`, `FusionRegressor`, `BayesFusion` or `training.Model` whose method gives
            weights and opinions.
        X, y: labelled samples that the model was not trained on; y by default those of the `Samples`. What is missing
            is left out, modality by modality.
        corruption, level, probability, modalities, random_state, **options: measure on corrupted samples, as in
            `corrupt`; at level 0, the default, on the samples as they are.
        reference: as in `robustness_curve`.
        train: `Samples` with y, or a pair (X, y): the samples the model was trained on, and the whole bound of eq. 2
            is computed, for classifiers with linear heads whose output is a weighted sum.
        delta: the probability with which that bound may fail.
        confidence: of the intervals of r.

    Returns:
        The measurements of each modality as a table, and a verdict in words.

    Example:
        >>> from consilience import FusionClassifier, load_data
        >>> data = load_data("digits")
        >>> model = FusionClassifier("late", epochs=2).fit(data.train, data.train.y)
        >>> trust_diagnostics(model, data.test).verdict
        'the weights are static: they do not depend on what a sample looks like, so there is no correlation. ...'
    """
    truth = targets_of(X, y, "X")
    if level != 0:  # a negative one is refused where all levels are checked
        scale = getattr(model, "reference_", None) if reference is None else reference
        if scale is None and hasattr(model, "reference"):
            scale = model.reference()
        X, options = read_for_corruption(model, X, options)
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
    bound = None if train is None else bound_of(model, record, train, delta, random_state)
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
    trust, raw, ours = record.trust, record.terms, record.trust_terms
    equal = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    static = bound_terms(equal, record.losses, there)
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
                share=float(raw.share[place]),
                correlation=by_weight,
                trust_correlation=by_trust,
                static=bool(unmoved[place]),
                weight=float(raw.weight[place]),
                loss=float(raw.loss[place]),
                covariance=float(raw.covariance[place]),
                trust=float(ours.weight[place]),
                static_trust=float(static.weight[place]),
                trust_covariance=float(ours.covariance[place]),
                trust_gap=float(gaps[place]),
            )
        )
    return TrustDiagnostics(
        tuple(rows),
        int(counted.sum()),
        float(record.fused[counted].mean()),
        compare_with_static(record),
        record.sum_bound,
        record.unbounded,
        bound,
        summed=record.summed,
        confidence=confidence,
        **where,
    )


@dataclass(frozen=True)
class ModalityTrust:
    """How a modality's weight depends on its own loss, over the samples that have it.

    Attributes:
        modality: Its name.
        samples: How many have it.
        share: Of all samples.
        correlation: r(w, own loss) of the raw weights w, as in theorem 2.
        trust_correlation: The same of trust.
        static: Whether the weight depends only on which modalities are present.
        weight: E[w], which is also the static weight that theorem 2 compares with.
        loss: The expert's own.
        covariance: Cov(w, own loss).
        trust: E[trust].
        static_trust: E[trust] of equal weights over the present modalities.
        trust_covariance: Cov(trust, own loss).
        trust_gap: Its part in the mean of Σ trust · own loss, less the same with equal weights.
    """

    modality: str
    samples: int
    share: float
    correlation: Correlation
    trust_correlation: Correlation
    static: bool
    weight: float
    loss: float
    covariance: float
    trust: float
    static_trust: float
    trust_covariance: float
    trust_gap: float

    @property
    def reading(self) -> Reading:
        """Whether theorem 2's condition r ≤ 0 is met here."""
        if self.static:
            return "static"
        if not self.correlation.defined:
            return "unknown"
        return "meets" if self.correlation.r <= 0 else "fails" if self.correlation.positive else "chance"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a correlation that does not exist is None."""
        plain = asdict(self)
        for name in ("correlation", "trust_correlation"):
            ends = getattr(self, name)._asdict()
            plain[name] = {key: None if math.isnan(value) else value for key, value in ends.items()}
        return plain | {"reading": self.reading}


@dataclass(frozen=True, repr=False)
class TrustDiagnostics:
    """The result of `trust_diagnostics`: `verdict` in words, `table()`, and eq. 2's terms.

    Attributes:
        modalities: What was measured, modality by modality.
        n: Samples with at least one modality.
        loss: Of the method's own output.
        comparison: The measured losses of dynamic and static weights; None where opinions were not kept.
        sum_bound: The bound on the loss of the method's own output on these samples; None where there is none.
        no_bound: Why there is none.
        bound: The whole of eq. 2, if the training samples were given.
        summed: Whether the output is the weighted sum Σ w·f.
        corruption, level: Of the samples.
        confidence: Of the intervals of r.
    """

    modalities: tuple[ModalityTrust, ...]
    n: int
    loss: float
    comparison: StaticComparison | None = None
    sum_bound: SumBound | None = None
    no_bound: str | None = None
    bound: Bound | None = None
    summed: bool = False
    corruption: str | Mapping[str, str] | None = None
    level: float = 0.0
    confidence: float = 0.95

    @property
    def static_loss(self) -> float | None:
        """The loss of the same experts with static weights of the same means, Σ E[w]·f."""
        return None if self.comparison is None else self.comparison.static_loss

    @property
    def term_loss(self) -> float:
        """Term-L of eq. 2: Σ_m E(w_m)·loss_m, with the losses of these samples."""
        return sum(each.share * each.weight * each.loss for each in self.modalities)

    @property
    def term_covariance(self) -> float:
        """Term-Cov of eq. 2: Σ_m Cov(w_m, loss_m)."""
        return sum(each.share * each.covariance for each in self.modalities)

    @property
    def gap(self) -> float | None:
        """The bound less that of static weights of the same means: negative where dynamic ones have the smaller."""
        return None if self.sum_bound is None else self.sum_bound.gap

    @property
    def meets_condition(self) -> bool | None:
        """Whether r ≤ 0 for every modality that has a correlation; None where none has."""
        judged = [each.correlation.r <= 0 for each in self.modalities if each.reading not in ("static", "unknown")]
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The result in words."""
        return say_verdict_on(self)

    def table(self) -> polars.DataFrame:
        """Return one row per modality; r, low and high are null where there is no correlation, `reading` says why."""
        import polars as pl

        kept = ("weight", "loss", "covariance", "trust", "static_trust", "trust_covariance", "trust_gap")
        rows = [
            {
                "modality": each.modality,
                "samples": each.samples,
                **{name: getattr(each.correlation, name) for name in ("r", "low", "high")},
                "r_trust": each.trust_correlation.r,
                **{name: getattr(each, name) for name in kept},
                "reading": READINGS[each.reading],
            }
            for each in self.modalities
        ]
        return pl.DataFrame(rows).with_columns(pl.col("r", "low", "high", "r_trust").fill_nan(None))

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain values for JSON."""
        return {
            "modalities": [each.to_dict() for each in self.modalities],
            **{
                name: getattr(self, name)
                for name in ("n", "loss", "static_loss", "level", "confidence", "summed", "no_bound")
            },
            "comparison": None if self.comparison is None else asdict(self.comparison),
            "sum_bound": None if self.sum_bound is None else self.sum_bound.to_dict(),
            "corruption": dict(self.corruption) if isinstance(self.corruption, Mapping) else self.corruption,
            **{name: getattr(self, name) for name in ("term_loss", "term_covariance", "gap", "verdict")},
            "bound": None if self.bound is None else {**asdict(self.bound), "total": self.bound.total},
        }

    def __repr__(self) -> str:
        return f"TrustDiagnostics({self.verdict})"

    def __str__(self) -> str:
        interval = f"{100 * self.confidence:g} % interval"
        header = (
            "modality",
            "samples",
            "r(w, loss)",
            interval,
            "E[w]",
            "own loss",
            "Cov(w, loss)",
            "E[trust]",
            "equal",
        )
        rows = [header, *map(say_row, self.modalities)]
        first, *widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join([name.ljust(first), *map(str.rjust, cells, widths)]).rstrip() for name, *cells in rows]
        lines.insert(1, "  ".join("─" * width for width in (first, *widths)))
        return "\n".join([*lines, "", self.verdict])
