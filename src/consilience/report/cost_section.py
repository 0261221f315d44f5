"""What losing each modality costs: sentences for the console and the report, and the tables of its section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consilience.comparison.modality_costs import CostBlock, ModalityCost, costs_over_seeds
from consilience.comparison.results import Findings
from consilience.report.text_table import TextTable
from consilience.report.wording import NOTHING, Scale, one_line, say_level, say_list, say_metric

_LISTED = 4  # modalities that a sentence names


@dataclass(frozen=True)
class CostPart:
    """What the section says of one set: a table for missing modalities, and one for corrupted ones where there is."""

    set: str
    words: tuple[str, ...]
    tables: tuple[TextTable, ...]
    samples: int
    seeds: int


def cost_sentences(findings: Findings, data_set: str) -> list[str]:
    """Return which loss costs most on a set, a sentence or two; names of methods stand in backticks."""
    return [sentence for block in costs_over_seeds(findings) if block.set == data_set for sentence in _words(block)]


def cost_part(block: CostBlock) -> CostPart:
    """Return the words and tables of a set."""
    scale = _scale(block)
    costs = [cost for own in block.rows.values() for cost in own]
    tables = [_table(block, scale, "modality missing in all samples", missing=True)]
    if any(not cost.missing for cost in costs):
        level = next(cost.level for cost in costs if not cost.missing)
        caption = f"modality corrupted in all samples, level {say_level(level)}"
        tables.append(_table(block, scale, caption, missing=False))
    return CostPart(block.set, tuple(_words(block)), tuple(tables), costs[0].samples, max(cost.seeds for cost in costs))


def _scale(block: CostBlock) -> Scale:
    return Scale.of(block.metric, [cost.std for own in block.rows.values() for cost in own])


def _words(block: CostBlock) -> list[str]:
    own, method = block.rows[block.shown], f"`{one_line(block.shown)}`"
    lost, corrupted = (_largest_first(own, missing) for missing in (True, False))
    sentences = []
    if lost:
        words = f"losing {one_line(lost[0].modality)} costs {method} most"
        none = f"losing one modality costs {method} nothing"
        sentences.append(f"On {one_line(block.set)}, {_ranked(block, lost, words, none)}")
    if corrupted:
        how = f"With one modality at a time corrupted in all samples, at level {say_level(corrupted[0].level)}, "
        words = f"{one_line(corrupted[0].corruption)} on {one_line(corrupted[0].modality)} harms it most"
        sentences.append(how + _ranked(block, corrupted, words, "it loses nothing"))
    return sentences


def _largest_first(costs: Sequence[ModalityCost], missing: bool) -> list[ModalityCost]:
    return sorted((cost for cost in costs if cost.missing == missing), key=lambda cost: -cost.cost)


def _ranked(block: CostBlock, costs: Sequence[ModalityCost], words: str, none: str) -> str:
    scale = _scale(block)
    if costs[0].cost <= 0:
        return f"{none}."
    unit = f"{'points ' if scale.unit else ''}of {say_metric(block.metric)}"
    return f"{words}: {_amount(scale, costs[0])} {unit}{_others(scale, costs)}."


def _others(scale: Scale, costs: Sequence[ModalityCost]) -> str:
    """The costs of the others, in brackets."""
    named = [f"{one_line(cost.modality)} {scale.number(cost.cost)}" for cost in costs[1:_LISTED]]
    if not named:
        return ""
    more = f", {len(costs) - _LISTED} others less" if len(costs) > _LISTED else ""
    return f" ({say_list(named)}{more})"


def _amount(scale: Scale, cost: ModalityCost) -> str:
    return scale.pair(cost.cost, cost.std)


def _table(block: CostBlock, scale: Scale, caption: str, missing: bool) -> TextTable:
    rows = []
    for method, own in block.rows.items():
        by_modality = {cost.modality: cost for cost in own if cost.missing == missing}
        cells = [_amount(scale, by_modality[name]) if name in by_modality else NOTHING for name in block.modalities]
        rows.append((one_line(method), *cells))
    marked = tuple(place for place, method in enumerate(block.rows) if method == block.shown)
    header = ("method", *(one_line(name) for name in block.modalities))
    return TextTable(f"{one_line(block.set)} · {caption}", header, tuple(rows), marked)
