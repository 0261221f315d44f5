"""Writes the API reference as Markdown pages, from docstrings and signatures.

Public are the names of `consilience.__all__`, those that the packages of `PACKAGES` list in `__all__`, and whatever a
document imports. A name's entry shows its docstring, where its source is, and the pages whose code uses it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from docstrings import documentation, parts, title
from site_links import DOCS, ROOT, relative_source

import consilience

# Page → its title, what it says first, and the modules whose names it lists.
PACKAGES = {
    "data": ("Data", "Samples, data sets and how they are loaded.", ("core.samples", "data")),
    "methods": ("Methods", "What a method is, and the registry.", ("methods",)),
    "encoders": ("Encoders", "What reads one modality.", ("encoders",)),
    "training": ("Training", "The trainer, its settings, callbacks and logs.", ("training",)),
    "evaluation": ("Evaluation", "Metrics, robustness, trust, prediction sets.", ("evaluation",)),
    "corruption": ("Corruption", "What makes a modality unsound.", ("corruption",)),
    "comparison": ("Comparison", "The result of `compare`.", ("comparison",)),
    "bayes": ("Bayes", "Functions of Bayesian fusion beside `fuse`.", ("bayes",)),
    "building-blocks": (
        "Building blocks",
        "What methods of your own are built from.",
        ("preparation", "core", "report"),
    ),
}
# What readers meet in every package and no document imports.
ALSO = {"core.errors": ("ConsilienceError", "InputError", "UnknownNameError", "UnsupportedError", "MissingDataError")}
PURPOSES = {
    "Train and predict": ("FusionClassifier", "FusionRegressor", "load"),
    "Load data": ("load_data", "Samples"),
    "Compare and measure": ("compare", "corrupt", "robustness_curve", "robust_auc", "trust_diagnostics", "Monitor"),
    "Fuse opinions": ("fuse", "BayesFusion", "FusionState", "estimate_target_prior"),
    "Loops and latent models": ("progressive", "MultimodalVAE"),
    "Extend": ("methods",),
}


class Entry(NamedTuple):
    """A public name: where it is imported from, what it is, and where documents use it."""

    module: str
    name: str
    value: object
    used: tuple[str, ...]


def write(folder: Path) -> list[str]:
    """Write all pages into a folder of the documents.

    Returns:
        The names of the pages below the index, relative to the documents' folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = pages()
    for name, text in found.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return [f"/api/{name}" for name in found if name != "index"]


def pages() -> dict[str, str]:
    """The name of every page, and its text: the index, the names of the package's root, and the packages."""
    used, listed = uses(), listed_names()
    public = public_names(listed)
    texts = {}
    placed: set[str] = set()
    root = [name for name in consilience.__all__ if name not in ("__version__", "methods")]
    for name in root:
        entry = Entry("consilience", name, getattr(consilience, name), tuple(sorted(used.get(name, ()))))
        texts[name] = f"# {name}\n\n{description(entry, public)}"
    for page, (heading, intro, modules) in PACKAGES.items():
        entries = [
            Entry(module, name, value, tuple(sorted(used.get(name, ()))))
            for module in sorted(listed.keys() - placed)
            if any(f"{module}.".startswith(f"consilience.{inside}.") for inside in modules)
            for name, value in listed[module].items()
            if name not in root
        ]
        placed |= {entry.module for entry in entries}
        told = documentation(consilience.methods, public) if page == "methods" else []
        texts[page] = (
            "\n\n".join([f"# {heading}", intro, *told])
            + "\n\n"
            + "\n\n".join(f"## {one.name}\n\n{description(one, public)}" for one in entries)
        )
    return {"index": index(texts)} | {name: text.rstrip("\n") + "\n" for name, text in texts.items()}


def listed_names() -> dict[str, dict[str, object]]:
    """Module → its public names and what they are; a name of several modules is listed where it is shortest."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for _, _, modules in PACKAGES.values():
        for inside in modules:
            module = importlib.import_module(f"consilience.{inside}")
            if hasattr(module, "__path__"):  # a package; of a file only what documents import is public
                wanted[module.__name__] |= set(getattr(module, "__all__", ()))
    for module, name in imported_by_documents():
        wanted[module].add(name)
    for inside, names in ALSO.items():
        wanted[f"consilience.{inside}"] |= set(names)
    listed: dict[str, dict[str, object]] = {}
    seen: set[str] = set()
    for module in sorted(wanted, key=lambda module: (module.count("."), module)):
        imported = importlib.import_module(module)
        fresh = {name: getattr(imported, name) for name in sorted(wanted[module], key=str.lower) if name not in seen}
        listed[module] = {name: value for name, value in fresh.items() if not isinstance(value, ModuleType)}
        seen |= fresh.keys()
    return listed


def public_names(listed: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Public name → the module that examples import it from."""
    names = {name: module for module, inside in listed.items() for name in inside}
    return names | dict.fromkeys(consilience.__all__, "consilience")


