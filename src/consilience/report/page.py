"""The report of a comparison: one self-contained page, report.html, beside the figures it shows."""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.comparison.modality_contributions import contributions_over_seeds
from consilience.comparison.modality_costs import costs_over_seeds
from consilience.comparison.results import Block, Findings
from consilience.comparison.store import Store
from consilience.comparison.summary import corruptions_of, fates_of, measured_trust, rows_by_result, summarise
from consilience.core.errors import InputError
from consilience.core.file_names import file_name, path_inside
from consilience.core.files import write_atomically
from consilience.data.split_rules import split_words
from consilience.report.artist import Artist
from consilience.report.chart_data import chart_data, chart_json
from consilience.report.confusion_section import confusion_parts
from consilience.report.contribution_section import contribution_part
from consilience.report.cost_section import cost_part
from consilience.report.drawing import SERIES, SERIES_ON_DARK, Drawing, Part
from consilience.report.figures import draw_figures
from consilience.report.recommendation import notes_beside, recommend
from consilience.report.result_tables import legend, rank_table
from consilience.report.sentences import details, headline, say_r, say_test, tally, trust_sentences
from consilience.report.setting_words import say_settings
from consilience.report.wording import (
    Scale,
    capital,
    one_line,
    say_count,
    say_filled,
    say_level,
    say_list,
    say_metric,
    say_moment,
    say_number,
    say_p,
    say_seconds,
)

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
FIGURES, ENDINGS = "figures", ("svg", "png")
FILES = "report.files"  # the list of the files that a report wrote, one in a line
_OWN = re.compile(r"report\.(html|md|json)|figures/[^/]+\.(svg|png)", re.DOTALL)
MOST_CLASSES = 24  # with more, the balance is one sentence and no table


def write_report(findings: Findings, folder: str | Path) -> Path:
    """Write `report.html`, and every figure as SVG and PNG under `figures/`; returns the page's path.

    Every file is written beside the old one and then takes its place, so a report is never half there.
    """
    parts = draw_figures(findings)
    drawings = [drawing for part in parts.values() for drawing in part.drawings]
    return write_page(Path(folder), drawings, {PAGE: render_page(findings, parts)})


def write_page(folder: Path, drawings: Sequence[Drawing], texts: Mapping[str, str]) -> Path:
    """Write figures as SVG and PNG, then texts by the names of their files; returns the path of the last text.

    Figures of an earlier report that had more of them are removed; what no report wrote stays.

    Raises:
        InputError: If a file would be replaced that no report wrote. Nothing is written then.
    """
    figures = {figure_path(drawing.name, kind): drawing for drawing in drawings for kind in ENDINGS}
    names = [*figures, *texts]
    before = check_report_folder(folder, names)
    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    _write_list(folder, {*before, *names})  # first: what is written before a crash is known to be ours
    for name, drawing in figures.items():
        write_atomically(folder / name, drawing.file_content(name))
    for name, text in texts.items():
        page = write_atomically(folder / name, text.encode("utf-8", "replace"))
    for name in before - set(names):
        (folder / name).unlink(missing_ok=True)
    _write_list(folder, names)
    return page


def figure_path(name: str, ending: str) -> str:
    """Return where a figure's file is, in the folder of its report."""
    return f"{FIGURES}/{file_name(name)}.{ending}"


