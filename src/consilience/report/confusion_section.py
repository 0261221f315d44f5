"""The section "What the chosen method confuses": a sentence and the confusion matrix of each set."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.comparison.results import Findings
from consilience.report.wording import one_line, say_list

MOST_COLUMNS = 24  # a larger matrix is not shown, only its largest confusions
_NAMED = 3
RARELY = 0.5  # a class of which fewer samples are recognised is rarely found


@dataclass(frozen=True)
class ConfusionPart:
    """What the section says of one set.

    Attributes:
        set: The set.
        method: The chosen method.
        words: The largest confusions in a sentence.
        labels: The classes.
        rows: For each actual class its cells, as text and share, and its number of samples; empty if there are too
            many classes for a table.
    """

    set: str
    method: str
    words: str
    labels: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, float], ...], int], ...]


def confusion_parts(findings: Findings) -> list[ConfusionPart]:
    """Return the matrix of each set that has one."""
    parts = []
    for name in findings.sets:
        table = findings.confusion.filter(set=name)
        if not len(table):
            continue
        labels = tuple(table["actual"].unique(maintain_order=True))
        cells = {(row["actual"], row["predicted"]): row for row in table.iter_rows(named=True)}
        rows = tuple(
            (
                actual,
                tuple((_say_share(cells[actual, other]["share"]), cells[actual, other]["share"]) for other in labels),
                sum(cells[actual, other]["samples"] for other in labels),
            )
            for actual in labels
        )
        method = table["method"][0]
        parts.append(
            ConfusionPart(name, method, _words(method, cells), labels, rows if len(labels) <= MOST_COLUMNS else ())
        )
    return parts


def say_rarely_found(findings: Findings, data_set: str) -> str:
    """Return which classes the chosen method does not recognise in most of their clean test samples; "" if none."""
    counts: dict[str, int] = {}
    recall: dict[str, float] = {}
    for row in findings.confusion.filter(set=data_set).iter_rows(named=True):
        counts[row["actual"]] = counts.get(row["actual"], 0) + row["samples"]
        if row["actual"] == row["predicted"]:
            recall[row["actual"]] = row["share"]
    rarely = sorted((name for name in recall if counts[name] and recall[name] < RARELY), key=lambda name: recall[name])
    if not rarely:
        return ""
    listed = say_list(f"{_say_recall(recall[name])} of class {one_line(name)}" for name in rarely[:_NAMED])
    more = f", and less than half of {len(rarely) - _NAMED} other classes" if len(rarely) > _NAMED else ""
    sentence = f"It finds only {listed}{more} in clean test samples"
    rare = counts[rarely[0]] < sum(counts.values()) / len(counts) / 2
    if not rare or findings.settings.get("class_weight") is not None:
        return f"{sentence}."
    return f"{sentence}; `--class-weight balanced` gives rare classes more weight."


def _say_recall(share: float) -> str:
    return "none" if not share else f"{max(1, round(100 * share))} %"


def _words(method: str, cells: dict[tuple[str, str], dict]) -> str:
    wrong = [row for (actual, predicted), row in cells.items() if actual != predicted and row["samples"]]
    wrong.sort(key=lambda row: -row["share"])
    if not wrong:
        return f"`{one_line(method)}` confuses no clean test sample."
    listed = say_list(
        f"{100 * row['share']:.0f} % of class {one_line(row['actual'])} are taken for {one_line(row['predicted'])}"
        for row in wrong[:_NAMED]
    )
    return f"The largest confusions of `{one_line(method)}` on clean test samples: {listed}."


def _say_share(share: float) -> str:
    """A share in per cent; nothing where it is 0.

    >>> _say_share(0.934), _say_share(0.004), _say_share(0.0)
    ('93', '< 1', '')
    """
    if not share:
        return ""
    return "< 1" if share < 0.005 else f"{100 * share:.0f}"
