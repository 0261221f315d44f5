"""Documents of words, tables and figures: tables in every format, the page, and Markdown."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from consilience.core.errors import InputError, UnknownNameError
from consilience.core.file_names import file_name
from consilience.report.document import (
    Document,
    Section,
    TextTable,
    check_document_folder,
    document_markdown,
    render_document,
    write_document,
)
from consilience.report.drawing import Drawing

TABLE = TextTable("A <table>", ("net", "gain_%"), (("a|b", "1"), ("c", "2")), marked=(1,))
ACCOUNT = Document("A & B", ("It `works`.",), (Section("one", "One <thing>", ("Said.",), (TABLE,)),), "consilience x")


def test_tables_in_every_format():
    assert ACCOUNT.table("markdown").splitlines()[2:] == [
        "| net   | gain\\_% |",
        "| ----- | ------: |",
        "| a\\|b  |       1 |",
        "| **c** |   **2** |",
    ]
    assert "net & gain\\_\\% \\\\" in ACCOUNT.table("latex")
    assert "\\caption{A \\textless{}table\\textgreater{}}" in ACCOUNT.table("latex")
    with pytest.raises(UnknownNameError, match="format"):
        ACCOUNT.table("word")


def printed(table, width):
    """The lines of a table on a terminal of this width."""
    console = Console(width=width, file=io.StringIO())
    console.print(Document("", (), (Section("one", "", tables=(table,)),)).table())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


words = st.lists(st.text("abc9", min_size=1, max_size=6), min_size=1, max_size=3).map(" ".join)


@given(st.integers(30, 90), st.integers(0, 4), st.data())
def test_on_a_terminal_no_line_is_too_long_and_no_number_broken(width, columns, data):
    header = ("method", *data.draw(st.lists(words, min_size=columns, max_size=columns)))
    cells = st.floats(-9, 9).map("{:.2f} ± 0.10".format)
    rows = data.draw(st.lists(st.tuples(words, *[cells] * columns), max_size=3))
    lines = printed(TextTable("A table", header, tuple(rows)), width)
    assert all(cell_len(line) <= width for line in lines)
    for row in rows:
        for cell in row[1:]:
            assert any(cell in line for line in lines)


def test_columns_that_do_not_fit_stand_below():
    table = TextTable(
        "A table", ("method", "clean", "noise of 5"), (("best-unimodal", "98.80 ± 0.26", "63.91 ± 1.43"),)
    )
    assert len([line for line in printed(table, 80) if "best-unimodal" in line]) == 1
    below = printed(table, 40)
    assert len([line for line in below if "best-unimodal" in line]) == 2
    assert not any("98.80" in line and "63.91" in line for line in below)


def test_the_page_and_the_markdown():
    page = render_document(ACCOUNT)
    for text in ("<h1>A &amp; B</h1>", "It <code>works</code>.", '<a href="#one">One &lt;thing&gt;</a>', "a|b"):
        assert text in page
    assert page.count('class="reference"') == 1
    markdown = document_markdown(ACCOUNT.to_json())
    assert markdown.startswith("# A \\& B\n\nIt `works`.\n\n## One \\<thing\\>\n\nSaid.\n")
    assert markdown.endswith("    consilience x\n")


def test_the_quick_form_says_so_first():
    quick = replace(ACCOUNT, command="consilience x --quick")
    assert document_markdown(quick.to_json()).startswith("# A \\& B\n\nQuick form (`--quick`): fewer seeds")
    assert "Quick form (<code>--quick</code>)" in render_document(quick)
    assert "Quick form" not in render_document(ACCOUNT)


def test_an_empty_cell_of_a_marked_row_stays_empty():
    told = TextTable("A", ("net", "gain"), (("c", ""),), marked=(0,))
    assert (
        Document("A", (), (Section("one", "One", (), (told,)),)).table("markdown").splitlines()[-1]
        == "| **c** |      |"
    )


def test_names_of_figures_stay_in_the_folder(tmp_path):
    from matplotlib.figure import Figure

    names = ["../../up", "/abs", "..", "a b", "x" * 300]
    figures = tuple(Drawing(name, "A caption.", "What it shows.", Figure(figsize=(1, 1))) for name in names)
    page = write_document(Document("Title", ("Answer.",), (Section("one", "One", figures=figures),)), tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    written = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert written == {f"{file_name(name)}.{ending}" for name in names for ending in ("svg", "png")}
    text = page.with_name("report.md").read_text()
    assert "(figures/a%20b.png)" in text
    assert f"(figures/{file_name('..')}.png)" in text


def test_a_document_does_not_replace_a_stranger_s_files(tmp_path):
    check_document_folder(tmp_path)
    (tmp_path / "report.md").write_text("my thesis")
    with pytest.raises(InputError, match=r"report\.md exists and was not written by a report"):
        check_document_folder(tmp_path)
    with pytest.raises(InputError, match=r"report\.md exists and was not written by a report"):
        write_document(Document("Title", ("Answer.",), ()), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
