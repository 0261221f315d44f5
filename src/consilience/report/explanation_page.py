"""The page of an explanation: a section for each sample, or the mean contributions, in words, as tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

from consilience.evaluation.contributions import MeanContributions
from consilience.evaluation.explained_sample import ExplainedSample, Value
from consilience.report.document import Document, Section, render_document
from consilience.report.explanation_figure import draw_mean, draw_sample
from consilience.report.explanation_words import mean_table, sample_table, say_mean, say_sample, signed
from consilience.report.text_table import TextTable
from consilience.report.wording import one_line

METHOD = (
    "Contributions are Shapley values: the model predicts with every subset of the modalities, and each modality's "
    "contribution is what it adds, in the mean over all orders in which modalities become present. They sum to the "
    "value with all modalities minus the value with none. With more than 10 modalities the orders are drawn at random. "
    "A pair is redundant if both together add less than apart, complementary if they add more, and conflicting if one "
    "lowers what the other raises; effects below 5 % of the sum of all absolute contributions do not count."
)


def explanation_page(
    samples: Sequence[ExplainedSample], mean: MeanContributions | None, value: Value, title: str, command: str
) -> str:
    """Return the page as HTML."""
    sections = [_sample_section(sample) for sample in samples]
    if mean is not None:
        sections.append(
            Section(
                "mean",
                "Mean contributions",
                tuple(say_mean(mean, value)[2:]),
                (mean_table(mean),),
                (draw_mean(mean, value),),
            )
        )
    answer = [say_sample(sample)[0] for sample in samples] if mean is None else say_mean(mean, value)[:2]
    sections.append(Section("method", "How it was computed", (METHOD,)))
    return render_document(Document(title, tuple(answer), tuple(sections), command), "explanation")


def _sample_section(sample: ExplainedSample) -> Section:
    tables = [sample_table(sample)]
    if sample.pairs:
        rows = tuple(
            (f"{one_line(pair.first)}, {one_line(pair.second)}", signed(pair.interaction), pair.relation)
            for pair in sorted(sample.pairs, key=lambda pair: -abs(pair.interaction))
        )
        tables.append(TextTable("Pairs of modalities", ("pair", "interaction", "relation"), rows))
    return Section(
        f"row-{sample.row}", f"Row {sample.row}", tuple(say_sample(sample)[1:]), tuple(tables), (draw_sample(sample),)
    )
