"""The repository's documents: every block of code runs, every link leads somewhere, every table is true."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pytest

import consilience
from consilience.cli.main import parse
from consilience.core.errors import MissingDataError
from consilience.core.settings import settings_of
from consilience.corruption.corruptions import CORRUPTIONS
from consilience.data import load_data
from consilience.data.named_sets import DATA_SETS
from consilience.encoders.choice import ENCODERS
from consilience.evaluation.metrics import METRICS
from consilience.methods import METHODS
from documents import DOCUMENTS, EXAMPLES, ROOT, WITHOUT_PYTHON, blocks, prose

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


@pytest.fixture(autouse=True)
def _what_is_registered_is_forgotten() -> Iterator[None]:
    with ExitStack() as stack:
        for registry in (METHODS, ENCODERS, CORRUPTIONS, METRICS, DATA_SETS):
            stack.enter_context(registry.restored())
        yield


def run_python(code: str, namespace: dict[str, object], document: Path, lines_before: int) -> None:
    """Run a block; one that shows a session must print what it shows."""
    if not re.search(r"^>>> ", code, re.MULTILINE):
        # Empty lines in front make a traceback point into the document.
        exec(compile("\n" * lines_before + code, document, "exec"), namespace)
        return
    session = doctest.DocTestParser().get_doctest(code, namespace, document.name, str(document), lines_before)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    runner.run(session, out=said.append, clear_globs=False)
    namespace.update(session.globs)
    assert not runner.failures, "".join(said)


@every_document
def test_every_python_block_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    METHODS.remove("max")  # whoever follows CONTRIBUTING literally has it already
    namespace: dict[str, object] = {"__name__": "document"}
    found = blocks(document, "python")
    assert bool(found) == (document.name not in WITHOUT_PYTHON)
    for block in found:
        if block.needs is None:
            run_python(block.code, namespace, document, block.lines_before)


@pytest.mark.parametrize(
    ("document", "block"),
    [
        pytest.param(document, block, id=f"{document.name}-{block.needs}")
        for document in DOCUMENTS
        for block in blocks(document, "python")
        if block.needs is not None
    ],
)
def test_every_python_block_on_data_of_others_runs(document, block, tmp_path, monkeypatch):
    try:
        load_data(block.needs)
    except MissingDataError as error:
        pytest.skip(f"a block of {document.name} shows {block.needs}: {error}")
    monkeypatch.chdir(tmp_path)
    run_python(block.code, {"__name__": "document"}, document, block.lines_before)


@every_document
def test_every_shell_line_can_be_run(document):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in "".join(block.code for block in blocks(document, "shell")).splitlines():
        program, *arguments = shlex.split(line, comments=True)
        # zsh refuses a line with a glob that no file matches, and every shell expands one that a file matches.
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line)
        assert not re.search(r"[*?\[]", bare), f"quote the glob: {line}"
        if program == "make":
            assert set(arguments) <= set(targets), line
        elif program == "pip":
            assert arguments[0] == "install", line
        elif program == "consilience":
            assert parse(arguments)[0] == arguments[0], line
        elif program == "curl":  # tests/cli/test_readme.py asks it
            assert json.loads(arguments[arguments.index("-d") + 1])["rows"], line
        else:
            assert program in ("python", ".venv/bin/python"), f"who is {program!r}? {line}"
            if arguments[0] == "-c":
                exec(arguments[1], {})
            else:
                paths = [one for one in arguments if "/" in one or one.endswith(".py")]
                assert paths, line
                assert all((ROOT / path).exists() for path in paths), line


@every_document
def test_blocks_are_in_a_language_that_is_checked(document):
    assert {block.language for block in blocks(document)} <= {"python", "shell", "text", "toml", "yaml"}
    # What a command printed is put there by the script that ran it, never by hand.
    written = re.findall(r"^<!-- said: [a-z]+ -->\n```text\n.+?\n```\n<!-- end -->$", text_of(document), re.M | re.S)
    assert len(written) == len(blocks(document, "text"))


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{document.name} links to {link}; there are {anchors(target)}"


def test_tests_that_are_named_exist():
    document = ROOT / "docs" / "what-can-go-wrong.md"
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text_of(document)):
        assert (ROOT / path).is_file(), f"{document.name} names {path}"
        assert f"def {name}(" in text_of(ROOT / path) or not name, f"{document.name} names {path}::{name}"


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def anchors(document: Path) -> list[str]:
    """The headings of a document as GitHub links to them."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


