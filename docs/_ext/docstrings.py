"""Docstrings in Google style as Markdown: sessions become fenced code that runs when it is copied, documents links."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from site_links import DOCS, FENCE

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields", "Example")
LISTED = {"Args": "Parameters", "Attributes": "Attributes", "Raises": "Raises"}
_DOCUMENT = re.compile(r"(?<![`/\w])docs/([\w/-]+)\.md")
_OPENED = "```python\n"


def parts(documented: object) -> dict[str, str]:
    """A Google-style docstring in parts: summary, body, and its sections."""
    text = inspect.getdoc(documented) or ""
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):\s*$", text, flags=re.MULTILINE)
    summary, _, body = pieces[0].strip().partition("\n\n")
    found = {"summary": " ".join(summary.split()), "body": body}
    for name, content in zip(pieces[1::2], pieces[2::2]):
        inside, after = split_section(content)
        found[name] = inside
        found["body"] += f"\n\n{after}" if after.strip() else ""
    return found


def split_section(content: str) -> tuple[str, str]:
    """A section's indented text, and what follows it."""
    lines = content.strip("\n").splitlines()
    end = next((place for place, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return textwrap.dedent("\n".join(lines[:end])).strip("\n"), "\n".join(lines[end:])


def documentation(documented: object, public: Mapping[str, str]) -> list[str]:
    """A docstring as Markdown.

    Args:
        documented: What has the docstring.
        public: Public name → the module that it is imported from.
    """
    found = parts(documented)
    text = [found["summary"], markdown(found["body"])]
    for name, title in LISTED.items():
        if name in found:
            text.append(f"**{title}**\n\n{markdown(listed_entries(found[name]))}")
    text += [f"**{name}**\n\n{markdown(found[name])}" for name in ("Returns", "Yields") if name in found]
    if "Example" in found:
        text.append(f"**Example**\n\n{example(found['Example'])}")
    return with_imports([linked(part) for part in text if part], imports(documented, public))


def markdown(text: str) -> str:
    """Prose of a docstring, which is Markdown, with its sessions fenced: equations, lists and tables stay."""
    pieces = FENCE.split(text.strip("\n"))
    pieces[::2] = ["\n".join(fenced(piece.splitlines())) for piece in pieces[::2]]
    return "".join(pieces).replace("….", "…")


def example(text: str) -> str:
    """The section of that name: code without prompts is fenced as a whole."""
    return markdown(text) if ">>> " in text else f"{_OPENED}{text}\n```"


def fenced(lines: list[str]) -> Iterator[str]:
    """Lines of prose, with each session, up to an empty line that no prompt follows, between fences."""
    place = 0
    while place < len(lines):
        if not lines[place].lstrip().startswith(">>> "):
            yield lines[place]
            place += 1
            continue
        end = end_of_session(lines, place)
        indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
        if place and lines[place - 1].strip():
            yield ""
        yield f"{indent}```python"
        yield from (without_options(line) for line in lines[place:end])
        yield f"{indent}```"
        place = end


def end_of_session(lines: list[str], start: int) -> int:
    """The line after a session."""
    for place in range(start, len(lines)):
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if not lines[place].strip() and not following.lstrip().startswith(">>> "):
            return place
    return len(lines)


def without_options(line: str) -> str:
    """A line of a session without what only the tests read."""
    return "" if line.strip() == "<BLANKLINE>" else re.sub(r"\s*# doctest: .*$", "", line)


def linked(text: str) -> str:
    """Markdown in which each mention of a file of docs is a link to that page, with its title."""
    pieces = FENCE.split(text)
    pieces[::2] = [_DOCUMENT.sub(lambda match: f"[{title(match[1])}](/{match[1]}.md)", piece) for piece in pieces[::2]]
    return "".join(pieces)


def title(page: str) -> str:
    """The title of a Markdown document below docs."""
    return re.search(r"^# (.+)$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)[1]


def listed_entries(section: str) -> str:
    """The entries of `Args:` and its like as a list."""
    entries = re.split(r"^(?=\S)", section, flags=re.MULTILINE)
    lines = []
    for entry in filter(None, entries):
        name, colon, told = entry.partition(": ")
        told = textwrap.dedent(told) if not told.startswith("\n") else told
        first, _, rest = told.partition("\n")
        text = f"{first}\n{textwrap.dedent(rest)}".strip("\n")
        shown = re.sub(r"^([\w*., ]+?)( \(.*)?$", r"`\1`\2", name.strip(), flags=re.DOTALL)
        if colon and repeats(name, text):
            lines.append(f"- {shown}")
        else:
            lines.append(f"- {shown}: {textwrap.indent(text, '  ').strip()}" if colon else f"- {entry.strip()}")
    return "\n".join(lines)


def repeats(name: str, text: str) -> bool:
    """Whether a parameter's text only lists values that stand behind its name already, as 'a', 'b' or 'c'."""
    return set(re.split(r", | or ", text.rstrip("."))) <= set(re.findall(r"'([^']+)'", name))


def with_imports(text: list[str], lines: list[str]) -> list[str]:
    """The parts of a docstring with these lines of code at the start of the first session."""
    first = next((place for place, part in enumerate(text) if f"{_OPENED}>>> " in part), None)
    if first is None or not lines:
        return text
    shown = "".join(f">>> {line}\n" for line in lines)
    return [*text[:first], text[first].replace(_OPENED, _OPENED + shown, 1), *text[first + 1 :]]


def imports(documented: object, public: Mapping[str, str]) -> list[str]:
    """The imports without which a docstring's sessions fail where its module's names are not at hand."""
    modules: list[str] = []
    names: dict[str, list[str]] = defaultdict(list)
    for name in sorted(unbound(inspect.getdoc(documented) or ""), key=str.lower):
        value = scope(documented).get(name)
        if isinstance(value, ModuleType):
            modules.append(module_import(name, value))
        else:
            names[home(name, documented, public)].append(name)
    return [*modules, *(f"from {module} import {', '.join(names[module])}" for module in sorted(names))]


def unbound(docstring: str) -> set[str]:
    """The names that sessions read, and neither Python nor the sessions define."""
    sources = [one.source for one in doctest.DocTestParser().get_examples(docstring)]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - set(bound(nodes)) - set(dir(builtins))


def bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that code defines."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def scope(documented: object) -> Mapping[str, object]:
    """The names that a docstring's sessions can read when they are tested: those of its module."""
    if isinstance(documented, ModuleType):
        return vars(documented)
    plain = documented.fget if isinstance(documented, property) else inspect.unwrap(documented)
    return vars(sys.modules[plain.__module__])


def module_import(name: str, module: ModuleType) -> str:
    """The statement that gives a module this name."""
    package, _, last = module.__name__.rpartition(".")
    if module.__name__ == name:
        return f"import {name}"
    return f"from {package} import {name}" if last == name else f"import {module.__name__} as {name}"


def home(name: str, documented: object, public: Mapping[str, str]) -> str:
    """The module to import a name from: the public one, else where it is defined, else where it is used."""
    names = scope(documented)
    value = names.get(name)
    if name in public and (name not in names or getattr(importlib.import_module(public[name]), name) is value):
        return public[name]
    if name not in names:
        raise SystemExit(f"an example of {documented!r} uses {name}, which it does not import and its module lacks")
    defined = getattr(value, "__module__", "") if callable(value) else ""
    return defined if getattr(sys.modules.get(defined), name, None) is value else str(names["__name__"])
