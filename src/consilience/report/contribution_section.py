"""The section "What each modality contributes" of a comparison's report: sentences, tables and figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.comparison.results import ContributionBlock, ContributionRow
from consilience.evaluation.contributions import MeanContributions
from consilience.evaluation.explained_sample import Value
from consilience.report.drawing import Drawing
from consilience.report.explanation_figure import Bar, plot_waterfall
from consilience.report.explanation_words import say_relations
from consilience.report.text_table import TextTable
from consilience.report.wording import (
    NOTHING,
    Scale,
    capital,
    is_percentage,
    one_line,
    say_list,
    say_metric,
    say_number,
)


@dataclass(frozen=True)
class ContributionPart:
    """What the section says of one set. pairs: None if interactions were not measured."""

    set: str
    words: tuple[str, ...]
    table: TextTable
    pairs: TextTable | None
    seeds: int
    samples: int
    metric: str
    error: bool


def contribution_part(block: ContributionBlock, metric: str | None = None) -> ContributionPart:
    """Return the words and tables of a set.

    Args:
        block: The contributions.
        metric: That of the comparison, if a sentence shall say why the contributions are to another one.
    """
    leader, scale = _leader(block), _scale(block)
    words = tuple(_words(block, leader, scale))
    if metric not in (None, block.metric):
        words += (
            f"They are contributions to the {say_metric(block.metric)}, a mean over samples: with so many modalities "
            f"each set of them was tried on too few samples for the {say_metric(metric or '')}, or the results are "
            "those of an earlier version.",
        )
    table, pairs = _table(block, scale), _pairs(block, scale)
    samples = leader.mean.samples
    return ContributionPart(block.set, words, table, pairs, leader.seeds, samples, block.metric, block.error)


def _leader(block: ContributionBlock) -> ContributionRow:
    return next(row for row in block.rows if row.method == block.leader)


def _scale(block: ContributionBlock) -> Scale:
    return Scale.of(block.metric, [std for row in block.rows for std in row.stds])


def _words(block: ContributionBlock, row: ContributionRow, scale: Scale) -> list[str]:
    mean, metric = row.mean, say_metric(block.metric)
    order = sorted(range(len(block.modalities)), key=lambda place: -mean.values[place])
    points = " points" if scale.unit else ""
    listed = say_list(f"{one_line(block.modalities[place])} {scale.signed(mean.values[place])}" for place in order)
    first = (
        f"The {metric} of `{one_line(row.method)}` on clean data is {_level(scale, block, mean.none)} with no modality "
        f"and {_level(scale, block, mean.all)} with all that are present. The modalities contribute {listed}{points}."
    )
    return [first, *say_relations(mean)]


def _level(scale: Scale, block: ContributionBlock, value: float) -> str:
    return scale.number(_shown(block, value)) + scale.unit


def _shown(block: ContributionBlock, value: float) -> float:
    """A level of the metric; of an error, the contributions are to its negative."""
    return -value if block.error else value


def _table(block: ContributionBlock, scale: Scale) -> TextTable:
    header = ("method", "no modality", *(one_line(name) for name in block.modalities), "all present")
    rows = []
    for row in block.rows:
        cells = [_signed_pair(scale, value, std) for value, std in zip(row.mean.values.tolist(), row.stds)]
        ends = (scale.number(_shown(block, row.mean.none)), scale.number(_shown(block, row.mean.all)))
        rows.append((one_line(row.method), ends[0], *cells, ends[1]))
    marked = tuple(place for place, row in enumerate(block.rows) if row.method == block.leader)
    return TextTable(one_line(block.set), header, tuple(rows), marked)


def _signed_pair(scale: Scale, value: float, std: float | None) -> str:
    return scale.signed(value) + ("" if std is None else f" ± {scale.number(std)}")


def _pairs(block: ContributionBlock, scale: Scale) -> TextTable | None:
    """Every pair of modalities: interaction and relation, for each method."""
    measured = [row for row in block.rows if row.mean.interactions is not None]
    if not measured or len(block.modalities) < 2:
        return None
    names = block.modalities
    rows = []
    for j in range(len(names)):
        for i in range(j):
            cells = (_pair_cell(row.mean, i, j, scale) for row in measured)
            rows.append((f"{one_line(names[i])}, {one_line(names[j])}", *cells))
    header = ("pair", *(one_line(row.method) for row in measured))
    return TextTable(one_line(block.set), header, tuple(rows))


def _pair_cell(mean: MeanContributions, i: int, j: int, scale: Scale) -> str:
    if mean.interactions is None or mean.relations is None:
        return NOTHING
    relation = mean.relations[i, j].item()
    return scale.signed(mean.interactions[i, j]) + (f" {relation}" if relation != "independent" else "")


def draw_contributions(block: ContributionBlock, name: str) -> Drawing:
    """Return a waterfall of what each modality contributes to the leading method; `name` is that of the figure."""
    row, scale = _leader(block), _scale(block)
    mean, metric = row.mean, say_metric(block.metric)
    order = sorted(range(len(block.modalities)), key=lambda place: -abs(mean.values[place]))
    bars = [Bar(block.modalities[place], float(mean.values[place]), float(mean.errors[place])) for place in order]
    over = f"95 % interval over {say_number(row.seeds, 'seed') if row.seeds > 1 else 'test samples'}"
    sign = ", which is drawn below zero" if block.error else ""
    within_one = is_percentage(block.metric) or block.metric in ("auroc", "average_precision")
    bounded: Value = "accuracy" if within_one else "mse"
    label = ("negative " if block.error else "") + metric
    listed = "; ".join(f"{one_line(bar.name)} {scale.signed(bar.value)}" for bar in bars)
    where = f"`{one_line(row.method)}` on {one_line(block.set)}"
    return Drawing(
        name,
        f"From the {metric} with no modality to that with all{sign}: what each modality contributes to {where}. "
        + (f"Lines: {over}." if np.isfinite(mean.errors).all() else "One seed gives no intervals for this metric."),
        f"{capital(metric)} of {where.replace('`', '')}: contributions {listed}.",
        *(
            plot_waterfall(bars, mean.none, mean.all, bounded, width=width, scale=scale, label=label)
            for width in (5.6, 3.5)
        ),
    )
