"""The main table against means recomputed from the values, in every format."""

import re
from io import StringIO

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from consilience.comparison.results import Findings
from consilience.comparison.summary import summarise
from consilience.core.errors import InputError, UnknownNameError
from consilience.report import main_table
from consilience.report.text_table import TextTable, console_tables, latex_escape, markdown_escape
from consilience.report.wording import Scale, one_line
from report.factory import HOSTILE, make_findings


def test_rows_of_a_metric_that_is_not_registered_stand_from_best_to_worst():
    """Findings of another process may have a metric that is not registered in this one."""
    findings = make_findings()
    errors = findings.values.filter(metric="accuracy").with_columns(metric=pl.lit("own"), value=1 - pl.col("value"))
    own = Findings(**{**vars(findings), "metric": "own", "larger_is_better": False, "values": errors})
    tables = [main_table(each, "markdown").splitlines() for each in (findings, own)]
    names = [[line.split("|")[1] for line in table if line.startswith("|") and "±" in line] for table in tables]
    assert len(names[0]) > 3
    assert names[1] == names[0]


def printed(findings: Findings, width: int, **options: bool) -> str:
    written = StringIO()
    Console(width=width, file=written).print(main_table(findings, **options))
    return written.getvalue()


def expected(findings: Findings, method: str, corruption: str, level: float, decimals: int = 1) -> str:
    """Mean ± std in per cent, by numpy and not by way of the summary."""
    rows = findings.values.filter(
        (pl.col("method") == method)
        & (pl.col("corruption") == corruption)
        & (pl.col("level") == level)
        & (pl.col("metric") == findings.metric)
    )
    values = 100 * rows["value"].to_numpy()
    return f"{np.mean(values):.{decimals}f} ± {np.std(values, ddof=1):.{decimals}f}"


def markdown_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


class TestNumbers:
    def test_every_cell_is_the_mean_and_std_of_its_values(self):
        findings = make_findings()
        header, _, *rows = markdown_rows(main_table(findings, "markdown"))
        assert header == ["method", "clean", "gaussian 5", "gaussian 10", "salt-and-pepper 5", "salt-and-pepper 10"]
        columns = [("gaussian", 0), ("gaussian", 5), ("gaussian", 10), ("salt-and-pepper", 5), ("salt-and-pepper", 10)]
        decimals = Scale.of_block(summarise(findings)[0]).decimals
        named = {row[0].removesuffix(" (reference)"): row for row in rows}
        cleans = [float(row[1].strip("*▲▼ ").split(" ±")[0]) for row in rows[:8]]
        assert cleans == sorted(cleans, reverse=True)
        for method in findings.methods[:8]:
            row = named[markdown_escape(one_line(method))]
            for (corruption, level), cell in zip(columns, row[1:]):
                assert cell.strip("*▲▼ ") == expected(findings, method, corruption, level, decimals)

    def test_marks_follow_the_differences_and_bold_follows_best(self):
        findings = make_findings()
        rows = {row[0]: row[1:] for row in markdown_rows(main_table(findings, "markdown"))}
        for place, condition in enumerate(summarise(findings)[0].conditions):
            for method in ("qmf", "concat", "early", "late-probs"):
                cell = rows[method][place]
                found = findings.differences.filter(
                    method=method, corruption=condition.corruption, level=condition.level
                ).row(0, named=True)
                wanted = "" if not found["significant"] else "▲" if found["difference"] > 0 else "▼"
                assert cell.strip("*")[-1] == wanted if wanted else not set(cell) & set("▲▼")
                best = findings.best.get(("digits", condition.corruption, condition.level))
                assert cell.startswith("**") == (best == method)
        findings.best.clear()
        assert "**9" not in main_table(findings, "markdown")

    def test_worst_is_the_largest_error_where_smaller_is_better(self):
        findings = make_findings(task="regression", methods=["late", "concat"])
        cell = summarise(findings)[0].rows[1].cells[0]
        values = findings.values.filter(method="concat", corruption="gaussian", level=0.0, metric="mse")["value"]
        assert cell.worst == values.max()
        assert cell.median == pytest.approx(np.median(values.to_numpy()))
        text = main_table(findings, "markdown", worst=True, p_values=True)
        assert "[p" in text.replace("\\", "")

    def test_one_seed_has_no_spread(self):
        text = main_table(make_findings(seeds=1), "markdown")
        assert "±" not in text
        assert "one seed" in text


