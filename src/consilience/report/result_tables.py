"""The main table, methods × conditions, for a console, for Markdown and for LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, overload

from consilience.comparison.results import Block, Cell, Condition, Findings, Row
from consilience.comparison.summary import conditions_of, rows_by_result, summarise
from consilience.core.errors import unknown_name
from consilience.report.text_table import (
    Printable,
    TextTable,
    console_tables,
    latex_escape,
    latex_table,
    latex_tabular,
    markdown_escape,
    markdown_table,
    markdown_tables,
    titled_table,
)
from consilience.report.wording import NOTHING, Scale, fill_lines, one_line, say_level, say_metric, say_p

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_NAME_WIDTH = 26  # of methods on a console; longer names are wrapped
TableFormat = Literal["console", "markdown", "latex"]
_SIGNS = {"▲": r"^{\blacktriangle}", "▼": r"^{\blacktriangledown}", "": ""}


@overload
def main_table(
    findings: Findings, format: Literal["console"] = "console", *, worst: bool = False, p_values: bool = False
) -> RenderableType: ...
@overload
def main_table(
    findings: Findings, format: Literal["markdown", "latex"], *, worst: bool = False, p_values: bool = False
) -> str: ...
def main_table(
    findings: Findings, format: TableFormat = "console", *, worst: bool = False, p_values: bool = False
) -> RenderableType | str:
    """Methods × conditions, mean ± std over seeds, for every set, by the result of the first condition.

    Where there are several sets, the mean ranks too.

    format: "console" gives something for rich to print, which fits its columns to the terminal; "markdown" and
    "latex" give text · worst: add the worst seed · p_values: add the corrected p-value to every difference.
    """
    drawers: dict[str, Callable[..., Any]] = {"console": _Console, "markdown": _markdown, "latex": _latex}
    if format not in drawers:
        raise unknown_name("format", format, drawers)
    larger = findings.larger_is_better
    blocks = [replace(block, rows=tuple(rows_by_result(block, larger))) for block in summarise(findings)]
    return drawers[format](findings, blocks, worst, p_values)


def cell_text(block: Block, cell: Cell | None, worst: bool = False, p_values: bool = False) -> str:
    """A cell as text: mean ± std, the worst seed in brackets, the mark and its p-value."""
    if cell is None:
        return NOTHING
    scale = Scale.of_block(block)
    parts = [scale.pair(cell.mean, cell.std)]
    if worst:
        parts.append(f"({scale.number(cell.worst)})")
    if cell.mark:
        parts.append(cell.mark)
    if p_values and cell.difference is not None:
        parts.append(f"[{say_p(cell.difference.p_holm)}]")
    return " ".join(parts)


def legend(findings: Findings, worst: bool = False, bold: bool = True) -> str:
    """What the table's signs mean; bold: whether the best is set in bold."""
    spread = "mean ± standard deviation" if len(findings.seeds) > 1 else "values"
    over = f" over {len(findings.seeds)} seeds" if len(findings.seeds) > 1 else " of one seed"
    if (repeats := findings.settings.get("repeats", 1)) > 1:
        over += f", {repeats} draws of the noise for each"
    lowest = ", the worst seed in brackets" if worst else ""
    way = "larger" if findings.larger_is_better else "smaller"
    values = f"{say_metric(findings.metric)}, {spread}{over}{lowest}; {way} is better."
    if findings.values["method"].n_unique() < 2:  # and nothing to compare it with
        return values
    return f"{values} ▲ ▼ significantly better or worse than {one_line(findings.reference)}" + (
        f"; bold: the best mean, if it is significantly better than {one_line(findings.reference)}." if bold else "."
    )


def heading(condition: Condition) -> str:
    """A column's heading where the corruption stands elsewhere."""
    return "clean" if condition.clean else f"level {say_level(condition.level)}"


