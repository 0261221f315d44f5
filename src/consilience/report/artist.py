"""What the figures of one report share: looks of methods, names in use, and words of captions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from consilience.comparison.summary import corruptions_of, order_by_mean_rank, summarise
from consilience.report.drawing import Look, looks_of
from consilience.report.plots import Dots, Line
from consilience.report.wording import capital, one_line, say_level

if TYPE_CHECKING:
    from consilience.comparison.results import Findings

# A bin of a reliability diagram with fewer predictions than this is left out: its accuracy is chance.
LEAST_PREDICTIONS = 20


class Artist:
    """What the figures of one report share: the colour of each method, and the names of figures in use."""

    def __init__(self, findings: Findings):
        self.findings = findings
        ranked = order_by_mean_rank(summarise(findings), findings.larger_is_better)
        marked = [method for method in ranked if method in findings.best.values()]
        chosen = [choice.method for choice in findings.choices.values()]
        self.looks = looks_of(findings.methods, [*chosen, findings.reference, *marked, *ranked])
        self.taken: set[str] = set()
        self.corruptions = {name: corruptions_of(findings, findings.values.filter(set=name)) for name in findings.sets}
        self.several_levels = len(findings.levels) > 1

    def _lines(self, table: Any, column: str, looks: dict[str, Look], factor: float = 1.0) -> list[Line]:
        lines = []
        for name, look in looks.items():
            rows = table.filter(table[column] == name)
            if not len(rows):
                continue
            means = [math.nan if mean is None else factor * mean for mean in rows["mean"]]
            spreads = None if rows["std"].null_count() else [factor * std for std in rows["std"]]
            if any(math.isfinite(mean) for mean in means):
                lines.append(Line(name, look, rows["level"].to_list(), means, spreads))
        return lines

    def _panelled(self, methods: Iterable[str]) -> list[str]:
        there = set(methods)
        ordered = [name for name in self.findings.methods if name in there]
        return [name for name in ordered if self.looks[name].shown]

    def _chosen(self, shown: list[str], table: Any) -> str:
        return say_left_out(table["method"].n_unique() - len(shown))

    def _in_colour(self, lines: list[Line]) -> list[Line]:
        return [line for line in lines if line.look.shown]

    def _rows_in_colour(self, rows: list[Dots]) -> tuple[list[Dots], int]:
        """The rows of the methods that are drawn, and how many others there are."""
        drawn = [row for row in rows if row.look.shown]
        return drawn, len(rows) - len(drawn)

    def _least_share(self, name: str) -> float:
        """The share of all predictions, of all seeds together, below which a bin is left out."""
        findings = self.findings
        tested = findings.sets[name].get("split", {}).get("test", 0) * len(findings.seeds)
        return LEAST_PREDICTIONS / tested if tested else 0.0

    def _where(self, name: str, corruption: str) -> str:
        if self.several_levels:
            return f"on {one_line(name)} under {one_line(corruption)}"
        level = self.findings.levels[0] if self.findings.levels else 0
        under = f" under {one_line(corruption)} at level {say_level(level)}" if level else ""
        return f"on {one_line(name)}{under}"

    def _level_of(self, corruption: str) -> str:
        if not self.several_levels:
            return ""
        return f"level of {one_line(corruption)}" if len(corruption) <= 30 else "level of corruption"

    def _name(self, *words: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:60]
        name, copy = slug, 2
        while name in self.taken:
            name, copy = f"{slug}-{copy}", copy + 1
        self.taken.add(name)
        return name

    def _describe(self, lines: list[Line], words: str, where: str) -> str:
        """The shape of the lines in words: where each begins and ends."""
        shown = [line for line in lines if line.look.shown][:8]
        ends = "; ".join(
            f"{one_line(line.label)} {line.means[0]:.3g}" + (f" to {line.means[-1]:.3g}" if len(line.means) > 1 else "")
            for line in shown
        )
        return f"{capital(words)} {where}, first to last level: {ends}.".replace("  ", " ").replace(" ,", ",")


def say_left_out(count: int) -> str:
    """Return the caption's sentence on methods that are not drawn; "" where all are."""
    if count < 1:
        return ""
    return f" {count} further method{' is' if count == 1 else 's are'} not drawn; the tables have all."
