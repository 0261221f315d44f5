"""Write what the documents take from the code: python docs/generate.py, or `make tables`.

- docs/methods.md: the table of methods, and one section for each, from its class docstring.
- docs/data-sets.md: the table of data sets.
- docs/guide: the tables of encoders, corruptions, training settings and metrics.
- docs/start.md: the table of extras, from pyproject.toml.

Everything between `<!-- table: NAME -->` and `<!-- end -->` is replaced; a test fails where a document and the code
disagree.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from consilience import corruption, methods
from consilience.core.settings import describe, settings_of
from consilience.core.targets import Task
from consilience.data import load_data
from consilience.data.named_sets import DATA_SETS
from consilience.encoders.choice import ENCODERS
from consilience.evaluation import METRICS
from consilience.preparation import Preparation
from consilience.training.training_settings import TrainingSettings

ROOT = Path(__file__).resolve().parent.parent
METHODS = ROOT / "docs" / "methods.md"
SECTIONS = ("Args", "Returns", "Raises", "Example", "Yields")


class Docstring(NamedTuple):
    """A docstring in parts: its summary, the paragraphs below it, and the entries of `Args:` by name."""

    summary: str
    body: str
    arguments: dict[str, str]


def read_docstring(documented: object) -> Docstring:
    """Take a Google-style docstring apart.

    >>> def join(parts: list) -> str:
    ...     '''Join parts.
    ...
    ...     Args:
    ...         parts: What is joined,
    ...             in this order.
    ...     '''
    >>> read_docstring(join).arguments
    {'parts': 'What is joined, in this order.'}
    """
    text = inspect.getdoc(documented) or ""
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):\s*$", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2]))
    summary, _, body = pieces[0].strip().partition("\n\n")
    entries = re.findall(r"^ {4}([\w*, ]+): (.*(?:\n {8,}.*|\n(?=\n* {8}))*)", sections.get("Args", ""), re.M)
    arguments = {name.strip(" *"): " ".join(told.split()) for names, told in entries for name in names.split(",")}
    return Docstring(" ".join(summary.split()), body.strip("\n"), arguments)


def first_sentence(documented: object) -> str:
    """The first sentence of a docstring, without its full stop."""
    return read_docstring(documented).summary.partition(". ")[0].rstrip(".")


def kinds(reads: tuple[str, ...]) -> str:
    """The kinds that something reads; what reads tokens reads text too."""
    if set(reads) >= {"vector", "image", "sequence", "tokens"}:
        return "all"
    return ", ".join((*reads, "text") if "tokens" in reads and "text" not in reads else reads)


def gives_trust(name: str) -> bool:
    """Whether a method weighs its modalities, tried on the first built-in set that it reads."""
    cls = methods.METHODS[name]
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
    """Every method: its summary, tasks, kinds, whether it gives trust, and its paper."""
    rows = ["| method | what it does | tasks | kinds | trust | paper |", "|---|---|---|---|---|---|"]
    for name, cls in methods.METHODS.items():
        shown = f"[`{name}{'NAME' * name.endswith(':')}`](#{name.rstrip(':')})"
        trust = "yes" if gives_trust(name) else ""
        cells = [shown, first_sentence(cls), ", ".join(cls.tasks), kinds(cls.reads), trust, cls.paper]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def data_sets_table() -> list[str]:
    """Every named data set: what it is, whether it needs files, its licence."""
    rows = ["| name | what it is | comes with the library | licence |", "|---|---|---|---|"]
    for name, entry in DATA_SETS.items():
        source = "yes" if entry.files is None else f"no, files in `{entry.files.folder}/`"
        rows.append(f"| `{name}` | {entry.description} | {source} | {entry.licence or 'generated'} |")
    return rows


def encoders_table() -> list[str]:
    """Every encoder: the kinds it reads and its summary."""
    rows = ["| encoder | kinds | what it is |", "|---|---|---|"]
    for name, cls in ENCODERS.items():
        rows.append(f"| `{name}` | {kinds(cls.reads)} | {first_sentence(cls)} |")
    return rows


def corruptions_table() -> list[str]:
    """Every corruption: the kinds it applies to and what its level means."""
    rows = ["| corruption | kinds | what the level counts |", "|---|---|---|"]
    for name in corruption.corruption_names():
        entry = corruption.find_corruption(name)
        rows.append(f"| `{name}` | {kinds(entry.kinds)} | {entry.level} |")
    return rows


def metrics_table() -> list[str]:
    """Every metric: its task, what it is, which way is better, and whether it is a mean over samples."""
    rows = ["| metric | task | what it is | better | mean over samples |", "|---|---|---|---|---|"]
    for name, metric in METRICS.items():
        variant = hasattr(metric.function, "func")  # one of several by the same function
        what = metric.title.capitalize() if variant else read_docstring(metric.function).summary.partition(": ")[0]
        better = "larger" if metric.larger_is_better else "smaller"
        cells = [f"`{name}`", metric.task, what.rstrip("."), better, "yes" if metric.per_sample else ""]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def training_table() -> list[str]:
    """Every setting of training: what is allowed, its default and its help."""
    rows = ["| setting | default | allowed | what it is |", "|---|---|---|---|"]
    for name, setting in settings_of(TrainingSettings).items():
        rows.append(f"| `{name}` | {setting.default!r} | {describe(setting.annotation)} | {setting.help} |")
    return rows


# What an extra is for. Those that only develop the library are not in the table.
EXTRAS = {
    "pretrained": "text, image and audio models of the Hugging Face hub as encoders",
    "lora": "small trainable adapters in a pretrained model",
    "media": "FLAC and Ogg recordings",
    "dicom": "DICOM pictures",
    "serve": "a server for a trained model",
    "onnx": "ONNX export",
    "mlflow": "MLflow: logging, and models as MLflow models",
    "tensorboard": "TensorBoard",
    "ray": "comparisons on a Ray cluster",
    "rdata": "data sets in R's format",
}
DEVELOPMENT = {"dev", "docs"}


def extras_table() -> list[str]:
    """Every extra: what it is for and the packages that it installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name not in DEVELOPMENT}
    if extras.keys() != EXTRAS.keys():
        raise SystemExit(
            f"say in EXTRAS of docs/generate.py what these extras are for: {extras.keys() ^ EXTRAS.keys()}"
        )
    rows = ["| extra | what it is for | packages |", "|---|---|---|"]
    for name, purpose in EXTRAS.items():
        packages = ", ".join(re.split(r"[<>=\[]", needed)[0] for needed in extras[name])
        rows.append(f"| `{name}` | {purpose} | {packages} |")
    return rows