class _Console(Printable):
    """Tables that fit the terminal they are printed on: one block per corruption, its levels in as many as needed."""

    def __init__(self, findings: Findings, blocks: Sequence[Block], worst: bool, p_values: bool):
        self.findings, self.blocks, self.worst, self.p_values = findings, blocks, worst, p_values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.padding import Padding
        from rich.text import Text

        for block in self.blocks:
            parts = [
                part
                for columns in _by_corruption(block.conditions)
                for part in self._fitting(block, columns, options.max_width)
            ]
            for place, part in enumerate(parts):
                if part not in parts[:place]:  # where clean stands alone, once is enough
                    yield self._table(block, part)
            for remark in block.remarks:
                yield Padding(Text(one_line(remark), style="yellow"), (0, 0, 0, 1))
        if len(self.blocks) > 1 and len(self.findings.ranks):
            yield console_tables([rank_table(self.findings)])
        yield Padding(Text(legend(self.findings, self.worst), style="dim"), (1, 0, 0, 1))

    def _fitting(self, block: Block, columns: list[Condition], width: int) -> list[list[Condition]]:
        """Columns in parts that fit the width, every part with at least one."""
        from rich.cells import cell_len

        names = [cell_len(one_line(row.method)) + (12 if row.reference else 0) for row in block.rows]
        left = width - 2 - min(max(names, default=6), _NAME_WIDTH)
        needs = []
        for column in columns:
            texts = [cell_text(block, cell, self.worst, self.p_values) for cell in _column(block, column)]
            needs.append(3 + max(map(cell_len, [*texts, heading(column)])))
        return [[columns[place] for place in part] for part in fill_lines(needs, left)]

    def _table(self, block: Block, columns: list[Condition]) -> RenderableType:
        from rich.text import Text

        corrupted = next((column.corruption for column in columns if not column.clean), None)
        title = one_line(block.set) + (f" · {one_line(corrupted)}" if corrupted is not None else "")
        table = titled_table(title)
        table.add_column("method", overflow="fold", max_width=_NAME_WIDTH)
        for column in columns:
            table.add_column(heading(column), justify="right", no_wrap=True)
        for row in block.rows:
            name = Text(one_line(row.method), style="dim" if row.fate else "")
            if row.reference:
                name.append(" ·", style="dim").append(" reference", style="dim italic")
            if row.fate:
                table.add_row(name, Text(row.fate, style="yellow"), *[""] * (len(columns) - 1))
                continue
            cells = [block.at(row.method, column) for column in columns]
            table.add_row(name, *(self._styled(block, cell) for cell in cells))
        return table

    def _styled(self, block: Block, cell: Cell | None) -> RenderableType:
        from rich.text import Text

        text = Text(cell_text(block, cell, self.worst, self.p_values))
        if cell is not None:
            text.highlight_words(["▲"], "green")
            text.highlight_words(["▼"], "red")
            if cell.best:
                text.stylize("bold")
        return text


def rank_table(findings: Findings) -> TextTable:
    """Mean ranks over sets, a row per method."""
    conditions = conditions_of(findings, findings.ranks)
    ranks = {
        (row["method"], row["corruption"], row["level"]): row["rank"] for row in findings.ranks.iter_rows(named=True)
    }
    rows = []
    for method in findings.methods:
        own = [ranks.get((method, condition.corruption, condition.level), math.nan) for condition in conditions]
        if any(map(math.isfinite, own)):
            rows.append((one_line(method), *(f"{rank:.1f}" if math.isfinite(rank) else NOTHING for rank in own)))
    return TextTable("mean rank over sets", ("method", *map(_wide_heading, conditions)), tuple(rows))


