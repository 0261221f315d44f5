"""What trust diagnostics found: modality by modality, as a table, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.correlation import Correlation

if TYPE_CHECKING:
    import polars

    from consilience.evaluation.diagnostics import Bound

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
    """How one modality's weight goes with its own loss, over the samples that have it.

    samples: how many · share: of all samples · correlation: r(w, own loss) of the raw weights w, of which theorem 2
    speaks · trust_correlation: the same of trust · static: the weight depends on nothing but who is present · weight:
    E[w] · trust: E[trust] · static_trust: of equal weights over what is present · loss: the expert's own ·
    covariance: Cov(trust, own loss) · gap: its part in the gap to static fusion.
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
    """What `trust_diagnostics` found: `verdict` in words, `table()`, and eq. 2's terms.

    n: samples with at least one modality · loss: of the method's own output · static_loss: of the mean of the same
    experts' opinions · bound: the whole of eq. 2, where the training samples were given · confidence: of the intervals
    of r.
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
        return sum(one.share * one.trust * one.loss for one in self.modalities)

    @property
    def term_covariance(self) -> float:
        """Term-Cov of eq. 2: Σ_m Cov(w_m, loss_m), of trust."""
        return sum(one.share * one.covariance for one in self.modalities)

    @property
    def gap(self) -> float:
        """Term-L + Term-Cov less the same of equal weights: negative where dynamic fusion has the smaller bound."""
        return sum(one.gap for one in self.modalities)

    @property
    def meets_condition(self) -> bool | None:
        """Whether r ≤ 0 for every modality that has a correlation; None where none has."""
        judged = [one.correlation.r <= 0 for one in self.modalities if one.reading not in ("static", "unknown")]
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The findings in words."""
        return _verdict(self)

    def table(self) -> polars.DataFrame:
        """One row a modality; r, low and high are null where there is no correlation, and `reading` says why."""
        import polars as pl

        rows = [
            {
                "modality": one.modality,
                "samples": one.samples,
                **{name: getattr(one.correlation, name) for name in ("r", "low", "high")},
                "r_trust": one.trust_correlation.r,
                **{
                    name: getattr(one, name)
                    for name in ("weight", "trust", "static_trust", "loss", "covariance", "gap")
                },
                "reading": READINGS[one.reading],
            }
            for one in self.modalities
        ]
        return pl.DataFrame(rows).with_columns(pl.col("r", "low", "high", "r_trust").fill_nan(None))

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain values for JSON."""
        return {
            "modalities": [one.to_dict() for one in self.modalities],
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
        rows = [header, *(_row(one) for one in self.modalities)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(_pad(row, widths)).rstrip() for row in rows]
        lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, "", self.verdict])


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, written as in print.

    >>> signed(-0.314), signed(0.0), signed(-0.0001)
    ('−0.31', '0.00', '0.00')
    """
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]


def listed(words: Iterable[str]) -> str:
    """Words joined as in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def say_condition(met: int, judged: int, static: int = 0) -> str:
    """On how many modalities theorem 2's condition holds, as the beginning of a sentence.

    >>> say_condition(3, 4)
    "meets theorem 2's condition (r ≤ 0) on 3 of 4 modalities"
    >>> say_condition(0, 1, static=1)
    "meets theorem 2's condition (r ≤ 0) on none of 1 modality with a correlation"
    """
    where = f"{judged} modalit{'y' if judged == 1 else 'ies'}" + (" with a correlation" if static else "")
    how_many = "none of" if not met else f"{met} of" if met < judged else "the" if judged == 1 else "all"
    return f"meets theorem 2's condition (r ≤ 0) on {how_many} {where}"


def _verdict(found: TrustDiagnostics) -> str:
    by_reading: dict[Reading, list[ModalityTrust]] = {}
    for one in found.modalities:
        by_reading.setdefault(one.reading, []).append(one)
    unjudged = [*by_reading.get("static", []), *by_reading.get("unknown", [])]
    judged = len(found.modalities) - len(unjudged)
    if judged:
        parts = [say_condition(len(by_reading.get("meets", [])), judged, len(unjudged))]
        if wrong := by_reading.get("fails"):
            told = [f"on {one.modality} r = {_told(one)}" for one in wrong]
            which = f"{wrong[0].modality} more when it is" if len(wrong) == 1 else "them more when they are"
            parts.append(f"{listed(told)}: this method trusts {which} wrong")
        if "chance" in by_reading:
            told = [f"on {one.modality} r = {_told(one)}" for one in by_reading["chance"]]
            parts.append(f"{listed(told)}, which chance explains")
        if "static" in by_reading:
            parts.append(f"on {listed(one.modality for one in by_reading['static'])} its weights are static")
        if "unknown" in by_reading:
            parts.append(
                f"on {listed(one.modality for one in by_reading['unknown'])} there is no correlation to measure"
            )
        first = "; ".join(parts)
    elif "static" in by_reading:
        first = "the weights are static: they do not depend on what a sample looks like, so there is no correlation"
    else:
        first = "there is no correlation to measure: too few samples, or losses that are all alike"
    return f"{first}. {_gap_in_words(found)}" + (f" {_sentence(found.bound.words)}" if found.bound else "")


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


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _told(one: ModalityTrust) -> str:
    low, high = signed(one.correlation.low), signed(one.correlation.high)
    return f"{signed(one.correlation.r)} ({low} … {high}, n = {one.samples})"


def _row(one: ModalityTrust) -> tuple[str, ...]:
    if one.correlation.defined:
        r, between = signed(one.correlation.r), f"{signed(one.correlation.low)} … {signed(one.correlation.high)}"
    else:
        r, between = ("static" if one.static else "none"), "–"
    numbers = (f"{one.trust:.3f}", f"{one.static_trust:.3f}", f"{one.loss:.3f}")
    return one.modality, str(one.samples), r, between, *numbers, signed(one.covariance, 3), signed(one.gap, 3)


def _pad(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths))
    ]
