"""Data sets in which one class is so common, or so rare, that an accuracy says little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A class with a larger share of the samples makes the accuracy of a model that always names it look good.
LARGEST_SHARE = 0.6
# Of several classes, one with a smaller part of an even share hardly counts in an accuracy.
SMALLEST_PART = 0.25
_UNMOVED = "balanced_accuracy or auroc"


def largest_class(about: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the most common class of a set and its share of the samples; None for a regression.

    Args:
        about: What `DataSet.describe` returned.

    >>> largest_class({"classes": [{"class": "ok", "share": 0.9}, {"class": "fault", "share": 0.1}]})
    ('ok', 0.9)
    """
    classes = about.get("classes") or []
    if not classes:
        return None
    most = max(classes, key=lambda known: known["share"])
    return str(most["class"]), float(most["share"])


def rarest_class(about: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the rarest class of a set and its share, if that is a small part of an even share; else None.

    >>> shares = {"a": 0.55, "b": 0.41, "c": 0.04}
    >>> rarest_class({"classes": [{"class": name, "share": share} for name, share in shares.items()]})
    ('c', 0.04)
    """
    classes = about.get("classes") or []
    if not classes:
        return None
    least = min(classes, key=lambda known: known["share"])
    return (str(least["class"]), float(least["share"])) if least["share"] < SMALLEST_PART / len(classes) else None


def imbalance_notes(sets: Mapping[str, Mapping[str, Any]], metric: str) -> list[str]:
    """Return a sentence for each set whose largest or smallest class makes an accuracy misleading.

    Args:
        sets: Name → what `DataSet.describe` returned.
        metric: The metric that is shown; only accuracies are misleading.

    >>> imbalance_notes({"pump": {"classes": [{"class": "ok", "share": 0.9}, {"class": "fault", "share": 0.1}]}}, "ece")
    []
    """
    if metric != "accuracy":
        return []
    notes = []
    for name, about in sets.items():
        largest, rarest = largest_class(about), rarest_class(about)
        if largest is not None and largest[1] > LARGEST_SHARE:
            share = f"{100 * largest[1]:.1f} %"
            rare = "" if rarest is None else f", and only {100 * rarest[1]:.1f} % of class {rarest[0]}"
            notes.append(
                f"On {name}, {share} of the samples are of class {largest[0]}{rare}: always answering {largest[0]} "
                f"has an accuracy of about {share}. Compare by --metric {_UNMOVED}, to which that "
                "answer is no better than chance; --class-weight balanced trains rare classes as much as common ones."
            )
        elif rarest is not None:
            notes.append(
                f"On {name}, only {100 * rarest[1]:.1f} % of the samples are of class {rarest[0]}: an accuracy hardly "
                f"depends on whether they are found. Compare by --metric {_UNMOVED}, to which every class counts as "
                "much; --class-weight balanced trains rare classes as much as common ones."
            )
    return notes
