"""A document of words, tables and figures, such as a reproduced paper's: as a page, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from consilience.core.errors import unknown_name
from consilience.core.file_names import file_name
from consilience.report.drawing import Drawing
from consilience.report.page import FIGURES, FILES, PAGE, check_report_folder, environment, write_page
from consilience.report.text_table import TextTable, console_tables, latex_tables, markdown_escape, markdown_tables
from consilience.report.wording import one_line
from consilience.version import __version__

if TYPE_CHECKING:
    pass

QUICK = "Quick form (`--quick`): fewer seeds, often smaller sets and shorter training than at full size."
MARKDOWN, JSON = "report.md", "report.json"
# All that is written beside the folders of parts.
REPORT_NAMES = (PAGE, MARKDOWN, JSON, FIGURES, FILES)
_OF_FIGURES = ("name", "caption", "alt")


@dataclass(frozen=True)
class Section:
    """A part of the page. name: its anchor · figures stand below the words and the tables · links: (text, address)."""

    name: str
    title: str
    words: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    figures: tuple[Drawing, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Document:
    """Words, tables and figures of a study. answer: the first sentences · paper: what was reproduced, if any."""

    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]
    command: str = ""
    paper: str = ""
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def tables(self) -> list[TextTable]:
        """All tables in order."""
        return [table for section in self.sections for table in section.tables]

    def to_json(self) -> dict[str, Any]:
        """Words and tables in plain values; of figures, their names and what they show."""
        plain = asdict(replace(self, sections=tuple(replace(section, figures=()) for section in self.sections)))
        for section, described in zip(self.sections, plain["sections"]):
            described["figures"] = [{name: getattr(each, name) for name in _OF_FIGURES} for each in section.figures]
        return plain

    def table(self, format: str = "console") -> Any:
        """The tables: "console" gives something for rich to print, "markdown" and "latex" give text."""
        drawers: dict[str, Callable[[list[TextTable]], Any]] = {
            "console": console_tables,
            "markdown": markdown_tables,
            "latex": latex_tables,
        }
        if format not in drawers:
            raise unknown_name("format", format, drawers)
        return drawers[format](self.tables)


def write_document(document: Document, folder: str | Path) -> Path:
    """Write `report.html`, `report.md`, `report.json` and every figure as SVG and PNG under `figures/`.

    Returns the page's path.
    """
    plain = document.to_json()
    texts = {
        MARKDOWN: document_markdown(plain),
        JSON: json.dumps(plain, indent=1, ensure_ascii=False) + "\n",
        PAGE: render_document(document),
    }
    return write_page(Path(folder), [drawing for section in document.sections for drawing in section.figures], texts)


def check_document_folder(folder: Path) -> None:
    """Raise an error if a folder holds files that `write_document` would replace and no report wrote."""
    check_report_folder(folder, (MARKDOWN, JSON, PAGE))


def render_document(document: Document, kicker: str = "reproduction") -> str:
    """The page as text; `kicker` says above the title what kind of page it is."""
    template = environment().get_template("document.html.jinja")
    quick = QUICK if "--quick" in document.command.split() else None
    return template.render(document=document, title=document.title, kicker=kicker, quick=quick, version=__version__)


def document_markdown(plain: Mapping[str, Any], figures: str = "figures/{}.png") -> str:
    """Return a document in Markdown.

    Args:
        plain: The document in plain values, as `to_json` and `report.json` have it.
        figures: The path of a figure, with {} for its name.
    """
    parts = [f"# {markdown_escape(one_line(plain['title']))}", *plain["answer"]]
    if "--quick" in plain["command"].split():
        parts.insert(1, QUICK)
    for section in plain["sections"]:
        parts += [f"## {markdown_escape(one_line(section['title']))}", *section["words"]]
        parts += [markdown_tables([TextTable(**table)]).rstrip("\n") for table in section["tables"]]
        for figure in section["figures"]:
            path = figures.format(quote(file_name(figure["name"])))
            parts += [f"![{markdown_escape(one_line(figure['alt']))}]({path})"]
            parts += [figure["caption"]]
        parts += [f"[{markdown_escape(one_line(text))}]({address})" for text, address in section["links"]]
    return "\n\n".join([*parts, f"    {one_line(plain['command'])}"]) + "\n"