def method_section(name: str) -> str:
    """The section of a method: its docstring, its settings with their defaults, and its paper."""
    cls = methods.METHODS[name]
    told = read_docstring(cls)
    paragraphs = [_unwrapped(paragraph) for paragraph in told.body.split("\n\n")]
    parts = [f"## `{name}`", told.summary, *paragraphs]
    family = getattr(cls, "own_settings", None)  # of a loop around a method
    lines = []
    for setting, declaration in (family or settings_of(cls)).items():
        about = told.arguments.get(setting) or declaration.help
        lines.append(f"- `{setting}` (default `{declaration.default!r}`): {about.rstrip('.')}.")
    head = "Settings: those of NAME, and" if family else "Settings:"
    parts.append(f"{head}\n\n" + "\n".join(lines) if lines else "Settings: none.")
    if cls.paper:
        parts.append(f"Paper: {cls.paper}.")
    return "\n\n".join(part for part in parts if part)


def _unwrapped(paragraph: str) -> str:
    """A paragraph on one line; equations, lists and tables keep their lines."""
    kept = any(line.startswith((" ", "|", "- ", ">>>")) for line in paragraph.splitlines())
    return paragraph if kept else " ".join(paragraph.split())


def methods_page() -> str:
    """docs/methods.md: what stands before its first section, and a section for each method."""
    head = METHODS.read_text(encoding="utf-8").partition("\n## ")[0].rstrip("\n")
    return "\n\n".join([head, *map(method_section, methods.METHODS)]) + "\n"


TABLES: dict[tuple[str, str], Callable[[], list[str]]] = {
    ("docs/methods.md", "methods"): methods_table,
    ("docs/data-sets.md", "data sets"): data_sets_table,
    ("docs/guide/encoders.md", "encoders"): encoders_table,
    ("docs/guide/measuring.md", "corruptions"): corruptions_table,
    ("docs/guide/training.md", "training"): training_table,
    ("docs/guide/measuring.md", "metrics"): metrics_table,
    ("docs/start.md", "extras"): extras_table,
}


def with_table(text: str, name: str, rows: list[str]) -> str:
    """A document's text with the table of a name replaced."""
    pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"no place for the table of {name}: add <!-- table: {name} --> and <!-- end -->")
    return pattern.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[2], text)


def documents() -> dict[Path, str]:
    """The text that every generated document should have."""
    texts = {METHODS: methods_page()}
    for (document, name), table in TABLES.items():
        path = ROOT / document
        texts[path] = with_table(texts.get(path) or path.read_text(encoding="utf-8"), name, table())
    return texts


if __name__ == "__main__":
    for path, text in documents().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
