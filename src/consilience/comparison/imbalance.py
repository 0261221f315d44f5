"""Data sets in which one class is so common that an accuracy says little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A class with a larger share of the samples makes the accuracy of a model that always names it look good.
LARGEST_SHARE = 0.6
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


def imbalance_notes(sets: Mapping[str, Mapping[str, Any]], metric: str) -> list[str]:
    """Return a sentence for each set whose largest class makes an accuracy misleading.

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
        found = largest_class(about)
        if found is not None and found[1] > LARGEST_SHARE:
            share = f"{100 * found[1]:.1f} %"
            notes.append(
                f"On {name}, {share} of the samples are of class {found[0]}, more than {100 * LARGEST_SHARE:.0f} %: "
                f"always answering so has an accuracy of about {share}. Compare by --metric {_UNMOVED}, to which that "
                "answer is no better than chance; --class-weight balanced trains rare classes as much as common ones."
            )
    return notes