class TestFates:
    def test_skipped_and_failed_say_why(self):
        findings = make_findings(failed=[("align", 3, "TrainingError: loss is nan"), ("boom", 0, "ValueError: no")])
        for text in (main_table(findings, "markdown"), main_table(findings, "latex"), printed(findings, 100)):
            flat = " ".join(text.split())
            assert "it reads sequence, tokens" in flat
            assert "failed for 1 of 10 seeds: TrainingError: loss is nan" in flat
            assert "boom" in flat
            assert "failed: ValueError: no" in flat

    def test_a_method_without_any_trace_was_not_run(self):
        findings = make_findings()
        findings.methods.append("forgotten")
        assert summarise(findings)[0].rows[-1].fate == "not run"

    def test_a_set_shows_only_the_corruptions_it_met(self):
        findings = make_findings(["late", "qmf"], sets=("digits", "captions"))
        met = (pl.col("set") == "digits") | (pl.col("corruption") == "salt-and-pepper")
        findings.values, findings.differences = findings.values.filter(met), findings.differences.filter(met)
        digits, captions = summarise(findings)
        assert len(digits.conditions) == 5
        assert [condition.words for condition in captions.conditions] == [
            "clean",
            "salt-and-pepper at level 5",
            "salt-and-pepper at level 10",
        ]
        assert all(cell for row in captions.rows if not row.fate for cell in row.cells)

    def test_nothing_at_all(self):
        findings = make_findings([], corruptions=())
        for format in ("markdown", "latex"):
            assert "skipped" in main_table(findings, format)
        assert "skipped" in printed(findings, 80)


class TestConsole:
    @pytest.mark.parametrize("width", [44, 60, 80, 140])
    def test_fits_the_terminal_and_cuts_no_number(self, width):
        findings = make_findings(levels=(0.0, 1.0, 2.0, 5.0, 10.0))
        text = printed(findings, width)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        decimals = Scale.of_block(summarise(findings)[0]).decimals
        for corruption in findings.corruptions:
            for level in findings.levels:
                assert expected(findings, "qmf", corruption, level, decimals) in text
        assert "…" not in text

    def test_markup_in_names_is_printed_and_not_obeyed(self):
        assert "[red]x[/red]" in printed(make_findings(["late", "[red]x[/red]"]), 100)

    def test_several_sets_come_with_ranks(self):
        findings = make_findings(sets=("digits", "captions"))
        assert "mean rank over sets" in printed(findings, 80)
        assert "Mean rank over sets" in main_table(findings, "latex")
        rows = markdown_rows(main_table(findings, "markdown").split("mean rank over sets")[1])
        assert sum(float(row[1]) for row in rows[2:]) == pytest.approx(36, abs=0.5)  # 1 + … + 8


def test_markdown_columns_are_even():
    text = main_table(make_findings(["late", "日本語", HOSTILE, "x"]), "markdown")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({cell_len(line) for line in lines}) == 1
    assert len({len(row) for row in markdown_rows(text)}) == 1
    assert "<script>" not in text


def test_latex_is_balanced_and_escaped():
    text = main_table(make_findings(), "latex")
    assert r"\textless{}script\textgreater{}" in text
    assert r"\_\$\textasciicircum{}\%" in text
    for left, right in ((r"\begin{tabular}", r"\end{tabular}"), ("{", "}")):
        assert text.count(left) == text.count(right)
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {5}
    assert not [line for line in rows if line.count("$") % 2 and HOSTILE not in line and r"\$" not in line]


@given(st.text())
def test_latex_escape_leaves_no_bare_special_character(text):
    rest = latex_escape(text)
    for allowed in (
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
        r"\textless{}",
        r"\textgreater{}",
    ):
        rest = rest.replace(allowed, "")
    for sign in (r"$\pm$", r"$\blacktriangle$", r"$\blacktriangledown$", "$-$"):
        rest = rest.replace(sign, "")
    assert not re.search(r"(?<!\\)[&%$#_{}~^<>\n]", rest)


def test_one_method_alone_is_compared_with_nothing():
    assert "significantly" not in main_table(make_findings(["late"]), "markdown")
    assert "significantly better or worse than late" in main_table(make_findings(["late", "concat"]), "markdown")


def test_unknown_format_suggests():
    with pytest.raises(UnknownNameError, match="did you mean 'markdown'"):
        main_table(make_findings(["late"]), "markdwn")


def test_a_table_without_its_columns_is_refused():
    findings = make_findings(["late"])
    with pytest.raises(InputError, match="'timings' lacks training_seconds"):
        Findings(**{**vars(findings), "timings": findings.timings.drop("training_seconds")})


def test_a_printed_table_is_the_table(capsys):
    findings = make_findings(["late", "qmf"])
    print(main_table(findings))
    said = capsys.readouterr().out
    assert "late · reference" in said
    assert "salt-and-pepper" in said
    assert "▲" in said
    assert "<" not in said
    print(console_tables([TextTable("a caption", ("method", "r"), (("late", "0.5"),))]))
    assert "a caption" in capsys.readouterr().out
