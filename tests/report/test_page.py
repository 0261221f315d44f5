"""The page: whole, harmless, self-contained, and right."""

import base64
import hashlib
import html
import json
import os
import re
from html.parser import HTMLParser

import polars as pl
import pytest

from consilience.core.errors import InputError
from consilience.report import render_page, write_report
from consilience.report.document import Document, render_document
from report.factory import CHARACTERS, HOSTILE, make_findings

VOID = {"meta", "link", "br", "hr", "img", "input"}
LOADS = {"src", "srcset", "data", "poster", "action", "background", "xlink:href"}


class Page(HTMLParser):
    """What a test wants to know of a page, and that every element is closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text += text
        if "table" in self.open and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += text

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def allows_only_its_own(source, policy):
    """Whether the policy names exactly the scripts and the style sheet of a page, by their hashes."""
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    for element, directive in (("script", "script-src"), ("style", "style-src-elem")):
        contents = re.findall(rf"<{element}>(.*?)</{element}>", source, re.DOTALL)
        hashes = {base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents}
        assert set(directives[directive].split()) == {f"'sha256-{each}'" for each in hashes}
    return True


@pytest.fixture(scope="module")
def source():
    failed = [("align", 3, "TrainingError: <b>nan</b>"), ("boom", 0, "ValueError: x")]
    return render_page(make_findings(failed=failed, chosen="qmf"))


@pytest.fixture(scope="module")
def page(source):
    return Page(source)


def test_asks_for_nothing_from_outside(page, source):
    assert not re.search(r"https?://|//[a-z]+\.|@import", source)
    assert not [element for element in page.elements if element[0] in ("link", "img", "iframe", "object", "embed")]
    for tag, attributes in page.elements:
        assert not LOADS & set(attributes), (tag, attributes)
        assert attributes.get("href", "#").startswith("#")
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert allows_only_its_own(source, policy)


def test_other_pages_allow_only_their_own_scripts():
    source = render_document(Document("Title", ("Answer.",), (), "consilience reproduce x"))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', source)[1])
    assert allows_only_its_own(source, policy)


def test_hostile_names_are_text(page, source):
    assert [script.get("type") for script in page.all("script")] == [None, "application/json", None, None, None]
    assert HOSTILE in page.text
    assert "<b>nan" not in source
    assert "&lt;b&gt;nan&lt;/b&gt;" in source


def test_every_figure_has_a_caption_and_a_description(page):
    figures = page.all("figure")
    assert len(figures) == len(page.all("figcaption")) >= 10
    pictures = page.all("svg")
    assert len(pictures) >= len(figures)
    assert all(picture["role"] == "img" and len(picture["aria-label"]) > 30 for picture in pictures)


def test_ids_are_unique_and_links_lead_somewhere(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)


def test_the_table_holds_the_means(page):
    findings = make_findings()
    rows = {row[0].removesuffix(" chosen"): row[1:] for row in page.tables[0]}
    columns = [("gaussian", 0), ("gaussian", 5), ("gaussian", 10), ("salt-and-pepper", 5), ("salt-and-pepper", 10)]
    for method in ("concat", "qmf", HOSTILE):
        for (corruption, level), cell in zip(columns, rows[method]):
            values = findings.values.filter(
                pl.col("method") == method,
                pl.col("corruption") == corruption,
                pl.col("level") == level,
                pl.col("metric") == "accuracy",
            )["value"]
            drawn = [float(number) for number in re.findall(r"\d+\.\d+", cell)[:2]]
            assert drawn[0] == pytest.approx(100 * values.mean(), abs=0.051)
            assert drawn[1] == pytest.approx(100 * values.std(), abs=0.051)


def test_opens_with_what_to_deploy(page):
    flat = " ".join(page.text.split())
    opening = flat[flat.index("Deploy") : flat.index("Results")]
    for words in (
        "Deploy qmf: the trained model is best/.",
        "Of 8 methods it predicts validation samples best",
        "under gaussian at level 10",
        "its lead over late is not significant",
        "With the worst of 10 seeds its accuracy is",
        "trained once more on all 1438 samples",
    ):
        assert words in opening, words


def test_the_rows_stand_by_result_and_the_chosen_one_is_marked(page):
    rows = page.tables[0][2:]
    found = [re.match(r"\d+\.\d+ ±", row[1]) for row in rows]
    means = [float(match[0][:-1]) for match in found if match]
    assert all(found[: len(CHARACTERS)])
    assert not any(found[len(CHARACTERS) :])
    assert means == sorted(means, reverse=True)
    assert [row[0].split()[1:] for row in rows if row[0].startswith(("qmf", "late "))] == [["chosen"], ["reference"]]


def test_the_chart_has_the_numbers_of_the_table(page, source):
    findings = make_findings(chosen="qmf")
    text = re.search(r'<script type="application/json" id="chart-data">(.*?)</script>', source, re.DOTALL)[1]
    assert not set("<>&") & set(text)
    data = json.loads(text)
    assert data["methods"][0] == "late" or "qmf" in data["methods"]
    assert sum(colour is not None for colour in data["colours"]) <= 8
    (only,) = data["sets"]
    for method, corruption, level in (("qmf", "gaussian", 10.0), (HOSTILE, "salt-and-pepper", 5.0)):
        pair = only["values"][0][only["corruptions"].index(corruption)][data["methods"].index(method)]
        own = findings.values.filter(metric="accuracy", method=method, corruption=corruption, level=level)["value"]
        mean, spread = pair[data["levels"].index(level)]
        assert mean == pytest.approx(100 * own.mean(), rel=1e-5)
        assert spread == pytest.approx(100 * own.std(), rel=1e-5)


def test_the_confusion_matrix_has_the_shares(page):
    table = next(table for table in page.tables if table[0][0].startswith("actual"))
    assert table[1][:3] == ["0", "96", "4"]
    assert [row[-1] for row in table[1:]] == ["344"] * 10


def test_says_what_a_reader_must_know(page):
    flat = " ".join(page.text.split())
    findings = make_findings()
    for words in (
        "one standard deviation over the 10 seeds",
        "paired bootstrap over seeds and test samples",
        "Holm's procedure",
        "standard deviations of the reference",  # what a level of gaussian means
        "skipped: it reads sequence",
        "failed for 1 of 10 seeds",
        "1079 train, 359 validation and 359 test",
        "3.4 %",
        "Provable Dynamic Fusion",
        "2.13.0",
        findings.command,
    ):
        assert words in flat, words


@pytest.mark.parametrize(
    "options",
    [
        {"methods": [], "corruptions": ()},
        {"seeds": 1, "methods": ["late", "qmf"]},
        {"levels": (0.0,), "methods": ["late", "qmf"]},
        {"levels": (10.0,), "methods": ["late", "qmf"]},
        {"task": "regression", "trust": False, "methods": ["late", "best-unimodal"]},
        {"methods": ["concat", "late"], "trust": False, "probabilities": False},
        {"sets": ("digits", "<i>captions</i> & more"), "methods": ["late", "qmf"], "corruptions": ("gaussian",)},
        {"methods": ["late"], "skipped": ()},
        {"modalities": (HOSTILE, "$\\frac{$", "日本語", "\x00\x1b"), "methods": ["qmf", "late"]},
        {"corruptions": ("a corruption of one's own", "image=gaussian,text=blank"), "methods": ["late", "qmf"]},
    ],
    ids=lambda options: "-".join(options),
)
def test_odd_findings_make_a_page(options):
    findings = make_findings(**options)
    page = Page(render_page(findings))
    assert findings.title in page.text
    assert len(page.all("figure")) == len(page.all("figcaption"))


class TestFolder:
    def test_writes_the_page_and_its_figures(self, tmp_path):
        path = write_report(make_findings(["late", "qmf"], corruptions=("gaussian",)), tmp_path / "run" / "one")
        assert path == tmp_path / "run" / "one" / "report.html"
        names = {file.name for file in (path.parent / "figures").iterdir()}
        assert {"curve-digits-gaussian.svg", "curve-digits-gaussian.png", "timing-digits.png"} <= names
        assert not [file for file in path.parent.rglob("*") if file.name.endswith(".part")]

    def test_figures_of_an_earlier_larger_report_are_removed(self, tmp_path):
        write_report(make_findings(["late"], corruptions=("gaussian", "missing")), tmp_path)
        (tmp_path / "figures" / "remarks.txt").write_text("mine")
        write_report(make_findings(["late"], corruptions=("gaussian",)), tmp_path)
        names = {file.name for file in (tmp_path / "figures").iterdir()}
        assert "curve-digits-gaussian.png" in names
        assert not [name for name in names if "missing" in name]
        assert "remarks.txt" in names

    def test_figures_that_no_report_drew_stay(self, tmp_path):
        (tmp_path / "figures").mkdir()
        mine = [tmp_path / "figures" / name for name in ("my-figure.svg", "photo.png", "curve-digits-old.png")]
        for path in mine:
            path.write_text("mine")
        for corruptions in (("gaussian", "missing"), ("gaussian",)):
            write_report(make_findings(["late"], corruptions=corruptions), tmp_path)
        assert [path.read_text() for path in mine] == ["mine"] * 3
        assert not list((tmp_path / "figures").glob("*missing*"))

    @pytest.mark.parametrize("name", ["report.html", "figures/curve-digits-gaussian.svg", "report.files"])
    def test_a_file_that_no_report_wrote_is_not_replaced(self, tmp_path, name):
        (tmp_path / "figures").mkdir()
        (tmp_path / name).write_text("years of work")
        with pytest.raises(InputError, match=rf"{name} exists and was not written by a report.*choose another folder"):
            write_report(make_findings(["late"], corruptions=("gaussian",)), tmp_path)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
        assert (tmp_path / name).read_text() == "years of work"

    def test_a_report_of_a_version_without_a_list_is_replaced(self, tmp_path):
        write_report(make_findings(["late"], corruptions=("gaussian", "missing")), tmp_path)
        (tmp_path / "report.files").unlink()
        (tmp_path / "figures" / "mine.png").write_text("mine")
        write_report(make_findings(["late"], corruptions=("gaussian",)), tmp_path)
        names = {file.name for file in (tmp_path / "figures").iterdir()}
        assert not [name for name in names if "missing" in name]
        assert "mine.png" in names

    @pytest.mark.parametrize("listed", ["../precious", "figures/../../precious", "notes.txt", "figures/a/b.svg"])
    def test_a_list_removes_nothing_but_figures_and_pages(self, tmp_path, listed):
        for path in (
            tmp_path / "precious",
            tmp_path / "run" / "notes.txt",
            tmp_path / "run" / "figures" / "a" / "b.svg",
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("kept")
        folder = tmp_path / "run"
        write_report(make_findings(["late"], corruptions=("gaussian",)), folder)
        with (folder / "report.files").open("a") as file:
            file.write(f"{listed}\n")
        with pytest.raises(InputError, match=r"report\.files exists and was not written by a report"):
            write_report(make_findings(["late"], corruptions=("gaussian",)), folder)
        (folder / "plan.json").write_text('{"asked": {}, "jobs": []}')  # a run folder, where reports are drawn again
        write_report(make_findings(["late"], corruptions=("gaussian",)), folder)
        assert (tmp_path / "precious").read_text() == (folder / "notes.txt").read_text() == "kept"
        assert (folder / "figures" / "a" / "b.svg").read_text() == "kept"

    def test_links_are_not_followed(self, tmp_path):
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "page.html").write_text("kept")
        for name, target in {"figures": "precious", "report.html": "precious/page.html"}.items():
            folder = tmp_path / f"with-{name}"
            folder.mkdir()
            (folder / name).symlink_to(tmp_path / target)
            with pytest.raises(InputError, match="is a symbolic link"):
                write_report(make_findings(["late"], corruptions=("gaussian",)), folder)
        assert [path.name for path in (tmp_path / "precious").iterdir()] == ["page.html"]
        assert (tmp_path / "precious" / "page.html").read_text() == "kept"

    def test_names_of_sets_never_leave_the_folder(self, tmp_path):
        write_report(make_findings(["late"], sets=("../../a", "../../A"), corruptions=("gaussian",)), tmp_path / "run")
        assert [file.name for file in tmp_path.iterdir()] == ["run"]
        names = sorted(file.name for file in (tmp_path / "run" / "figures").glob("curve*.svg"))
        assert names == ["curve-a-gaussian-2.svg", "curve-a-gaussian.svg"]

    def test_a_crash_leaves_the_old_page(self, tmp_path, monkeypatch):
        findings = make_findings(["late"], corruptions=("gaussian",))
        path = write_report(findings, tmp_path)
        before = path.read_bytes()

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        findings.title = "another"
        with pytest.raises(OSError, match="No space"):
            write_report(findings, tmp_path)
        assert path.read_bytes() == before
        assert not list(tmp_path.rglob("*.part"))
