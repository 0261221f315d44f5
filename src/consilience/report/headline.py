"""The answer in words: who leads, when clean and when it goes wrong, and whether the lead can be believed."""

from __future__ import annotations

import math

from consilience.comparison.results import Findings
from consilience.report.seed_summary import Block, Cell, Condition, Row, ranking, summarise
from consilience.report.wording import one_line, say_list, say_metric, say_number, say_p


def headline(findings: Findings) -> list[str]:
    """The answer, one sentence or two per set and condition; names of methods stand in backticks.

    Clean first, then every corruption at its highest level. "Is best" is said only where `findings.best` says so.
    """
    sentences = []
    for block in summarise(findings):
        sentences += _of_set(findings, block)
    return sentences or ["There are no results to speak of: no method finished on any set."]


def _of_set(findings: Findings, block: Block) -> list[str]:
    answers = []
    for condition in _telling(block):
        ranked = ranking(block, condition, findings.larger_is_better)
        if ranked:
            answers.append(_answer(findings, block, condition, ranked))
    if not answers:
        return [f"On {one_line(block.set)} no method has results."]
    return [f"On {one_line(block.set)}, {answers[0]}", *(answer[0].upper() + answer[1:] for answer in answers[1:])]


def _telling(block: Block) -> list[Condition]:
    """Clean, and the highest level of each corruption."""
    highest = {one.corruption: one for one in block.conditions if not one.clean}
    return [one for one in block.conditions if one.clean][:1] + list(highest.values())


def _answer(findings: Findings, block: Block, condition: Condition, ranked: list[tuple[Row, Cell]]) -> str:
    metric, (row, cell) = say_metric(findings.metric), ranked[0]
    name, amount = one_line(row.method), _amount(block, cell)
    extreme = f"the {'highest' if findings.larger_is_better else 'lowest'} {metric}"
    level = [(one, other) for one, other in ranked if math.isclose(other.mean, cell.mean, rel_tol=1e-9)]
    if len(ranked) == 1:
        lead, rest = f"`{name}` alone has results", f" ({metric} {amount})"
    elif len(level) > 1:
        lead = f"{say_list(f'`{one_line(one.method)}`' for one, _ in level)} share {extreme}"
        rest = f" ({block.scale.number(cell.mean)}{block.scale.unit}){_doubt_of_all(findings, block, ranked, level)}"
    elif cell.best:
        lead, rest = f"`{name}` is best", f" ({metric} {amount}){_doubt(findings, block, ranked)}"
    else:
        lead, rest = f"`{name}` has {extreme}", f" ({amount}){_doubt(findings, block, ranked)}"
    if condition.clean:
        return f"{lead} on clean data{rest}."
    return f"under {condition.words}, {lead}{rest}."


def _amount(block: Block, cell: Cell) -> str:
    return f"{block.scale.pair(cell.mean, cell.std)}{block.scale.unit}"


def _doubt(findings: Findings, block: Block, ranked: list[tuple[Row, Cell]]) -> str:
    """How far the lead can be believed: who comes next, and how it stands against the reference."""
    (row, cell), (second, next_cell) = ranked[:2]
    reference = one_line(findings.reference)
    if row.method == findings.reference:
        return f"; it is the reference, and {_beaten(ranked)}"
    follows = "" if second.reference else f", followed by `{one_line(second.method)}` ({_amount(block, next_cell)})"
    return f"{follows}; its difference to `{reference}` {_tested(block, cell)}"


def _doubt_of_all(
    findings: Findings, block: Block, ranked: list[tuple[Row, Cell]], level: list[tuple[Row, Cell]]
) -> str:
    """How methods of one mean stand against the reference, the first of them for all."""
    reference, (row, cell) = one_line(findings.reference), level[0]
    if any(one.method == findings.reference for one, _ in level):
        return f"; `{reference}` is the reference, and {_beaten(ranked)}"
    return f"; the difference of `{one_line(row.method)}` to `{reference}` {_tested(block, cell)}"


def _beaten(ranked: list[tuple[Row, Cell]]) -> str:
    """Than how many others the reference is better, where none has a better mean."""
    beaten = sum(other.mark == "▼" for _, other in ranked)
    if not beaten:
        return "no other method is significantly worse"
    return f"significantly better than {beaten} of {say_number(len(ranked) - 1, 'other')}"


def _tested(block: Block, cell: Cell) -> str:
    difference = cell.difference
    if difference is None:
        return "was not tested"
    points = " points" if block.scale.unit else ""
    amount = f"{block.scale.signed(difference.value)}{points}, {say_p(difference.p_holm)}"
    return f"is {'' if difference.significant else 'not '}significant ({amount})"


def tally(findings: Findings) -> str:
    """How much was measured, in a sentence."""
    methods, sets = say_number(len(findings.methods), "method"), say_number(len(findings.sets), "set")
    parts = [f"{methods} on {sets}, {say_number(len(findings.seeds), 'seed')}"]
    for table, word in ((findings.skipped, "skipped"), (findings.failed, "with failures")):
        count = table["method"].n_unique()
        if count:
            parts.append(f"{count} {word}")
    return ", ".join(parts) + "."
