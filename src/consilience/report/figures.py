"""Every figure of a report: what is drawn, its caption, and its text for screen readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from consilience.comparison.modality_contributions import contributions_over_seeds
from consilience.comparison.summary import (
    gains_over_single,
    larger_is_better,
    over_seeds,
)
from consilience.report.artist import LEAST_PREDICTIONS, Artist, say_left_out
from consilience.report.contribution_section import draw_contributions
from consilience.report.drawing import BACKGROUND, Drawing, Part, looks_of
from consilience.report.plots import (
    NARROW,
    WIDE,
    WIDTHS,
    Bins,
    Dots,
    Line,
    plot_dots,
    plot_lines,
    plot_reliability,
    plot_trust,
    say_bands,
)
from consilience.report.rank_diagram import draw_ranks
from consilience.report.trust_figure import plot_sound_and_hit
from consilience.report.wording import (
    Scale,
    axis_label,
    capital,
    is_percentage,
    one_line,
    say_count,
    say_level,
    say_list,
    say_metric,
    say_seconds,
)

if TYPE_CHECKING:
    import polars

    from consilience.comparison.results import Findings


def draw_figures(findings: Findings) -> dict[str, Part]:
    """All figures by section: "ranks", "curves", "contributions", "trust", "reliability", "calibration", "gap", …"""
    artist = _Figures(findings)
    return {
        "ranks": artist.ranks(),
        "curves": artist.curves(),
        "contributions": artist.contributions(),
        "trust": artist.trust(),
        "reliability": artist.reliability(),
        "calibration": artist.calibration(),
        "gap": artist.gap(),
        "timings": artist.timings(),
    }


def draw_gap(findings: Findings) -> Part:
    """What fusing gains over the best single modality, alone."""
    return _Figures(findings).gap()


class _Figures(Artist):
    """The figures of one report."""

    def ranks(self) -> Part:
        """Mean ranks over sets: large over all that goes wrong, small under each condition."""
        drawings = [
            draw_ranks(standing, self._name("ranks", standing.label), self.looks, small=place > 0)
            for place, standing in enumerate(self.findings.standings)
        ]
        return Part(drawings, "Methods are ranked over sets where three or more serve all of them.")

    def curves(self) -> Part:
        """The main metric against the level."""
        drawings = self._of_metric(self.findings.metric, "curve")
        return Part(drawings, "No method finished, so there is nothing to draw.")

    def calibration(self) -> Part:
        """Calibration error and negative log-likelihood against the level."""
        if self.findings.task != "classification":
            return Part(absence="Calibration is measured for classification; this is a regression.")
        metrics = [metric for metric in ("ece", "nll") if metric != self.findings.metric]
        drawings = [drawing for metric in metrics for drawing in self._of_metric(metric, metric)]
        return Part(drawings, "No method gave probabilities, so calibration was not measured.")

    def gap(self) -> Part:
        """The main metric less that of the best single modality (Zhang et al. 2023, figure 1)."""
        if not any(name == "best-unimodal" or name.startswith("unimodal:") for name in self.findings.methods):
            return Part(
                absence="No method that sees a single modality took part; add `best-unimodal` or `unimodal:NAME` to "
                "the methods to see what fusing gains over the best of them."
            )
        return Part(self._each(self._gap), "The single modalities have no results, so there is no gap to draw.")

    def contributions(self) -> Part:
        """What each modality contributes to the method that leads."""
        blocks = contributions_over_seeds(self.findings)
        drawings = [draw_contributions(block, self._name("contributions", block.set)) for block in blocks]
        return Part(drawings, "The results are older than this measurement.")

    def trust(self) -> Part:
        """How far each method trusts each modality."""
        return Part(self._each(self._trust), "No method that took part has weights, so none has trust to show.")

    def reliability(self) -> Part:
        """Accuracy against confidence."""
        return Part(self._each(self._reliability), "There are no probabilities to draw reliability diagrams from.")

    def timings(self) -> Part:
        """Seconds of training."""
        drawings = [drawing for name in self.findings.sets if (drawing := self._timing(name)) is not None]
        return Part(drawings, "Nothing was timed.")

    def _each(self, draw: Callable[[str, str], Drawing | None]) -> list[Drawing]:
        wanted = None if any(self.findings.levels) else 1  # clean is the same under every corruption
        found = [draw(name, corruption) for name, names in self.corruptions.items() for corruption in names[:wanted]]
        return [drawing for drawing in found if drawing is not None]

    def _of_metric(self, metric: str, what: str) -> list[Drawing]:
        table = over_seeds(self.findings, metric)
        draw = partial(self._curve, table) if self.several_levels else self._dots
        return self._each(lambda name, corruption: draw(metric, what, name, corruption))

    def _gap(self, name: str, corruption: str) -> Drawing | None:
        findings = self.findings
        gains, how = gains_over_single(findings, name, corruption)
        lines = self._in_colour(self._lines(gains, "method", self.looks, Scale.of(findings.metric).factor))
        if not lines:
            return None
        points = ", percentage points" if is_percentage(findings.metric) else ""
        words = f"{say_metric(findings.metric)}: gain over the best single modality"
        where = self._where(name, corruption)
        return Drawing(
            self._name("gap", name, corruption),
            f"Gain in {say_metric(findings.metric)} over {how}{points}, {where}; below zero, the method is worse "
            "than that modality alone. Bands: ± one standard deviation over seeds, paired.",
            self._describe(lines, words, where),
            *(
                plot_lines(lines, self._level_of(corruption), f"gain{points}", zero="best single modality", width=width)
                for width in WIDTHS
            ),
        )

    def _curve(self, table: polars.DataFrame, metric: str, what: str, name: str, corruption: str) -> Drawing | None:
        here = table.filter(set=name, corruption=corruption)
        measured = self._lines(here, "method", self.looks, Scale.of(metric).factor)
        lines = self._in_colour(measured)
        if not lines:
            return None
        limits = (0.0, 100.0) if is_percentage(metric) else (0.0, 1.0) if metric == "ece" else (None, None)
        way = "larger is better" if larger_is_better(self.findings, metric) else "smaller is better"
        words, where = say_metric(metric), self._where(name, corruption)
        return Drawing(
            self._name(what, name, corruption),
            f"{capital(words)} against the level of corruption, {where}; {way}.{say_bands(lines)}"
            + say_left_out(len(measured) - len(lines)),
            self._describe(lines, words, where),
            *(
                plot_lines(lines, self._level_of(corruption), axis_label(words, metric), limits=limits, width=width)
                for width in WIDTHS
            ),
        )

    def _dots(self, metric: str, what: str, name: str, corruption: str) -> Drawing | None:
        import polars as pl

        here = self.findings.values.filter(metric=metric, set=name, corruption=corruption)
        factor = Scale.of(metric).factor
        rows = [
            Dots(method, self.looks.get(method, BACKGROUND), [factor * value for value in values])
            for method, values in here.group_by("method", maintain_order=True).agg(pl.col("value")).iter_rows()
            if all(value is not None and math.isfinite(value) for value in values)
        ]
        rows, left_out = self._rows_in_colour(rows)
        if not rows:
            return None
        larger = larger_is_better(self.findings, metric)
        rows.sort(key=lambda row: -row.mean if larger else row.mean)
        words, where = say_metric(metric), self._where(name, corruption)
        means = "; ".join(f"{one_line(row.label)} {row.mean:.3g}" for row in rows[:8])
        return Drawing(
            self._name(what, name, corruption),
            f"{capital(words)}, {where}: every seed a dot, their mean a mark.{say_left_out(left_out)}",
            f"Dot plot of {words}, {where}. Means: {means}.",
            *(plot_dots(rows, axis_label(words, metric), width=width) for width in WIDTHS),
        )

    def _trust(self, name: str, corruption: str) -> Drawing | None:
        """Trust where a modality is sound against trust where it was hit; against the level in results without it."""
        import polars as pl

        if not len(self.findings.hit_trust):
            return self._trust_by_level(name, corruption)
        rows = self.findings.hit_trust.filter(set=name, corruption=corruption)
        if not len(rows):  # a modality that is missing has no trust
            return None
        highest = rows["level"].max()
        table = (
            rows.filter(level=highest)
            .group_by("method", "modality", maintain_order=True)
            .agg(pl.col("sound").mean(), pl.col("hit").mean())
        )
        methods = self._panelled(table["method"].unique(maintain_order=True))
        if not methods:
            return None
        panels = [
            (method, list(table.filter(method=method).select("modality", "sound", "hit").iter_rows()))
            for method in methods
        ]
        where = f"on {one_line(name)} under {one_line(corruption)} at level {say_level(float(highest))}"  # type: ignore[arg-type]
        said = "; ".join(
            f"{one_line(method)}: "
            + ", ".join(f"{one_line(one)} {sound:.2f} to {hit:.2f}" for one, sound, hit in pairs)
            for method, pairs in panels
        )
        return Drawing(
            self._name("trust", name, corruption),
            f"Trust in each modality, {where}: ● mean over the test samples in which it is sound, ○ over those in "
            "which it was corrupted. A method that notices the corruption moves to the left; one whose weights are "
            "fixed does not move." + self._chosen(methods, table),
            f"Trust in a sound and in a corrupted modality, {where}. {said}.",
            plot_sound_and_hit(panels, WIDE),
            plot_sound_and_hit(panels, NARROW),
        )

    def _trust_by_level(self, name: str, corruption: str) -> Drawing | None:
        import polars as pl

        table = (
            self.findings.trust.filter(set=name, corruption=corruption)
            .group_by("method", "modality", "level", maintain_order=True)
            .agg(mean=pl.col("trust").mean(), std=pl.col("trust").std())
            .sort("level", maintain_order=True)
        )
        methods = self._panelled(table["method"].unique(maintain_order=True))
        if not methods:
            return None
        known = [modality["name"] for modality in self.findings.sets[name].get("modalities", [])]
        present = set(table["modality"])
        looks = looks_of([*(modality for modality in known if modality in present), *sorted(present - set(known))])
        panels = []
        for method in methods:
            lines = self._lines(table.filter(method=method), "modality", looks)
            lines = [line if line.look.shown else Line("others", BACKGROUND, line.levels, line.means) for line in lines]
            panels.append((method, sorted(lines, key=lambda line: line.look.shown)))
        where = self._where(name, corruption)
        charts = ". ".join(
            self._describe(lines, f"{one_line(method)}: trust", "").rstrip(".") for method, lines in panels
        )
        return Drawing(
            self._name("trust", name, corruption),
            f"Trust in each modality against the level, {where}: the share of the decision that a method gives it, "
            "mean over test samples and seeds. Trust should fall where a modality is corrupted."
            + self._chosen(methods, table),
            f"Small line charts of trust, {where}. {charts}.",
            plot_trust(panels, self._level_of(corruption), WIDE),
            plot_trust(panels, self._level_of(corruption), NARROW),
        )

    def _reliability(self, name: str, corruption: str) -> Drawing | None:
        table = self.findings.reliability.filter(set=name, corruption=corruption)
        methods = self._panelled(table["method"].unique(maintain_order=True))
        if not methods:
            return None
        levels = sorted(table["level"].unique().to_list())
        ends = [levels[0], levels[-1]] if len(levels) > 1 else [levels[0]]
        names = ["clean" if level == 0 else f"level {say_level(level)}" for level in ends]
        errors = {
            (row["method"], row["level"]): row["mean"]
            for row in over_seeds(self.findings, "ece").filter(set=name, corruption=corruption).iter_rows(named=True)
        }
        least = self._least_share(name)
        panels = [
            (method, [_bins(table, method, level, errors.get((method, level)), least) for level in ends])
            for method in methods
        ]
        where = self._where(name, corruption)
        errors_of = "; ".join(f"{one_line(method)} {_describe_errors(pair, names)}" for method, pair in panels)
        return Drawing(
            self._name("reliability", name, corruption),
            f"Reliability, {where}: how often the most probable class is right against how sure the method was, "
            f"{say_list(names)}; the area of a dot is its share of the samples, pooled over seeds. On the dashed line "
            "confidence equals accuracy; below it, a method is overconfident. Bins with fewer than "
            f"{LEAST_PREDICTIONS} predictions are left out. ECE: calibration error, mean over seeds."
            + self._chosen(methods, table),
            f"Reliability diagrams, {where}. Calibration errors: {errors_of}.",
            plot_reliability(panels, names, WIDE),
            plot_reliability(panels, names, NARROW),
        )

    def _timing(self, name: str) -> Drawing | None:
        import polars as pl

        table = self.findings.timings.filter(pl.col("training_seconds").is_finite(), set=name)
        grouped = table.group_by("method", maintain_order=True).agg(
            pl.col("training_seconds"), pl.col("parameters").mean()
        )
        rows = [
            Dots(method, self.looks.get(method, BACKGROUND), seconds, f"{say_count(parameters)} parameters")
            for method, seconds, parameters in grouped.iter_rows()
        ]
        rows, left_out = self._rows_in_colour(rows)
        if not rows:
            return None
        rows.sort(key=lambda row: row.mean)
        means = "; ".join(f"{one_line(row.label)} {say_seconds(row.mean)}" for row in rows)
        return Drawing(
            self._name("timing", name),
            f"Training time, on {one_line(name)}: every seed a dot, their mean a mark.{say_left_out(left_out)}",
            f"Dot plot of training seconds on {one_line(name)}. Means: {means}.",
            *(plot_dots(rows, "training, seconds", logarithmic=True, width=width) for width in WIDTHS),
        )


def _bins(table: Any, method: str, level: float, ece: float | None, least: float) -> Bins | None:
    rows = table.filter(method=method, level=level)
    rows = rows.filter((rows["share"] > 0) & (rows["share"] >= least))
    if not len(rows):
        return None
    return Bins(rows["confidence"].to_list(), rows["accuracy"].to_list(), rows["share"].to_list(), ece)


def _describe_errors(pair: Iterable[Bins | None], names: Iterable[str]) -> str:
    known = [f"{bins.ece:.3f} {name}" for bins, name in zip(pair, names) if bins is not None and bins.ece is not None]
    return say_list(known) or "unknown"
