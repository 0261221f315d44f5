"""A table of text, and how consoles, Markdown and LaTeX show it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from consilience.core.plain_text import markdown_escape as markdown_escape
from consilience.report.wording import fill_lines, one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "−": r"$-$",
    "–": "--",
}


@dataclass(frozen=True)
class TextTable:
    """A table as text: names in the first column, numbers in the others. marked: rows to be highlighted."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[int, ...] = ()


class Printable:
    """Something for rich to print that Python's `print` shows too, as plain text of the terminal's width."""

    def __str__(self) -> str:
        from rich.console import Console

        written = StringIO()
        width = shutil.get_terminal_size((100, 24)).columns
        Console(file=written, width=width, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines())

    __repr__ = __str__


def console_tables(tables: Sequence[TextTable]) -> RenderableType:
    """Return tables for rich to print, which fit their columns to the terminal; `print` shows them too."""
    return _Group(tables)


class _Group(Printable):
    """Tables below each other."""

    def __init__(self, tables: Sequence[TextTable]):
        self.tables = [_Fitting(table) for table in tables]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.tables


class _Fitting:
    """A table that fits the terminal it is printed on: its columns in as many blocks as needed, each with the first.

    Headings are broken between words; a cell only where it alone is wider than the terminal.
    """

    def __init__(self, table: TextTable):
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len

        first, *others = zip(self.table.header, *self.table.rows)
        names = min(max(map(cell_len, first)), options.max_width // 3)
        room = options.max_width - names - 2
        needs = [max(map(cell_len, (*heading.split(), *cells)), default=1) for heading, *cells in others]
        widths = [max(1, min(need, room - 3)) for need in needs]
        for part in fill_lines([3 + width for width in widths], room):
            yield self._block(names, {1 + place: widths[place] for place in part})

    def _block(self, names: int, widths: Mapping[int, int]) -> RenderableType:
        """The first column and some others, by their places and least widths."""
        from rich.text import Text

        text = self.table
        table = titled_table(text.caption)
        table.add_column(Text(text.header[0]), overflow="fold", max_width=names)
        for place, width in widths.items():
            table.add_column(Text(text.header[place]), justify="right", overflow="fold", min_width=width)
        for number, row in enumerate(text.rows):
            cells = (Text(row[place]) for place in (0, *widths))
            table.add_row(*cells, style="bold" if number in text.marked else "")
        return table


def titled_table(title: str) -> Table:
    """Return an empty table for rich to print, in the style that all tables have."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    return Table(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left", title_style="bold", pad_edge=False)


def markdown_tables(tables: Sequence[TextTable]) -> str:
    """Return tables in Markdown, each below its caption; marked rows are bold."""
    parts = []
    for table in tables:
        rows = [[markdown_escape(cell) for cell in row] for row in table.rows]
        for place in table.marked:
            rows[place] = [f"**{cell}**" if cell else "" for cell in rows[place]]
        header = [markdown_escape(name) for name in table.header]
        parts += [f"**{markdown_escape(table.caption)}**", markdown_table(header, rows)]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns are of one width, names on the left and numbers on the right."""
    from rich.cells import cell_len

    widths = [max(3, *(cell_len(row[place]) for row in [header, *rows])) for place in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = []
        for place, (cell, width) in enumerate(zip(cells, widths)):
            space = " " * (width - cell_len(cell))
            padded.append(space + cell if place else cell + space)
        return f"| {' | '.join(padded)} |"

    rule = [f"{'-' * (width - 1)}{':' if place else '-'}" for place, width in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def latex_tables(tables: Sequence[TextTable]) -> str:
    """Return tables in LaTeX."""
    written = [latex_table(table.caption, table.header, table.rows) for table in tables]
    return "\n\n".join(["% needs \\usepackage{booktabs}", *written]) + "\n"


def latex_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text, names in the first column and numbers in the others."""
    head, *lines = (" & ".join(map(latex_escape, row)) + r" \\" for row in (header, *rows))
    return latex_tabular(latex_escape(caption), len(header) - 1, [head], lines)


def latex_tabular(caption: str, columns: int, head: list[str], rows: list[str]) -> str:
    """A table of lines that are LaTeX already; columns: how many follow the first."""
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'r' * columns}}}",
            r"\toprule",
            *head,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def latex_escape(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    >>> latex_escape("50% of a_b")
    '50\\% of a\\_b'
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in one_line(text))
