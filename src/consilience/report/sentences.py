"""The results in words: which method leads, whether its lead is significant, and how trust follows the losses."""

from __future__ import annotations

from typing import Any

from consilience.comparison.results import Block, Cell, Condition, Findings, Lead, MeasuredTrust, TrustBlock, TrustRow
from consilience.comparison.summary import leads_of, summarise
from consilience.core.correlation import fisher_interval
from consilience.evaluation import METRICS
from consilience.evaluation.trust import signed
from consilience.evaluation.trust_verdict import say_condition
from consilience.report.wording import NOTHING, Scale, capital, one_line, say_list, say_metric, say_number, say_p


def headline(findings: Findings) -> list[str]:
    """Return the answer, a sentence or two per set and condition; names of methods stand in backticks.

    Clean first, then every corruption at its highest level. "Is best" is written only where `findings.best` has it.
    """
    sentences = []
    for block in summarise(findings):
        answers = [_answer(findings, block, lead) for lead in leads_of(findings, block)]
        if answers:
            sentences.append(f"On {one_line(block.set)}, {answers[0]}")
            sentences += map(capital, answers[1:])
        else:
            sentences.append(f"On {one_line(block.set)} no method has results.")
    return sentences or ["There are no results: no method finished on any set."]


def _answer(findings: Findings, block: Block, lead: Lead) -> str:
    metric, (row, cell), scale = say_metric(findings.metric), lead.ranked[0], Scale.of_block(block)
    name, amount = one_line(row.method), _amount(scale, cell)
    extreme = f"the {'highest' if findings.larger_is_better else 'lowest'} {metric}"
    if len(lead.ranked) == 1:
        first, rest = f"`{name}` alone has results", f" ({metric} {amount})"
    elif len(lead.tied) > 1:
        first = f"{say_list(f'`{one_line(tied.method)}`' for tied, _ in lead.tied)} share {extreme}"
        rest = f" ({scale.number(cell.mean)}{scale.unit}){_doubt_of_tied(findings, scale, lead)}"
    elif cell.best:
        first, rest = f"`{name}` is best", f" ({metric} {amount}){_doubt(findings, scale, lead)}"
    else:
        first, rest = f"`{name}` has {extreme}", f" ({amount}){_doubt(findings, scale, lead)}"
    if lead.condition.clean:
        return f"{first} on clean data{rest}."
    return f"under {one_line(lead.condition.words)}, {first}{rest}."


def _amount(scale: Scale, cell: Cell) -> str:
    return f"{scale.pair(cell.mean, cell.std)}{scale.unit}"


def _doubt(findings: Findings, scale: Scale, lead: Lead) -> str:
    """Which method follows, and whether the leader differs significantly from the reference."""
    (row, cell), (second, next_cell) = lead.ranked[:2]
    if row.method == findings.reference:
        return f"; it is the reference, and {_beaten(lead)}"
    follows = "" if second.reference else f", followed by `{one_line(second.method)}` ({_amount(scale, next_cell)})"
    return f"{follows}; its difference to `{one_line(findings.reference)}` {_tested(findings, scale, cell)}"


def _doubt_of_tied(findings: Findings, scale: Scale, lead: Lead) -> str:
    """Whether methods with the same mean differ from the reference, by the first of them."""
    reference, (row, cell) = one_line(findings.reference), lead.tied[0]
    if any(tied.method == findings.reference for tied, _ in lead.tied):
        return f"; `{reference}` is the reference, and {_beaten(lead)}"
    return f"; the difference of `{one_line(row.method)}` to `{reference}` {_tested(findings, scale, cell)}"


def _beaten(lead: Lead) -> str:
    if not lead.beaten:
        return "no other method is significantly worse"
    return f"significantly better than {lead.beaten} of {say_number(len(lead.ranked) - 1, 'other')}"


def _tested(findings: Findings, scale: Scale, cell: Cell) -> str:
    difference = cell.difference
    if difference is None:
        return "was not tested"
    points = " points" if scale.unit else "" if findings.larger_is_better else ", positive is better"
    amount = f"{scale.signed(difference.value)}{points}, {say_p(difference.p_holm)}"
    return f"is {'' if difference.significant else 'not '}significant ({amount})"


