"""Does a method trust the modalities that are right? The theorems of quality-aware fusion, as measurements.

Zhang et al., Provable Dynamic Fusion for Low-Quality Multimodal Data (2023): eq. 2 bounds the loss of a fusion, and
theorem 2 asks for weights that fall when their modality is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from consilience.core.correlation import Correlation, correlation, static_weights
from consilience.core.errors import InputError
from consilience.core.samples import Samples
from consilience.core.settings import Fraction, Interval, NonNegativeFloat, OwnCheck, checked
from consilience.corruption import Corruptor
from consilience.evaluation.rademacher import Bound, bound_of
from consilience.evaluation.trust import ExpertRecord, bound_terms, record_experts, signed, targets_of

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
    delta: Annotated[float, Interval(0, 1, above=True, below=True)] = 0.05,
    confidence: Annotated[float, Interval(0, 1, above=True, below=True)] = 0.95,
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
        corruption, level, probability, modalities, random_state, **options: measure on corrupted samples, as in
            `corrupt`; at level 0, the default, on the samples as they are.
        reference: as in `robustness_curve`.
        train: `Samples` with y, or a pair (X, y): the samples the model was trained on, and the whole bound of eq. 2
            is computed, for classifiers with linear heads.
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
    trust, ours = record.trust, record.terms
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


Reading = Literal["meets", "chance", "fails", "static", "unknown"]
READINGS: dict[Reading, str] = {
    "meets": "r ≤ 0: trusted less when it is wrong",
    "chance": "r > 0, but chance explains it",
    "fails": "r > 0: trusted more when it is wrong",
    "static": "static: no correlation",
    "unknown": "no correlation: too few samples, or losses all alike",
}


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
        weight, trust: E[w] and E[trust].
        static_trust: E[trust] of equal weights over the present modalities.
        loss: The expert's own.
        covariance: Cov(trust, own loss).
        gap: Its part in the gap to static fusion.
    """

    modality: str
    samples: int
    share: float
    correlation: Correlation
    trust_correlation: Correlation
    static: bool
    weight: float
    trust: float
    static_trust: float
    loss: float
    covariance: float
    gap: float

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
        static_loss: Of the mean of the same experts' opinions.
        bound: The whole of eq. 2, if the training samples were given.
        corruption, level: Of the samples.
        confidence: Of the intervals of r.
    """

    modalities: tuple[ModalityTrust, ...]
    n: int
    loss: float
    static_loss: float
    bound: Bound | None = None
    corruption: str | Mapping[str, str] | None = None
    level: float = 0.0
    confidence: float = 0.95

    @property
    def term_loss(self) -> float:
        """Term-L of eq. 2: Σ_m E(w_m)·loss_m, of trust, with the losses of these samples."""
        return sum(each.share * each.trust * each.loss for each in self.modalities)

    @property
    def term_covariance(self) -> float:
        """Term-Cov of eq. 2: Σ_m Cov(w_m, loss_m), of trust."""
        return sum(each.share * each.covariance for each in self.modalities)

    @property
    def gap(self) -> float:
        """Term-L + Term-Cov less the same of equal weights: negative where dynamic fusion has the smaller bound."""
        return sum(each.gap for each in self.modalities)

    @property
    def meets_condition(self) -> bool | None:
        """Whether r ≤ 0 for every modality that has a correlation; None where none has."""
        judged = [each.correlation.r <= 0 for each in self.modalities if each.reading not in ("static", "unknown")]
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The result in words."""
        return _verdict(self)

    def table(self) -> polars.DataFrame:
        """Return one row per modality; r, low and high are null where there is no correlation, `reading` says why."""
        import polars as pl

        kept = ("weight", "trust", "static_trust", "loss", "covariance", "gap")
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
            **{name: getattr(self, name) for name in ("n", "loss", "static_loss", "level", "confidence")},
            "corruption": dict(self.corruption) if isinstance(self.corruption, Mapping) else self.corruption,
            **{name: getattr(self, name) for name in ("term_loss", "term_covariance", "gap", "verdict")},
            "bound": None if self.bound is None else {**asdict(self.bound), "total": self.bound.total},
        }

    def __repr__(self) -> str:
        return f"TrustDiagnostics({self.verdict})"

    def __str__(self) -> str:
        interval = f"{100 * self.confidence:g} % interval"
        header = ("modality", "samples", "r(w, loss)", interval, "E[trust]", "static", "own loss", "Cov", "gap")
        rows = [header, *map(_row, self.modalities)]
        first, *widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join([name.ljust(first), *map(str.rjust, cells, widths)]).rstrip() for name, *cells in rows]
        lines.insert(1, "  ".join("─" * width for width in (first, *widths)))
        return "\n".join([*lines, "", self.verdict])


