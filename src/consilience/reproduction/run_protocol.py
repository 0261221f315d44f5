"""Run the comparisons of a protocol and write its page: results beside the published figures, verdicts, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from consilience.comparison.comparison import Comparison, compare
from consilience.comparison.results import CLEAN, Block, Condition
from consilience.comparison.store import writing
from consilience.comparison.summary import summarise
from consilience.core.errors import InputError, MissingDataError
from consilience.core.file_names import file_name, path_inside
from consilience.report.document import (
    REPORT_NAMES,
    Document,
    Section,
    TextTable,
    check_document_folder,
    write_document,
)
from consilience.report.result_tables import cell_text, legend
from consilience.report.sentences import headline
from consilience.report.wording import NOTHING, Scale, say_level, say_list, say_metric, say_number, say_versions
from consilience.reproduction.claims import check_claims, in_short
from consilience.reproduction.protocol import Figure, Part, Protocol
from consilience.reproduction.protocol_sections import Addition, find_section
from consilience.reproduction.rank_page import link_to_report, rank_sections
from consilience.reproduction.study import Reproduction, run_folder
from consilience.reproduction.yaml_lines import naming


def run_protocol(
    protocol: Protocol, *, quick: bool = False, out: str | Path | None = None, command: str = "", **running: Any
) -> Reproduction:
    """Run every part of a protocol, each in a folder of its own below the run folder, and write the page.

    The same call continues an earlier one. A part whose data are not found is left out, and the page says what to get.

    Args:
        protocol: As `read_protocol` returns it.
        quick: Run the quick form.
        out: The run folder; `runs/NAME` by default.
        command: What the page shows as the command that made it.
        running: `jobs`, `side_by_side`, `cluster` and `verbose`, as `compare` takes them.

    Raises:
        MissingDataError: If the data of no part are found.
    """
    folder = run_folder(protocol.name, quick, out)
    check_document_folder(folder)
    sections = [(find_section(request), request) for request in protocol.sections]  # before any training
    done: dict[str, Comparison] = {}
    absent: dict[str, MissingDataError] = {}
    for name, part in protocol.parts.items():
        arguments = part.quick if quick else part.full
        if arguments is None:
            continue
        try:
            with naming(part.where):
                others = [other for other in protocol.parts if other != name]
                own = path_inside(folder, file_name(name, among=[*others, *REPORT_NAMES]))
                defaults = {"encoders": {}, "thorough": True}
                done[name] = compare(**{**defaults, **arguments}, out=own, command=command, **running)
        except MissingDataError as error:
            absent[name] = error
    if not done:
        if not absent:
            raise InputError(f"{protocol.path}: every part has `quick: false`; run it without --quick")
        raise next(iter(absent.values()))
    additions = []
    for function, request in sections:
        with naming(request.where):
            additions.append(function(protocol, done, **request.settings))
    missing = [f"{name} was left out: {reason}" for name, reason in absent.items()]
    document = write_up(protocol, done, additions, missing, command)
    with writing(folder):
        page = write_document(document, folder)
    return Reproduction(folder, document, page)


def write_up(
    protocol: Protocol,
    comparisons: Mapping[str, Comparison],
    additions: Sequence[Addition],
    missing: Sequence[str],
    command: str,
) -> Document:
    """Return the page's content. comparisons: by part · additions: from its sections · missing: parts left out."""
    claims = check_claims(protocol.claims, comparisons)
    own = [verdict for addition in additions for verdict in addition.verdicts]
    answer = [*in_short(claims), *own]
    by_rank, sections, known = rank_sections(protocol.parts, comparisons) if protocol.page == "ranks" else ([], [], [])
    if sections:
        answer = [*by_rank, *answer]
        notes = Section("known", "What to know", (*missing, *known, *protocol.notes))
    else:
        if protocol.page == "ranks":
            missing = [*missing, "There are no mean ranks: they need two sets and three methods that all sets share."]
        sections = [part_section(protocol, name, comparison) for name, comparison in comparisons.items()]
        notes = Section("differences", "Reasons for differences", (*missing, *protocol.notes))
    if claims or own:
        sections.append(claims_section([*claims, *own]))
    sections += [section for addition in additions for section in addition.sections]
    sections += [notes] if notes.words else []
    sections.append(Section("made", "How it was made", tuple(how_made(comparisons))))
    answer = answer or list(headlines(protocol.parts, comparisons))
    return Document(protocol.title, tuple(answer), tuple(sections), command, protocol.paper)