def code_blocks() -> dict[str, str]:
    """Page of the site → the Python that it shows, for all documents, examples in docstrings not included."""
    documents = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in DOCS.glob("*.md")}
    documents |= {f"guide/{path.stem}": path for path in (DOCS / "guide").glob("*.md")}
    documents |= {"project/contributing": ROOT / "CONTRIBUTING.md"}
    texts = {page: path.read_text(encoding="utf-8") for page, path in documents.items()}
    code = {page: "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)) for page, text in texts.items()}
    gallery = (ROOT / "examples" / "gallery").glob("*.py")
    return code | {f"gallery/{path.stem}": path.read_text(encoding="utf-8") for path in gallery}


def imported_by_documents() -> set[tuple[str, str]]:
    """Module and name of everything that documents import from this library."""
    found = set()
    for code in code_blocks().values():
        for module, names in re.findall(r"^(?:>>> )?from (consilience[\w.]*) import ([\w, ]+)$", code, re.MULTILINE):
            found |= {(module, name.strip().partition(" as ")[0]) for name in names.split(",")}
    return {(module, name) for module, name in found if module != "consilience"}


def uses() -> dict[str, set[str]]:
    """Name → the pages whose code uses it."""
    used: dict[str, set[str]] = defaultdict(set)
    for page, code in code_blocks().items():
        imported = re.findall(r"^(?:>>> )?from consilience[\w.]* import ([\w, ]+)$", code, re.MULTILINE)
        names = {name.strip() for names in imported for name in names.split(",")}
        for name in names | set(re.findall(r"\bcs\.(\w+)", code)):
            used[name].add(page)
    return used


def index(texts: dict[str, str]) -> str:
    """The first page of the reference: names by purpose, then packages."""
    lines = ["# API reference", "", "`import consilience as cs` gives these names:", ""]
    for purpose, names in PURPOSES.items():
        lines += [f"## {purpose}", "", "| name | what it does |", "|---|---|"]
        for name in names:
            value = getattr(consilience, name)
            page = f"{name}.md"
            lines.append(f"| [`cs.{name}`]({page}) | {parts(value)['summary'].partition('. ')[0].rstrip('.')} |")
        lines.append("")
    missing = set(consilience.__all__) - {"__version__"} - {name for names in PURPOSES.values() for name in names}
    if missing:
        raise SystemExit(f"say in PURPOSES of docs/_ext/api_pages.py what these names are for: {sorted(missing)}")
    lines += [
        "`cs.__version__` is the version, a string.",
        "",
        "## Packages",
        "",
        "| page | what is on it |",
        "|---|---|",
    ]
    lines += [f"| [{title}]({page}.md) | {intro} |" for page, (title, intro, _) in PACKAGES.items() if page in texts]
    return "\n".join(lines) + "\n"


def description(entry: Entry, public: Mapping[str, str]) -> str:
    """The directive of one name: signature, docstring, methods of a class, source and uses."""
    kind = "class" if inspect.isclass(entry.value) else "function" if callable(entry.value) else "data"
    body = documentation(entry.value, public) if kind != "data" else [f"A {type(entry.value).__name__}."]
    if kind == "class":
        body += [method_description(name, value, public) for name, value in own_methods(entry.value)]
    body.append(source_line(entry))
    inner = "\n\n".join(part for part in body if part)
    qualified = f"{entry.module}.{entry.name}{signature(entry.value)}"
    return f"::::{{py:{kind}}} {qualified}\n\n{inner}\n\n::::"


def method_description(name: str, value: object, public: Mapping[str, str]) -> str:
    """The directive of one method or property of a class."""
    kind = "method" if callable(value) else "property"
    body = "\n\n".join(documentation(value, public))
    return f":::{{py:{kind}}} {name}{signature(value, bound=True) if kind == 'method' else ''}\n\n{body}\n\n:::"


def own_methods(cls: type) -> Iterable[tuple[str, object]]:
    """Public methods and properties of a class that this library defines and documents, in the order of names."""
    if issubclass(cls, tuple | BaseException) or cls.__module__.startswith("consilience.encoders"):
        return
    for name, value in inspect.getmembers(cls):
        function = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else None
        if name.startswith("_") or not getattr(function, "__module__", "").startswith("consilience"):
            continue
        if inspect.isclass(value) or not inspect.getdoc(value):
            continue
        yield name, value


def signature(value: object, *, bound: bool = False) -> str:
    """The parameters with their defaults; types stand in the text."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, BaseException)):
        return ""
    try:
        told = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in told.parameters.values()]
    parameters = [one for one in parameters if not (bound and one.name == "self")]
    shown = str(told.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"<(?:function|class) '?(?:[\w.]*\.)?(\w+)'?[^>]*>|<(?:[\w.]*\.)?(\w+) object[^>]*>", r"\1\2", shown)


def source_line(entry: Entry) -> str:
    """Where the code of a name is, and the pages that use it."""
    module, line = importlib.import_module(entry.module).__file__, None
    try:
        value = inspect.unwrap(entry.value)
        path, line = inspect.getsourcefile(value), inspect.getsourcelines(value)[1]
    except (TypeError, OSError):  # a constant
        path = module
    if not Path(path).resolve().is_relative_to(ROOT):  # an alias of something else
        path, line = module, None
    said = f"Source: [{Path(path).name}]({relative_source(path, line)})."
    if entry.used:
        links = ", ".join(f"[{title_of(page)}](/{page}{suffix(page)})" for page in entry.used)
        said += f" Used in: {links}."
    return said


def title_of(page: str) -> str:
    """The title of a page of the site."""
    if page.startswith("gallery/"):
        text = ast.get_docstring(ast.parse((ROOT / "examples" / f"{page}.py").read_text(encoding="utf-8")))
        return text.strip().splitlines()[0]
    return title(page)


def suffix(page: str) -> str:
    """The ending of a page's file: sphinx-gallery writes reStructuredText."""
    return ".rst" if page.startswith("gallery/") else ".md"
