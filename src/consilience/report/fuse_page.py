"""What a fusion of opinions is worth, beside its experts: the console's table, and a page with reliability diagrams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from consilience.evaluation.classification import RunningScores
from consilience.report.document import Document, Section, render_document
from consilience.report.drawing import Drawing
from consilience.report.plots import NARROW, WIDE, Bins, plot_reliability
from consilience.report.text_table import TextTable, console_tables
from consilience.report.wording import NOTHING, Scale, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

FUSED = "fused"
MEANING = (
    "NLL: mean negative log-likelihood of the true class, in nats; ECE: expected calibration error. Smaller is better "
    "for both."
)
HEADER = ("", "samples", "accuracy %", "NLL", "ECE")


def score_rows(experts: Mapping[str, RunningScores], fused: RunningScores) -> list[tuple[str, ...]]:
    """Name, samples, accuracy in per cent, NLL and ECE of every expert and of the fusion, as text."""
    percent, plain = Scale.of("accuracy"), Scale.of("nll")
    return [
        (
            one_line(name),
            str(scores.samples),
            percent.number(scores.accuracy),
            plain.number(scores.nll),
            plain.number(scores.ece),
        )
        for name, scores in [*experts.items(), (FUSED, fused)]
    ]


def score_table(experts: Mapping[str, RunningScores], fused: RunningScores) -> RenderableType:
    """Return the scores for a console."""
    rows = score_rows(experts, fused)
    return console_tables([TextTable("", HEADER, tuple(rows), marked=(len(rows) - 1,))])


def render_fusion(
    experts: Mapping[str, RunningScores], fused: RunningScores, remarks: Sequence[str], title: str, command: str
) -> str:
    """The page as text: the table, a reliability diagram of each expert and of the fusion, how it was made."""
    rows = score_rows(experts, fused)
    panels = [(name, [_filled(scores)]) for name, scores in [*experts.items(), (FUSED, fused)] if scores.samples]
    drawing = Drawing(
        "reliability",
        "Accuracy against confidence, the probability of the most probable class, in 15 bins of equal width; a dot's "
        "area is the share of the samples in its bin. On the dashed line confidence equals accuracy; below "
        "it, it is too high.",
        "Reliability diagrams. " + "; ".join(f"{name}: ECE {ece}" for name, *_, ece in rows if ece != NOTHING),
        plot_reliability(panels, (), WIDE),
        plot_reliability(panels, (), NARROW),
    )
    table = TextTable("Scores", ("expert", *HEADER[1:]), tuple(rows), marked=(len(rows) - 1,))
    sections = (
        Section("table", "Each expert, and the fusion", (MEANING,), (table,)),
        Section("reliability", "Calibration of confidence", figures=(drawing,)),
        Section("method", "How it was fused and scored", tuple(remarks)),
    )
    return render_document(Document(title, (), sections, command), "fusion of opinions")


def _filled(scores: RunningScores) -> Bins:
    bins = scores.bins
    some = np.flatnonzero(bins.share > 0)
    return Bins(bins.confidence[some].tolist(), bins.accuracy[some].tolist(), bins.share[some].tolist(), bins.error)