def claims_section(claims: Sequence[str]) -> Section:
    """All claims with their verdicts, and how their figures are to be read."""
    read = (
        "Each interval is that of one claim by itself, while p is corrected by Holm over several: an interval may "
        "leave zero out where p does not decide."
    )
    words = (*([read] if len(claims) > 1 else []), *claims)
    return Section("claims", "What the paper says, and what is found", words)


def headlines(parts: Mapping[str, Part], comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    """The first sentences of every comparison's report; of several comparisons, with the part's title."""
    for name, comparison in comparisons.items():
        first, *others = headline(comparison.findings)
        title = parts[name].title if len(comparisons) > 1 else ""
        yield f"{title}: {first[0].lower()}{first[1:]}" if title else first
        yield from others


def part_section(protocol: Protocol, name: str, comparison: Comparison) -> Section:
    """One comparison: its table with the published figures, and where its own report is."""
    findings = comparison.findings
    blocks = summarise(findings)
    figures = [figure for key, figure in protocol.published.items() if key[0] == name]
    beside = " Published figures stand in the columns beside ours." if figures else ""
    worst = any(figure.worst is not None for figure in figures)
    words = [legend(findings, worst, bold=False) + beside, *(remark for block in blocks for remark in block.remarks)]
    tables = tuple(published_table(protocol.published, name, block) for block in blocks)
    title = protocol.parts[name].title or ", ".join(findings.sets)
    anchor = f"part-{comparison.folder.name}"
    return Section(anchor, title, tuple(words), tables, links=(link_to_report(name, comparison),))


def published_table(published: Mapping[tuple[str, str, str, float], Figure], name: str, block: Block) -> TextTable:
    """Methods × conditions; where the paper has figures for a condition, they follow with the difference."""
    scale = Scale.of_block(block)
    header, columns = ["method"], []
    for condition in block.conditions:
        corruption = CLEAN if condition.clean else condition.corruption
        figures = [published.get((name, row.method, corruption, condition.level)) for row in block.rows]
        cells = [block.at(row.method, condition) for row in block.rows]
        worst = any(figure is not None and figure.worst is not None for figure in figures)
        columns.append([cell_text(block, cell, worst) for cell in cells])
        header.append(_heading(condition, len(block.conditions) > 1 or not condition.clean))
        if any(figures):
            header += ["published", "difference"]
            columns.append([_figure(scale, figure) for figure in figures])
            columns.append(
                [
                    NOTHING if figure is None or cell is None else scale.signed(cell.mean - figure.mean)
                    for figure, cell in zip(figures, cells)
                ]
            )
    rows = tuple((row.method, *(column[place] for column in columns)) for place, row in enumerate(block.rows))
    marked = tuple(place for place, row in enumerate(block.rows) if row.reference)
    metric = f"{say_metric(block.metric)}{',' + scale.unit if scale.unit else ''}"
    return TextTable(f"{block.set}: {metric}", tuple(header), rows, marked)


def how_made(comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    """Sizes, seeds, epochs, device and versions of every part."""
    for name, comparison in comparisons.items():
        findings = comparison.findings
        sizes = "; ".join(
            ("" if label == name else f"{label} ") + ", ".join(f"{n} {part}" for part, n in about["split"].items())
            for label, about in findings.sets.items()
        )
        epochs, seconds = (np.median(findings.timings[column]) for column in ("epochs", "training_seconds"))
        devices = findings.timings["device"].drop_nulls().unique().sort()
        repeats = findings.settings.get("repeats", 1)
        drawn = f", {repeats} draws of the noise for each" if repeats > 1 else ""
        training = ", ".join(f"{setting} = {value}" for setting, value in findings.settings["training"].items())
        yield (
            f"{name}: {sizes}. {say_number(len(findings.seeds), 'seed')}{drawn}, on the median {epochs:.0f} epochs "
            f"and {seconds:.1f} s of training on {say_list(devices)}. Settings of training: "
            f"{training or 'the defaults'}."
        )
    yield say_versions(findings.versions)


def _heading(condition: Condition, several: bool) -> str:
    if condition.clean:
        return CLEAN if several else "ours"
    return f"{condition.corruption} {say_level(condition.level)}"


def _figure(scale: Scale, figure: Figure | None) -> str:
    if figure is None:
        return NOTHING
    return scale.number(figure.mean) + (f" ({scale.number(figure.worst)})" if figure.worst is not None else "")
