"""The repository's documents: every block of code runs, every link leads somewhere, every table is true."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
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
from consilience import corruption, encoders, methods
from consilience.cli.main import COMMANDS
from consilience.cli.parser import parse
from consilience.core.errors import MissingDataError
from consilience.core.targets import Task
from consilience.corruption.corruptions import CORRUPTIONS
from consilience.data import load_data
from consilience.data import named_sets as data_sets
from consilience.encoders.choice import ENCODERS
from consilience.methods import METHODS
from consilience.preparation import Preparation
from documents import DOCUMENTS, EXAMPLES, ROOT, blocks, prose

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


@pytest.fixture(autouse=True)
def _what_is_registered_is_forgotten() -> Iterator[None]:
    with ExitStack() as stack:
        for registry in (METHODS, ENCODERS, CORRUPTIONS, data_sets.DATA_SETS):
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
    assert found or document.name == "results.md"  # which is tables and nothing else
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
        if program == "make":
            assert set(arguments) <= set(targets), line
        elif program == "pip":
            assert arguments[0] == "install", line
        elif program == "consilience":
            assert parse(arguments, COMMANDS)[0] == arguments[0], line
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
    assert {block.language for block in blocks(document)} <= {"python", "shell", "text"}
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


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def anchors(document: Path) -> list[str]:
    """The headings of a document as GitHub links to them."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


EXPECTED: dict[str, Callable[[dict], bool]] = {
    "arrays.py": lambda left: left["accuracy"] > 0.9 and left["accuracy"] > left["accuracy_upper"] > 0.4,
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


def first_sentence(thing: object) -> str:
    """How something introduces itself."""
    paragraph = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".")


def kinds(reads: tuple[str, ...]) -> str:
    """The kinds that something reads; whoever reads tokens reads text."""
    if set(reads) >= {"vector", "image", "sequence", "tokens"}:
        return "all"
    return ", ".join((*reads, "text") if "tokens" in reads and "text" not in reads else reads)


def gives_trust(name: str) -> bool:
    """Whether a method weighs its modalities, on the first built-in set that it reads."""
    cls = methods.registry()[name]
    for source in ("digits", "sequences"):
        train = load_data(source).train[:20]
        task = Task.of(train.y)
        preparation = Preparation.fit(train, task)
        spec = methods.Spec(preparation.modalities, task)
        if cls.reason_against(spec) is None:
            break
    member = name + cls.arguments(train.names)[0] if name.endswith(":") else name
    method = methods.build(member, spec)
    return method(preparation.batch(train, slice(0, 2))).weights is not None


def methods_table() -> list[str]:
    rows = ["| method | what it does | tasks | kinds | trust | paper |", "|---|---|---|---|---|---|"]
    for name, cls in methods.registry().items():
        shown = f"[`{name}{'NAME' * name.endswith(':')}`](docs/methods.md#{name.rstrip(':')})"
        trust = "yes" if gives_trust(name) else ""
        cells = [shown, first_sentence(cls), ", ".join(cls.tasks), kinds(cls.reads), trust, cls.paper]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def data_sets_table() -> list[str]:
    rows = ["| name | what it is | comes with the library | licence |", "|---|---|---|---|"]
    for name, entry in data_sets.registry().items():
        source = "yes" if entry.files is None else f"no, files in `{entry.files.folder}/`"
        rows.append(f"| `{name}` | {entry.description} | {source} | {entry.licence or 'generated'} |")
    return rows


def encoders_table() -> list[str]:
    rows = ["| encoder | kinds | what it is |", "|---|---|---|"]
    for name in encoders.encoder_names():
        cls = ENCODERS[name]
        rows.append(f"| `{name}` | {kinds(cls.reads)} | {first_sentence(cls)} |")
    return rows


def corruptions_table() -> list[str]:
    rows = ["| corruption | kinds | what the level counts |", "|---|---|---|"]
    for name in corruption.corruption_names():
        one = corruption.find_corruption(name)
        rows.append(f"| `{name}` | {kinds(one.kinds)} | {one.level} |")
    return rows


@pytest.mark.parametrize(
    ("document", "name", "table"),
    [
        ("README.md", "methods", methods_table),
        ("README.md", "data sets", data_sets_table),
        ("docs/guide.md", "encoders", encoders_table),
        ("docs/guide.md", "corruptions", corruptions_table),
    ],
)
def test_tables_say_what_the_registries_say(document, name, table):
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.search(rf"<!-- table: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    expected = "\n".join(table()) + "\n"
    assert found is not None
    assert found[1] == expected, f"in {document}, the table of {name} should read\n\n{expected}"


def test_every_method_has_a_section():
    text = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `([^`]+)`$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(methods.registry())
    for name, cls in methods.registry().items():
        settings = [
            one.name for one in inspect.signature(cls).parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        listed = re.search(r"^Settings: (.*)$", sections[name], re.MULTILINE)
        assert listed is not None, name
        assert sorted(re.findall(r"`(\w+)`", listed[1])) == sorted(settings), name
        assert cls.paper in sections[name], name


def test_the_table_of_rooms_names_every_room_in_the_order_of_imports():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
    source = ROOT / "src" / "consilience"
    packages = {path.parent.relative_to(source).as_posix() for path in source.glob("*/__init__.py")}
    packages |= {f"methods.{path.parent.name}" for path in source.glob("methods/*/__init__.py")}
    assert set(rooms) == packages
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [layer.split(" ")[0] for layer in contract["contracts"][0]["layers"]]
    layers = ["methods" if ":" in layer else name for layer, name in zip(contract["contracts"][0]["layers"], layers)]
    names = [name.removeprefix("consilience.") for name in layers if name != "consilience.version"]
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
    spec = importlib.util.spec_from_file_location("results", ROOT / "docs" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(results)
    for path, text in results.pages().items():
        assert text_of(path) == text, "run python docs/results.py"
    assert results.shown() in text_of(ROOT / "README.md"), "run python docs/results.py"
