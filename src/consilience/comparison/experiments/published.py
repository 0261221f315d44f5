"""The page of an experiment made of comparisons: ours beside the published figures, and what became of the claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from consilience.comparison.comparison import Comparison
from consilience.comparison.experiments.experiment import Claim, Experiment, Part, Reproduction
from consilience.comparison.statistics import holm, reachable
from consilience.comparison.store import writing
from consilience.report.document import Account, Section, TextTable, write_account
from consilience.report.headline import headline
from consilience.report.result_tables import cell_text, legend
from consilience.report.seed_summary import Block, Condition, summarise
from consilience.report.wording import NOTHING, say_level, say_list, say_metric, say_number, say_p, say_versions

ALPHA = 0.05
_FEW = 5
# What may be said of a claim, and how a count of such claims reads.
VERDICTS = {
    "Found": "found",
    "The opposite is found": "the opposite found of",
    "Not found": "not found",
    "Not decided": "not decided",
    "Not measured": "not measured",
}


def write_page(
    experiment: Experiment,
    folder: Path,
    comparisons: Mapping[str, Comparison],
    absent: Mapping[str, str],
    command: str,
) -> Reproduction:
    """Draw the page of finished comparisons, by part; absent: part → what to get."""
    claims = checked_claims(experiment.claims, comparisons)
    answer = in_short(claims)
    if experiment.verdicts is not None:
        own = list(experiment.verdicts(comparisons))
        claims, answer = claims + own, answer + own
    sections = [part_section(experiment, name, one) for name, one in comparisons.items()]
    if claims:
        sections.append(claims_section(claims))
    if experiment.more is not None:
        sections += experiment.more(comparisons)
    missing = tuple(f"{name} was left out: {reason}" for name, reason in absent.items())
    if experiment.notes or missing:
        sections.append(Section("differences", "Reasons for differences", (*missing, *experiment.notes)))
    sections.append(Section("made", "How it was made", tuple(how_made(experiment.parts, comparisons))))
    said = answer or headlines(experiment.parts, comparisons)
    account = Account(experiment.title, tuple(said), tuple(sections), command, experiment.paper)
    with writing(folder):
        page = write_account(account, folder)
    return Reproduction(folder, account, page)


def claims_section(claims: Sequence[str]) -> Section:
    """All claims with their verdicts, and how their figures are to be read."""
    read = (
        "Each interval is that of one claim by itself, while p is corrected by Holm over several: an interval may "
        "leave zero out where p does not decide."
    )
    words = (*([read] if len(claims) > 1 else []), *claims)
    return Section("claims", "What the paper says, and what is found", words)


def headlines(parts: Mapping[str, Part], comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    """What every comparison says first; of several, which of them is meant."""
    for name, one in comparisons.items():
        first, *others = headline(one.findings)
        title = parts[name].title if len(comparisons) > 1 else ""
        yield f"{title}: {first[0].lower()}{first[1:]}" if title else first
        yield from others


def part_section(experiment: Experiment, name: str, comparison: Comparison) -> Section:
    """One comparison: its table with the published figures, and where its own report is."""
    findings = comparison.findings
    blocks = summarise(findings)
    told = any(key[0] == name for key in experiment.published)
    worst = any(key[0] == name for key in experiment.published_worst)
    beside = " Published figures stand in the columns beside ours." if told else ""
    words = [legend(findings, worst, bold=False) + beside, *(remark for block in blocks for remark in block.remarks)]
    tables = tuple(beside_published(experiment, name, block, comparison) for block in blocks)
    report = (f"All of {name}: curves, calibration, trust, timings", f"{name}/report.html")
    return Section(
        f"part-{name}", experiment.parts[name].title or ", ".join(findings.sets), tuple(words), tables, links=(report,)
    )


def beside_published(experiment: Experiment, name: str, block: Block, comparison: Comparison) -> TextTable:
    """Methods × conditions; where the paper has figures for a condition, they follow with the difference."""
    findings = comparison.findings
    header, columns = ["method"], []
    for condition in block.conditions:
        mean, worst = (
            {row.method: table.get(_key(name, row.method, condition)) for row in block.rows}
            for table in (experiment.published, experiment.published_worst)
        )
        columns.append([cell_text(block, block.at(row.method, condition), any(worst.values())) for row in block.rows])
        header.append(_heading(condition, len(block.conditions) > 1 or not condition.clean))
        if any(figure is not None for figure in mean.values()):
            header += ["published", "difference"]
            columns.append([_figures(block, mean[row.method], worst[row.method]) for row in block.rows])
            columns.append([_apart(block, row.method, condition, mean[row.method]) for row in block.rows])
    rows = tuple((row.method, *(column[place] for column in columns)) for place, row in enumerate(block.rows))
    marked = tuple(place for place, row in enumerate(block.rows) if row.reference)
    metric = f"{say_metric(findings.metric)}{',' + block.scale.unit if block.scale.unit else ''}"
    return TextTable(f"{block.set}: {metric}", tuple(header), rows, marked)


def checked_claims(claims: Sequence[Claim], comparisons: Mapping[str, Comparison]) -> list[str]:
    """A verdict for each claim whose methods were compared; p-values are corrected by Holm over all of them."""
    rows = []
    for claim in claims:
        if claim.part not in comparisons:
            continue
        comparison = comparisons[claim.part]
        if {claim.method, claim.than} <= set(comparison.findings.methods):
            found = comparison.statistics(claim.than, [claim.method]).filter(level=claim.level)
            if claim.level:
                found = found.filter(corruption=claim.corruption)
            rows.append((claim, comparison, found.row(0, named=True)))
    corrected = holm(np.array([row["p"] for _, _, row in rows]))
    return [_verdict(claim, one, row, float(p), len(rows)) for (claim, one, row), p in zip(rows, corrected)]


def say_verdict(difference: float, p: float, seeds: int, claims: int) -> str:
    """What a test says of a claim that a difference is above zero; p: corrected for so many claims.

    >>> say_verdict(0.1, 0.01, 10, 3), say_verdict(-0.1, 0.01, 10, 3), say_verdict(0.1, 0.3, 10, 3)
    ('Found', 'The opposite is found', 'Not found')
    """
    if np.isnan(p):
        return "Not measured"
    if p <= ALPHA:
        return "Found" if difference > 0 else "The opposite is found"
    return "Not found" if reachable(seeds, claims, ALPHA) else "Not decided"


def say_claim(says: str, figures: str, difference: float, p: float, seeds: int, claims: int) -> str:
    """A claim, the verdict on it and the figures it rests on; the rest as for `say_verdict`.

    >>> say_claim("Late fusion is best", "+0.2 points", 0.2, 0.5, 3, 1)
    'Late fusion is best. Not decided: +0.2 points, p = 0.5; 3 seeds are too few.'
    """
    verdict = say_verdict(difference, p, seeds, claims)
    few = f"; {say_number(seeds, 'seed')} are too few" if verdict == "Not decided" else ""
    return f"{says}. {verdict}: {figures}, {say_p(p)}{few}."


def in_short(claims: Sequence[str]) -> list[str]:
    """What is to be read first: the claims themselves where they are few, or how many of them came out which way."""
    if len(claims) <= _FEW:
        return list(claims)
    counts = {verdict: sum(f" {verdict}:" in one for one in claims) for verdict in VERDICTS}
    counted = say_list(f"{words} {counts[verdict]}" for verdict, words in VERDICTS.items() if counts[verdict])
    decided = [one for one in claims if any(f" {verdict}:" in one for verdict in tuple(VERDICTS)[:2])]
    return [f"Of {len(claims)} claims: {counted}. All are on the page.", *decided[:_FEW]]


def _verdict(claim: Claim, comparison: Comparison, row: Mapping[str, float], p: float, claims: int) -> str:
    findings = comparison.findings
    scale = summarise(findings)[0].scale
    low, high = (scale.number(row[end]) for end in ("low", "high"))
    unit = "percentage points" if scale.unit else f"in {say_metric(findings.metric)}, positive is better"
    figures = f"`{claim.method}` − `{claim.than}` {scale.signed(row['difference'])} ({low} … {high}) {unit}"
    return say_claim(claim.says, figures, row["difference"], p, len(findings.seeds), claims)


def how_made(parts: Mapping[str, Part], comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    """Sizes, seeds, epochs, device and versions of every part."""
    for name, one in comparisons.items():
        findings = one.findings
        sizes = "; ".join(
            ("" if label == name else f"{label} ") + _sizes(about) for label, about in findings.sets.items()
        )
        epochs, seconds = (np.median(findings.timings[column]) for column in ("epochs", "training_seconds"))
        devices = findings.timings["device"].drop_nulls().unique().sort()
        repeats = findings.settings.get("repeats", 1)
        drawn = f", {repeats} draws of the noise for each" if repeats > 1 else ""
        yield (
            f"{name}: {sizes}. {say_number(len(findings.seeds), 'seed')}{drawn}, on the median {epochs:.0f} epochs "
            f"and {seconds:.1f} s of training on {say_list(devices)}. Settings of training: "
            f"{_settings(findings.settings['training'])}."
        )
    yield say_versions(findings.versions)


def _sizes(about: Mapping[str, object]) -> str:
    sizes = about["split"]
    assert isinstance(sizes, Mapping)
    return ", ".join(f"{count} {part}" for part, count in sizes.items())


def _settings(training: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in training.items()) or "the defaults"


def _key(part: str, method: str, condition: Condition) -> tuple[str, str, str, float]:
    return (part, method, "clean" if condition.clean else condition.corruption, condition.level)


def _heading(condition: Condition, several: bool) -> str:
    if condition.clean:
        return "clean" if several else "ours"
    return f"{condition.corruption} {say_level(condition.level)}"


def _figures(block: Block, mean: float | None, worst: float | None) -> str:
    if mean is None:
        return NOTHING
    return block.scale.number(mean) + (f" ({block.scale.number(worst)})" if worst is not None else "")


def _apart(block: Block, method: str, condition: Condition, published: float | None) -> str:
    cell = block.at(method, condition)
    return NOTHING if published is None or cell is None else block.scale.signed(cell.mean - published)