EXPECTED: dict[str, Callable[[dict], bool]] = {
    "arrays.py": lambda left: left["accuracy"] > 0.9 and left["accuracy"] > left["accuracy_upper"] > 0.4,
    "fine_tuning.py": lambda left: min(left["accuracy"].values()) > 0.9,
    "opinions.py": lambda left: left["alone"] < left["theorem"] < left["learned"] > 0.95 and left["same"],
    "own_loop.py": lambda left: left["accuracy"] > 0.9,
    "own_table.py": lambda left: left["accuracy"] > 0.7 and left["same"],
    "robustness.py": lambda left: all(curve.values[0] > 0.85 > curve.values[-1] for curve in left["curves"].values()),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    left = runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    assert EXPECTED[example.name](left)
    assert len(example.read_text(encoding="utf-8").splitlines()) < 40


def test_every_picture_can_be_read():
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for picture in pictures:
        assert ElementTree.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_every_example_has_something_expected_of_it():
    assert {example.name for example in EXAMPLES} == set(EXPECTED)


def load_script(name: str):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_have_what_the_code_says():
    for path, expected in load_script("generate").documents().items():
        assert path.read_text(encoding="utf-8") == expected, f"{path.name} is not up to date: run `make tables`"


def test_every_method_explains_itself_and_every_setting():
    generate = load_script("generate")
    for name, cls in METHODS.items():
        docstring = generate.read_docstring(cls)
        assert len(docstring.summary) > 20, name
        assert docstring.body, f"{name}: the class docstring has a summary only"
        declared = getattr(cls, "own_settings", None) or settings_of(cls)
        explained = {name for name, setting in declared.items() if setting.help} | set(docstring.arguments)
        unexplained = set(declared) - explained
        assert not unexplained, f"{name}: the settings {unexplained} are not explained"


def test_every_public_function_documents_its_parameters_and_what_it_returns():
    generate = load_script("generate")
    for name in consilience.__all__:
        function = getattr(consilience, name)
        if not inspect.isfunction(function):
            continue
        documented = generate.read_docstring(function)
        missing = set(inspect.signature(function).parameters) - set(documented.arguments)
        assert not missing, f"{name}: {sorted(missing)} are not in Args"
        assert "\nReturns:\n" in inspect.getdoc(function), name


def test_the_table_of_packages_names_every_package_in_the_order_of_imports():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
    source = ROOT / "src" / "consilience"
    packages = {path.parent.relative_to(source).as_posix() for path in source.glob("*/__init__.py")}
    packages |= {f"methods.{path.parent.name}" for path in source.glob("methods/*/__init__.py")}
    assert set(rooms) == packages
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [layer for layer in contract["contracts"][0]["layers"] if layer != "consilience.version"]
    names = [layer.partition(" : ")[0].removeprefix("consilience.").partition(".registration")[0] for layer in layers]
    assert rooms == names[::-1]


def test_the_version_is_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changes, re.MULTILINE)[1] == consilience.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1] == consilience.__version__


def test_the_citation_file_is_sound():
    yaml = pytest.importorskip("yaml", reason="PyYAML, which jsonargparse brings, is not installed")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert (cited["title"], cited["type"], cited["license"]) == ("consilience", "software", "Apache-2.0")
    assert cited["authors"] == [{"name": "The consilience developers"}]
    for reference in cited["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        assert all(set(author) == {"family-names", "given-names"} for author in reference["authors"])


def test_results_come_from_the_result_files():
    results = load_script("results")
    for path, text in results.pages().items():
        assert text_of(path) == text, "run python docs/results.py"
    assert results.shown() in text_of(ROOT / "README.md"), "run python docs/results.py"


@every_document
def test_every_block_of_toml_is_sound(document):
    for block in blocks(document, "toml"):
        assert tomllib.loads(block.code)
