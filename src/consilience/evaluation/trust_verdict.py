"""Trust diagnostics in words: the verdict, and the rows of the printed table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from consilience.evaluation.trust import signed

if TYPE_CHECKING:
    from consilience.evaluation.diagnostics import ModalityTrust, TrustDiagnostics

Reading = Literal["meets", "chance", "fails", "static", "unknown"]
READINGS: dict[Reading, str] = {
    "meets": "r ≤ 0: trusted less when it is wrong",
    "chance": "r > 0, but chance explains it",
    "fails": "r > 0: trusted more when it is wrong",
    "static": "static: no correlation",
    "unknown": "no correlation: too few samples, or losses all alike",
}


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


def say_verdict_on(found: TrustDiagnostics) -> str:
    """Return the result of trust diagnostics in words."""
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
    return f"{first}. {_bound_in_words(found)}{_losses_in_words(found)}{bound}"


def _bound_in_words(found: TrustDiagnostics) -> str:
    """The bound on the loss of the method's own output, against that of static weights of the same means."""
    if found.sum_bound is None:
        return f"Theorem 1 does not bound its loss: {found.no_bound}."
    bound = found.sum_bound
    first = f"Its output is Σ w·f, whose loss theorem 1 bounds by {bound.total:.3f}"
    if abs(bound.gap) < 0.0005:
        return f"{first}, as with static weights of the same means."
    way = "lower" if bound.gap < 0 else "higher"
    rest = bound.shortfall - bound.static_shortfall
    given = "" if all(each.share == 1 for each in found.modalities) else " given what is present"
    why = f"Term-Cov{given} is {signed(bound.moving, 3)}"
    if abs(rest) >= 0.0005:
        why += f", and weights that sum to less than one add {signed(rest, 3)}"
    return f"{first}, {abs(bound.gap):.3f} {way} than with static weights of the same means: {why}."


def _losses_in_words(found: TrustDiagnostics) -> str:
    """The measured losses of dynamic and static weights, as they are and at their best temperatures."""
    measured = found.comparison
    if measured is None or not found.summed or all(each.static for each in found.modalities):
        return ""
    words = f" Measured, its loss is {measured.loss:.3f}, with static weights {measured.static_loss:.3f}"
    if measured.best_loss is not None:
        words += f"; each at its best temperature, {measured.best_loss:.3f} and {measured.best_static_loss:.3f}"
    return f"{words}."


def _say_correlations(modalities: Iterable[ModalityTrust]) -> str:
    return say_list(
        f"on {each.modality} r = {signed(each.correlation.r)} ({_interval(each)}, n = {each.samples})"
        for each in modalities
    )


def _interval(modality: ModalityTrust) -> str:
    return f"{signed(modality.correlation.low)} … {signed(modality.correlation.high)}"


def say_row(modality: ModalityTrust) -> tuple[str, ...]:
    """Return one modality as a row of the printed table."""
    if modality.correlation.defined:
        r, between = signed(modality.correlation.r), _interval(modality)
    else:
        r, between = ("static" if modality.static else "none"), "–"
    weight, loss, trust, equal = (
        f"{value:.3f}" for value in (modality.weight, modality.loss, modality.trust, modality.static_trust)
    )
    covariance = signed(modality.covariance, 3)
    return modality.modality, str(modality.samples), r, between, weight, loss, covariance, trust, equal
