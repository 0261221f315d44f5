"""Permutation importance as a table."""

from __future__ import annotations

from consilience.evaluation import PermutationImportance
from consilience.report.text_table import TextTable
from consilience.report.wording import Scale, capital, one_line, say_metric, say_number


def importance_table(found: PermutationImportance) -> TextTable:
    """Return one line for each group, the most important first; positive: worse when it is shuffled."""
    table = found.table()
    scale, repeats = Scale.of(found.metric, table["std"].to_list()), found.per_repeat.shape[1]
    rows = [
        (one_line(row["group"]), scale.pair(row["importance"], row["std"]), scale.number(row["shuffled"]))
        for row in table.iter_rows(named=True)
    ]
    points = ", points" if scale.unit else ""
    spread = f" ± standard deviation over {say_number(repeats, 'shuffling')}" if repeats > 1 else ""
    caption = (
        f"{capital(say_metric(found.metric))} {scale.number(found.baseline)}{scale.unit}: how much worse with a group "
        f"shuffled{points}{spread}"
    )
    return TextTable(caption, ("group", "worse by", "shuffled"), tuple(rows))