def say_list(items: Iterable[str]) -> str:
    """Return words joined as in a sentence.

    >>> say_list(["a", "b", "c"]), say_list(["a"]), say_list([])
    ('a, b and c', 'a', '')
    """
    *first, last = [*items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def say_condition(met: int, judged: int, static: int = 0) -> str:
    """Return on how many modalities theorem 2's condition holds, as the beginning of a sentence.

    >>> say_condition(3, 4)
    "meets theorem 2's condition (r ≤ 0) on 3 of 4 modalities"
    >>> say_condition(0, 1, static=1)
    "meets theorem 2's condition (r ≤ 0) on none of 1 modality with a correlation"
    """
    where = f"{judged} modalit{'y' if judged == 1 else 'ies'}" + (" with a correlation" if static else "")
    how_many = "none of" if not met else f"{met} of" if met < judged else "the" if judged == 1 else "all"
    return f"meets theorem 2's condition (r ≤ 0) on {how_many} {where}"


def _verdict(found: TrustDiagnostics) -> str:
    by_reading: dict[Reading, list[ModalityTrust]] = {reading: [] for reading in READINGS}
    for each in found.modalities:
        by_reading[each.reading].append(each)
    static, unknown = (say_list(each.modality for each in by_reading[kind]) for kind in ("static", "unknown"))
    unjudged = len(by_reading["static"]) + len(by_reading["unknown"])
    if judged := len(found.modalities) - unjudged:
        parts = [say_condition(len(by_reading["meets"]), judged, unjudged)]
        if wrong := by_reading["fails"]:
            which = f"{wrong[0].modality} more when it is" if len(wrong) == 1 else "them more when they are"
            parts.append(f"{_say_correlations(wrong)}: this method trusts {which} wrong")
        if by_reading["chance"]:
            parts.append(f"{_say_correlations(by_reading['chance'])}, which chance explains")
        if static:
            parts.append(f"on {static} its weights are static")
        if unknown:
            parts.append(f"on {unknown} there is no correlation to measure")
        first = "; ".join(parts)
    elif static:
        first = "the weights are static: they do not depend on what a sample looks like, so there is no correlation"
    else:
        first = "there is no correlation to measure: too few samples, or losses that are all alike"
    bound = "" if found.bound is None else f" {found.bound.words[0].upper()}{found.bound.words[1:]}."
    return f"{first}. {_gap_in_words(found)}{bound}"


def _gap_in_words(found: TrustDiagnostics) -> str:
    """The gap and where it comes from: weights that move with the loss (eq. 6), or other means (eq. 5)."""
    if abs(found.gap) < 0.0005:
        return f"The bound on its loss, {found.term_loss + found.term_covariance:.3f}, is that of equal weights."
    moving, rest = signed(found.term_covariance, 3), signed(found.gap - found.term_covariance, 3)
    way = "lower" if found.gap < 0 else "higher"
    return (
        f"The bound on its loss is {abs(found.gap):.3f} {way} than with equal weights: {moving} is Term-Cov, {rest} "
        "comes of weights that are not equal on average."
    )


def _say_correlations(modalities: Iterable[ModalityTrust]) -> str:
    return say_list(
        f"on {each.modality} r = {signed(each.correlation.r)} ({_interval(each)}, n = {each.samples})"
        for each in modalities
    )


def _interval(modality: ModalityTrust) -> str:
    return f"{signed(modality.correlation.low)} … {signed(modality.correlation.high)}"


def _row(modality: ModalityTrust) -> tuple[str, ...]:
    if modality.correlation.defined:
        r, between = signed(modality.correlation.r), _interval(modality)
    else:
        r, between = ("static" if modality.static else "none"), "–"
    numbers = (f"{value:.3f}" for value in (modality.trust, modality.static_trust, modality.loss))
    gaps = (signed(value, 3) for value in (modality.covariance, modality.gap))
    return modality.modality, str(modality.samples), r, between, *numbers, *gaps