def tally(findings: Findings) -> str:
    """Return how much was measured, in a sentence."""
    methods, sets = say_number(len(findings.methods), "method"), say_number(len(findings.sets), "set")
    parts = [f"{methods} on {sets}, {say_number(len(findings.seeds), 'seed')}"]
    for table, word in ((findings.skipped, "skipped"), (findings.failed, "with failures")):
        count = table["method"].n_unique()
        if count:
            parts.append(f"{count} {word}")
    return ", ".join(parts) + "."


def say_test(findings: Findings) -> str:
    """Return how the significance of the main metric was tested, in a sentence."""
    metric = say_metric(findings.metric)
    if findings.metric in METRICS and METRICS[findings.metric].per_sample:
        return f"The {metric} is a mean over test samples, so resampling the samples resamples their differences."
    return f"The {metric} is not a mean over test samples, so it is recomputed on every resample of the samples."


def trust_sentences(block: TrustBlock) -> list[str]:
    """Return a sentence on the trust of each method; names of methods stand in backticks."""
    still = [f"`{one_line(row.method)}`" for row in block.rows if row.static]
    sentences = [_say_trust(block, row) for row in block.rows if not row.static]
    if still:
        weigh, their = ("weighs", "its") if len(still) == 1 else ("weigh", "their")
        sentences.append(
            f"{say_list(still)} {weigh} statically: {their} weights do not depend on what a sample looks like, so "
            "there is no correlation."
        )
    return sentences


def _say_trust(block: TrustBlock, row: TrustRow) -> str:
    """On how many modalities r ≤ 0: clean first, then under the condition with the largest r."""
    name, met, worst = f"`{one_line(row.method)}`", row.met, row.worst
    largest = row.largest(worst)
    if largest is None:
        return f"{name} has no correlation to measure."
    judged = [place for place, (_, among) in enumerate(met) if among]
    first = judged[0]
    beginning = f"{name} {say_condition(*met[first])}"
    if all(met[place][0] == met[place][1] for place in judged):
        where = "clean and corrupted" if len(judged) > 1 else one_line(block.conditions[first].words)
        return f"{beginning}, {where}; the largest r is {say_r(largest)}."
    if first != worst:
        count = f"{met[worst][0] or 'none'} of {met[worst][1]}"
        beginning += f" {_when(block.conditions[first])}, and {_when(block.conditions[worst])} on {count}"
    elif not block.conditions[first].clean or len(block.conditions) > 1:
        beginning += f" {_when(block.conditions[first])}"
    modality = one_line(largest.modality)
    meaning = f": it trusts {modality} more when it is wrong" if largest.fails else ", which chance explains"
    return f"{beginning}; on {modality} r = {_say_largest(largest)}{meaning}."


def say_r(measured: MeasuredTrust) -> str:
    """Return r as a cell of a table has it: mean ± standard deviation."""
    if measured.r is None:
        return "static" if measured.static else NOTHING
    return signed(measured.r) + ("" if measured.r_std is None else f" ± {measured.r_std:.2f}")


def _say_largest(measured: MeasuredTrust) -> str:
    if measured.seeds == 1:
        low, high = fisher_interval(measured.r or 0.0, round(measured.samples))
        return f"{say_r(measured)} (95 % interval {signed(low)} … {signed(high)})"
    return f"{say_r(measured)} (positive in {measured.positive} of {say_number(measured.seeds, 'seed')})"


def _when(condition: Condition) -> str:
    return "when clean" if condition.clean else f"under {one_line(condition.words)}"


def details(block: TrustBlock) -> list[dict[str, Any]]:
    """Return every modality and condition of the methods whose weights vary, as text, for the long table."""
    return [
        {
            "method": row.method,
            "condition": condition.words,
            "modality": measured.modality,
            "samples": f"{measured.samples:.0f}",
            "r": say_r(measured),
            "worst": NOTHING if measured.r_worst is None else signed(measured.r_worst),
            "trust": f"{measured.trust:.3f}",
            "static": f"{measured.static_trust:.3f}",
            "loss": f"{measured.loss:.3f}",
            "covariance": signed(measured.covariance, 3),
            "gap": signed(measured.gap, 3),
            "fails": measured.fails,
        }
        for row in block.rows
        if not row.static
        for condition, cell in zip(block.conditions, row.cells)
        for measured in cell
    ]
