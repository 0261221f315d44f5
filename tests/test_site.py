"""The site's own code: its navigation is complete, its reference has every public name, and broken links are found."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import consilience
from documents import DOCUMENTS, ROOT, prose

DOCS = ROOT / "docs"
GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))


@pytest.fixture(autouse=True)
def _extensions_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in [*(path.stem for path in (DOCS / "_ext").glob("*.py")), "conf"]:
        sys.modules.pop(name, None)


def test_every_page_is_in_the_navigation():
    toctrees = importlib.import_module("conf").toctrees
    listed = re.findall(r"^(?:[\w-]+/)*[\w-]+$", "\n".join(toctrees.values()), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    written = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCUMENTS if path.is_relative_to(DOCS)}
    written |= {f"results/{path.stem}" for path in (DOCS / "results").glob("*.md")}
    made = {"gallery/index", "api/index"}
    assert set(listed) == (written | made) - {"index"}


def test_the_version_switch_has_this_version():
    versions = json.loads((DOCS / "versions.json").read_text(encoding="utf-8"))
    assert [one["path"] for one in versions if one["version"] == consilience.__version__] == ["."]


def test_every_public_name_is_in_the_reference_with_an_example():
    pages = importlib.import_module("api_pages").pages()
    for name in set(consilience.__all__) - {"__version__"}:
        assert f"cs.{name}`" in pages["index"]
        assert re.search(r"\*\*Example\*\*\n\n```python\n>>> ", pages[name]), f"{name} has no example"
    assert ":::{py:method} predict_set(X, coverage=0.9" in pages["FusionClassifier"]
    assert "set_fit_request" not in pages["FusionClassifier"]


def test_whatever_documents_and_gallery_import_is_in_the_reference():
    reference = importlib.import_module("api_pages")
    text = "\n".join(reference.pages().values())
    imported = reference.imported_by_documents()
    assert ("consilience.evaluation", "evaluate") in imported
    for module, name in imported:
        assert re.search(rf"\{{py:\w+\}} consilience[\w.]*\.{name}\b", text), f"{module}.{name}"


def test_sessions_of_the_reference_are_code():
    reference = importlib.import_module("api_pages").pages()
    assert sum(text.count("\n>>> ") for text in reference.values()) > 200
    for name, text in reference.items():
        told = re.sub(r"^ *```python\n.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"```|>>>", told), name
        assert not re.search(r"# doctest:|<BLANKLINE>|…\.|\bdocs/[\w/-]+\.md", text), name


@pytest.mark.parametrize(
    "page", ["evaluation", "bayes", "building-blocks", "corruption", "encoders", "fuse", "Samples"]
)
def test_examples_of_the_reference_run_as_they_are_copied(page):
    text = importlib.import_module("api_pages").pages()[page]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if ">>> " in code:
            runner.run(doctest.DocTestParser().get_doctest(code, {}, page, None, 0), out=said.append)
    assert runner.tries
    assert not runner.failures, "".join(said)


def test_examples_of_the_reference_import_what_they_use():
    docstrings = importlib.import_module("docstrings")
    for name, text in importlib.import_module("api_pages").pages().items():
        for session in re.split(r"^:{3,}\{", text, flags=re.MULTILINE):
            assert not docstrings.unbound(session), name


def _documented() -> None:
    """Say what docs/trust.md says.

    >>> Path("a")
    PosixPath('a')

    >>> json.dumps(1)  # doctest: +ELLIPSIS
    '1'

    After it.

    Args:
        size (1, 'few' or 'many'): few or many.
        kind ('a' or 'b'): of a, b, ….

    Example:
        >>> found = [one for one in (1, 2)]
        >>> sorted(found)
        [1, 2]
    """


def test_a_docstring_as_markdown():
    documentation = importlib.import_module("docstrings").documentation
    path = f"from {Path.__module__} import Path"
    assert documentation(_documented, {}) == [
        "Say what [Does it trust the right modality?](/trust.md) says.",
        f"```python\n>>> import json\n>>> {path}\n>>> Path(\"a\")\nPosixPath('a')\n\n"
        ">>> json.dumps(1)\n'1'\n```\n\nAfter it.",
        "**Parameters**\n\n- `size` (1, 'few' or 'many')\n- `kind` ('a' or 'b'): of a, b, …",
        "**Example**\n\n```python\n>>> found = [one for one in (1, 2)]\n>>> sorted(found)\n[1, 2]\n```",
    ]
    with pytest.raises(SystemExit, match="uses nothing_at_all"):
        documentation(type("Bad", (), {"__doc__": "A.\n\n>>> nothing_at_all\n1", "__module__": __name__}), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_say_titles_and_not_names_of_files(document):
    if document.parent.name != "project":  # whose pages stand for files outside of docs, and name them
        assert not re.search(r"\[`?[\w/.-]+\.md`?\]\(", prose(document))


def test_pictures_of_the_gallery_have_the_title_of_their_example():
    with_title = importlib.import_module("gallery_pictures").with_title
    script = ROOT / "examples" / "gallery" / "plot_02_failing_sensor.py"
    shown = ".. image-sg:: /a.png\n   :alt: {}\n   :srcset: /a.png\n"
    assert with_title(shown.format("plot 02 failing sensor"), script) == shown.format("A failing sensor")
    assert with_title(shown.format("clean, noisy"), script) == shown.format("A failing sensor (clean, noisy)")


def test_pictures_that_scroll_on_a_telephone_are_there():
    style = (DOCS / "_static" / "site.css").read_text(encoding="utf-8")
    shown = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    pictures = set(re.findall(r'img\[src\$="([^"]+)"\]', style))
    assert {"choose.svg", "which-method.png"} <= pictures
    assert all(f"](images/{name})" in shown for name in pictures)


def test_the_files_of_the_theme_are_there():
    site = importlib.import_module("conf")
    assert all((DOCS / "_static" / name).is_file() for name in site.html_css_files + site.html_js_files)


def test_links_of_documents_become_links_of_the_site():
    links = importlib.import_module("site_links")
    text = "[a](compare.md#the-table) [b](../CONTRIBUTING.md#rules) [c](../src/consilience/core/errors.py) [d](#x)"
    text += " [e](../examples/gallery/plot_03_kappa.py)"
    assert links.site_text(text, DOCS) == (
        "[a](/compare.md#the-table) [b](/project/contributing.md#rules) "
        "[c](repository:src/consilience/core/errors.py) [d](#x) [e](/gallery/plot_03_kappa.rst)"
    )
    fenced = "```python\n[a](compare.md)\n```\n"
    assert links.site_text(fenced, DOCS) == fenced
    contents = "# Title\n\n- [One](#one)\n- [Two](#two)\n\n## One\n"
    assert links.site_text(contents, DOCS) == "# Title\n\n\n## One\n"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="other.html#here">', None),
        ('<a href="https://example.org/x">', None),
        ('<a href="other.html#there">', "no such anchor"),
        ('<a href="missing.html">', "does not exist"),
        ('<img src="missing.png">', "does not exist"),
        ('<a href="../outside.html">', "does not exist"),
        ('<script src="https://example.org/x.js"></script>', "another host"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "another host"),
    ],
)
def test_broken_links_are_found(body, problem, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("<p>", encoding="utf-8")
    (site / "other.html").write_text('<h1 id="here">', encoding="utf-8")
    (site / "index.html").write_text(body, encoding="utf-8")
    found = importlib.import_module("check_links").problems(site)
    assert not found if problem is None else (len(found) == 1 and problem in found[0])


def test_a_site_without_pages_is_a_problem(tmp_path):
    assert importlib.import_module("check_links").problems(tmp_path)


def test_imports_between_packages_run_upwards():
    house = importlib.import_module("house_map")
    names, (lines, imports) = house.packages(), house.graph()
    assert set(lines) == set(names)
    assert imports["data", "core"] > 20
    against = {(source, target) for source, target in imports if names.index(source) < names.index(target)}
    assert against <= {("comparison", "report")}  # the exception in pyproject.toml


def test_the_cheat_sheet_is_one_page(tmp_path):
    out = tmp_path / "out" / "sheet.pdf"
    importlib.import_module("cheat_sheet").draw(DOCS / "cheat-sheet.md", out)
    assert out.read_bytes().startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", out.read_bytes())) == 1


def test_the_gallery_has_twelve_scripts():
    assert len(GALLERY) >= 12


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_gallery_scripts_say_what_they_show_and_end_in_a_picture(script):
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, line, _, *_ = ast.get_docstring(tree).splitlines()
    assert line == "=" * len(title)
    assert text.endswith("plt.show()\n")
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {module for module in modules if module.startswith("consilience")}
    assert own <= {"consilience.evaluation", "consilience.methods"}
    private = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    assert not [name for name in private if not name.startswith("__")]
