"""Tables in LaTeX: booktabs, everything that comes from a user escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from consilience.comparison.results import Block, Cell, Condition, Row
from consilience.report.wording import Scale, one_line, say_level, say_p

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
_SIGNS = {"▲": r"^{\blacktriangle}", "▼": r"^{\blacktriangledown}", "": ""}


def latex_escape(text: str) -> str:
    r"""Text that LaTeX prints as it stands.

    >>> latex_escape("50% of a_b")
    '50\\% of a\\_b'
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in one_line(text))


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
    rows = [_row(block, row, places, worst, p_values) for row in block.rows]
    head = [rf"{top} \\", "".join(rules)] if rules else []
    remarks = "".join(f" {latex_escape(remark.replace('`', ''))}." for remark in block.remarks)
    return _table(
        f"{latex_escape(block.set)}: {latex_escape(legend)}{remarks}", len(columns), [*head, rf"{bottom} \\"], rows
    )


def latex_ranks(header: list[str], rows: list[list[str]]) -> str:
    """Mean ranks over sets."""
    return latex_table("Mean rank over sets, 1 is best.", header, rows)


def latex_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text, names in the first column and numbers in the others."""
    head, *lines = (" & ".join(map(latex_escape, row)) + r" \\" for row in (header, *rows))
    return _table(latex_escape(caption), len(header) - 1, [head], lines)


def _table(caption: str, columns: int, head: list[str], rows: list[str]) -> str:
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


def _row(block: Block, row: Row, places: list[int], worst: bool, p_values: bool) -> str:
    name = latex_escape(row.method) + (r" \emph{(reference)}" if row.reference else "")
    if row.fate:
        return rf"{name} & \multicolumn{{{len(places)}}}{{l}}{{\emph{{{row.fate}}}}} \\"
    cells = (_cell(block, row.cells[place], worst, p_values) for place in places)
    return " & ".join([name, *cells]) + r" \\"


def _cell(block: Block, cell: Cell | None, worst: bool, p_values: bool) -> str:
    if cell is None:
        return "--"
    scale = Scale.of_block(block)
    number = scale.pair(cell.mean, cell.std).replace("±", r"\pm").replace("−", "-")
    if worst:
        number += rf"\;({scale.number(cell.worst).replace('−', '-')})"
    number = rf"\mathbf{{{number}}}" if cell.best else number
    p = rf" \emph{{{latex_escape(say_p(cell.difference.p_holm))}}}" if p_values and cell.difference is not None else ""
    return f"${number}{_SIGNS[cell.mark]}${p}"