def _by_corruption(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Clean with each corruption's levels, so that every block can be read alone."""
    clean = [condition for condition in conditions if condition.clean]
    names = dict.fromkeys(condition.corruption for condition in conditions if not condition.clean)
    parts = [
        clean + [condition for condition in conditions if condition.corruption == name and not condition.clean]
        for name in names
    ]
    return parts or [clean]


def _column(block: Block, condition: Condition) -> list[Cell | None]:
    place = block.conditions.index(condition)
    return [row.cells[place] for row in block.rows]


def _markdown(findings: Findings, blocks: Sequence[Block], worst: bool, p_values: bool) -> str:
    parts = []
    for block in blocks:
        header = ["method", *(markdown_escape(_wide_heading(condition)) for condition in block.conditions)]
        rows = [_markdown_row(block, row, worst, p_values) for row in block.rows]
        parts += [f"**{markdown_escape(one_line(block.set))}**", markdown_table(header, rows)]
        if block.remarks:
            parts.append(
                "\n".join(f"- {markdown_escape(one_line(remark).replace('`', ''))}" for remark in block.remarks)
            )
    if len(blocks) > 1 and len(findings.ranks):
        parts.append(markdown_tables([rank_table(findings)]).rstrip("\n"))
    return "\n\n".join([*parts, markdown_escape(legend(findings, worst))]) + "\n"


def _wide_heading(condition: Condition) -> str:
    return "clean" if condition.clean else f"{one_line(condition.corruption)} {say_level(condition.level)}"


def _markdown_row(block: Block, row: Row, worst: bool, p_values: bool) -> list[str]:
    name = markdown_escape(one_line(row.method)) + (" (reference)" if row.reference else "")
    if row.fate:
        return [name, row.fate, *[""] * (len(row.cells) - 1)]
    cells = []
    for cell in row.cells:
        text = markdown_escape(cell_text(block, cell, worst, p_values))
        cells.append(f"**{text}**" if cell is not None and cell.best else text)
    return [name, *cells]


def _latex(findings: Findings, blocks: Sequence[Block], worst: bool, p_values: bool) -> str:
    parts = ["% needs \\usepackage{booktabs,amssymb}"]
    for block in blocks:
        columns = [list(block.conditions)] if len(block.conditions) <= 6 else _by_corruption(block.conditions)
        parts += [latex_block(block, part, legend(findings, worst), worst, p_values) for part in columns]
    if len(blocks) > 1 and len(findings.ranks):
        ranks = rank_table(findings)
        parts.append(latex_table("Mean rank over sets, 1 is best.", ranks.header, ranks.rows))
    return "\n\n".join(parts) + "\n"


def latex_block(
    block: Block, columns: Sequence[Condition], legend: str, worst: bool = False, p_values: bool = False
) -> str:
    """One set's table, corruptions as groups of columns."""
    groups = [
        (name, list(part))
        for name, part in groupby(columns, key=lambda column: "" if column.clean else column.corruption)
    ]
    top = " & ".join(["", *(rf"\multicolumn{{{len(part)}}}{{c}}{{{latex_escape(name)}}}" for name, part in groups)])
    bottom = " & ".join(["method", *("clean" if column.clean else say_level(column.level) for column in columns)])
    rules, start = [], 2
    for name, part in groups:
        if name:
            rules.append(rf"\cmidrule(lr){{{start}-{start + len(part) - 1}}}")
        start += len(part)
    places = [block.conditions.index(column) for column in columns]
    rows = [_latex_row(block, row, places, worst, p_values) for row in block.rows]
    head = [rf"{top} \\", "".join(rules)] if rules else []
    remarks = "".join(f" {latex_escape(remark.replace('`', ''))}." for remark in block.remarks)
    return latex_tabular(
        f"{latex_escape(block.set)}: {latex_escape(legend)}{remarks}", len(columns), [*head, rf"{bottom} \\"], rows
    )


def _latex_row(block: Block, row: Row, places: list[int], worst: bool, p_values: bool) -> str:
    name = latex_escape(row.method) + (r" \emph{(reference)}" if row.reference else "")
    if row.fate:
        return rf"{name} & \multicolumn{{{len(places)}}}{{l}}{{\emph{{{row.fate}}}}} \\"
    cells = (_latex_cell(block, row.cells[place], worst, p_values) for place in places)
    return " & ".join([name, *cells]) + r" \\"


def _latex_cell(block: Block, cell: Cell | None, worst: bool, p_values: bool) -> str:
    if cell is None:
        return "--"
    scale = Scale.of_block(block)
    number = scale.pair(cell.mean, cell.std).replace("±", r"\pm").replace("−", "-")
    if worst:
        number += rf"\;({scale.number(cell.worst).replace('−', '-')})"
    number = rf"\mathbf{{{number}}}" if cell.best else number
    p = rf" \emph{{{latex_escape(say_p(cell.difference.p_holm))}}}" if p_values and cell.difference is not None else ""
    return f"${number}{_SIGNS[cell.mark]}${p}"