def check_report_folder(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the files in a folder that an earlier report wrote.

    Raises:
        InputError: If one of `names` exists there and is none of them, or is a symbolic link. In the run folder of a
            comparison the names are the report's.
    """
    names = list(names)
    for name in (FIGURES, FILES, *names):
        path_inside(folder, *name.split("/"))
    if (folder / FILES).is_file():
        listed = (folder / FILES).read_text(encoding="utf-8", errors="replace").split("\n")
        known = {name for name in listed if _OWN.fullmatch(name)}
        foreign = [FILES] if {*listed} - known - {""} else []
    else:
        known, foreign = _files_before_lists(folder), []
    foreign += [name for name in names if os.path.lexists(folder / name) and name not in known]
    if foreign and Store(folder).read_plan() is None:
        raise InputError(
            f"report: {folder / foreign[0]} exists and was not written by a report, which would replace it: "
            "move it, or choose another folder"
        )
    return known


def _write_list(folder: Path, names: Iterable[str]) -> None:
    write_atomically(folder / FILES, "".join(f"{name}\n" for name in sorted(names)))


def _files_before_lists(folder: Path) -> set[str]:
    """The files of a report by a version that kept no list: what is beside a page of ours, and its figures."""
    try:
        page = (folder / PAGE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    if '<meta name="generator" content="consilience ' not in page[:2000]:
        return set()
    drawn = re.findall(r'<figure id="figure-([a-z0-9-]+)"', page)
    figures = (figure_path(name, ending) for name in drawn for ending in ENDINGS)
    return {PAGE, "report.md", "report.json", *figures}


def render_page(findings: Findings, parts: dict[str, Part] | None = None) -> str:
    """The page as text. parts: the figures, drawn here unless given."""
    from markupsafe import Markup

    chart = chart_data(findings, Artist(findings).looks)
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            findings=findings,
            parts=draw_figures(findings) if parts is None else parts,
            recommended=recommend(findings),
            answer=headline(findings),
            notes=notes_beside(findings),
            chosen={name: choice.method for name, choice in findings.choices.items()},
            sorted_by="descending" if findings.larger_is_better else "ascending",
            chart=None if chart is None else Markup(chart_json(chart)),
            confusions=confusion_parts(findings),
            tally=tally(findings),
            blocks=summarise(findings),
            legend=capital(legend(findings)),
            ranks=rank_table(findings) if len(findings.ranks) and len(findings.sets) > 1 else None,
            sets=[_describe_set(name, about) for name, about in findings.sets.items()],
            fates=[
                (name, method, *fate) for name in findings.sets for method, fate in fates_of(findings, name).items()
            ],
            measured=[(block, trust_sentences(block), details(block)) for block in measured_trust(findings)],
            costs=[cost_part(block) for block in costs_over_seeds(findings)],
            contributed=[contribution_part(block, findings.metric) for block in contributions_over_seeds(findings)],
            tested=say_test(findings),
            timings=_timing_rows(findings),
            corruptions=_describe_corruptions(findings),
            papers=_papers(findings),
            settings=say_settings(findings.settings),
        )
    )


def environment() -> Environment:
    """Return the templates, with the filters they use."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("consilience.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "code": _code,
        "clean": one_line,
        "level": say_level,
        "metric": say_metric,
        "moment": say_moment,
        "p": say_p,
        "seconds": say_seconds,
        "count": say_count,
        "filled": say_filled,
        "drawing": _inline,
        "r": say_r,
        "sha256": _sha256,
        "by_result": rows_by_result,
    }
    templates.globals |= {
        "columns": _column_groups,
        "number_of": say_number,
        "listed": say_list,
        "scale_of": Scale.of_block,
        "file": _file,
        "series": SERIES,
        "dark_series": SERIES_ON_DARK,
    }
    return templates


def _file(name: str) -> Any:
    """A style sheet or script beside the templates, as it is: no part of it comes from data."""
    from markupsafe import Markup

    return Markup(Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8"))


def _sha256(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet.

    >>> _sha256("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _code(text: str) -> Any:
    """A sentence as HTML: escaped, backticks as code, no line break between a number and its sign or unit."""
    from markupsafe import Markup, escape

    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(one_line(text))))
    return Markup(re.sub(r" (?=[±%])|(?<=±) |(?<=\bp) (?==|&lt;)|(?<=\bp =) |(?<=\bp &lt;) ", "\u00a0", escaped))


def _inline(drawing: Drawing) -> Any:
    """A figure's SVG for the page; two where a phone gets its own, of which the style sheet shows one."""
    from markupsafe import Markup

    if drawing.narrow is None:
        return Markup(drawing.svg())
    wide, narrow = drawing.svg(), drawing.narrow_svg()
    return Markup(f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>')


def _column_groups(block: Block) -> list[tuple[str, int]]:
    """The table's upper header: each corruption and how many columns it spans; clean has none above it."""
    groups: dict[str, int] = {}
    for condition in block.conditions:
        if not condition.clean:
            groups[condition.corruption] = groups.get(condition.corruption, 0) + 1
    return list(groups.items())


def _describe_set(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """A set's description with its split and balance in words."""
    split = about.get("split", {})
    parts = say_list(f"{count} {part}" for part, count in split.items())
    if about.get("official_split"):
        origin = "the test part came with the data"
        origin += ", validation is drawn anew for every seed" if about.get("drawn_validation") else ""
    else:
        origin = f"{split_words(about.get('split_rule'))}, the same for all methods"
    classes = about.get("classes") or []
    shares = [known["share"] for known in classes]
    balance = f"{100 * min(shares):.1f} to {100 * max(shares):.1f} % of the samples each" if classes else ""
    return {
        "description": "",
        "licence": "",
        "samples": None,
        "modalities": [],
        "targets": [],
        **about,
        "name": name,
        "split_words": f"{parts}; {origin}" if parts else "",
        "classes": classes if len(classes) <= MOST_CLASSES else [],
        "balance": f"{len(classes)} classes, {balance}" if classes else "",
        "largest": max(shares, default=1.0),
    }


def _describe_corruptions(findings: Findings) -> list[tuple[str, str]]:
    """What a level of each corruption means; one that is not registered under its name has no sentence."""
    from consilience.corruption import corruption_names, find_corruption

    known = corruption_names()
    return [(name, find_corruption(name).level if name in known else "") for name in corruptions_of(findings)]


def _timing_rows(findings: Findings) -> list[dict[str, Any]]:
    import polars as pl

    numbers = ("training_seconds", "prediction_seconds", "parameters", "epochs")
    grouped = findings.timings.group_by("set", "method", maintain_order=True)
    return list(grouped.agg(pl.col(name).mean() for name in numbers).iter_rows(named=True))


def _papers(findings: Findings) -> list[tuple[str, list[str]]]:
    """Each paper once, with the methods it describes."""
    papers: dict[str, list[str]] = {}
    for method, paper in findings.papers.items():
        if paper:
            papers.setdefault(paper, []).append(method)
    return sorted(papers.items())
