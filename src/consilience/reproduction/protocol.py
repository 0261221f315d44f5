"""Protocol files: comparisons in YAML, with published figures, claims and notes (docs/protocols.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from consilience.comparison.results import CLEAN
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import check_value
from consilience.reproduction.protocol_keys import PART_KEYS, SCRIPT_KEYS, PageKind, check_file, check_keys, value_at
from consilience.reproduction.yaml_lines import Place, YamlFile, read_yaml

_NOT_ARGUMENTS = ("title", "set", "quick")


@dataclass(frozen=True)
class Part:
    """One comparison.

    full, quick: the arguments of `compare`; quick is None if the quick form leaves the part out.
    where: the file and line, for messages.
    """

    full: Mapping[str, Any]
    quick: Mapping[str, Any] | None
    title: str = ""
    set: str = ""
    where: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says that a comparison can check: under a condition, one method is better than another.

    smallest_effect: By how much it must be better for the claim to be found, in the metric's own unit.
    """

    says: str
    part: str
    method: str
    than: str
    corruption: str = CLEAN
    level: float = 0.0
    smallest_effect: float = 0.0


class Figure(NamedTuple):
    """A published figure: the mean over seeds, and the worst seed if that is published."""

    mean: float
    worst: float | None = None


@dataclass(frozen=True)
class SectionRequest:
    """A section that the protocol asks for. folder: of the file in which it stands; where: that file and line."""

    kind: str
    settings: Mapping[str, Any]
    folder: Path
    where: str


@dataclass(frozen=True)
class Protocol:
    """A protocol file, read and checked: either its comparisons (`parts`) or a `script` and its `settings`.

    published: (part, method, corruption, level) → figure.
    """

    path: Path
    title: str
    parts: Mapping[str, Part] = field(default_factory=dict)
    paper: str = ""
    script: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[tuple[str, str, str, float], Figure] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    sections: tuple[SectionRequest, ...] = ()
    notes: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    page: PageKind = "parts"

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


def read_protocol(path: str | Path) -> Protocol:
    """Read and check a protocol file.

    Args:
        path: A YAML file as docs/protocols.md describes it.

    Returns:
        The protocol, with what it extends merged into it.

    Raises:
        InputError: If the file cannot be read, a required key is missing or a value is not allowed. The message
            names the file, the line and what is allowed.
        UnknownNameError: If a key, part, method, corruption or data set does not exist; the nearest is suggested.
    """
    file = read_yaml(path)
    if "script" in file.content:
        check_keys(file, (), SCRIPT_KEYS, required=("title", "script"))
        script = file.path.parent / file["script"]
        if not script.is_file():
            raise InputError(f"{file.where(('script',))}: the script {script} does not exist")
        return Protocol(file.path, file["title"], {}, file.get("paper", ""), script, file.get("settings", {}))
    files = _with_extended(file)
    for source in files:
        check_file(source, required=("title",) if source is file else ())
    names = list(file.get("parts") or _merged(files[::-1], "parts"))
    if not names:
        raise InputError(f"{file.path}: the key 'parts' is required: name → comparison")
    parts = {name: _part(files, name) for name in names}
    merged = {key: _merged(files, key) for key in ("texts", "tables")}
    return Protocol(
        path=file.path,
        title=file["title"],
        parts=parts,
        paper=next((source["paper"] for source in files if "paper" in source.content), ""),
        published=dict(_published(file, parts)),
        claims=tuple(_claims(file, parts)),
        sections=tuple(
            _section(file, place, given, merged["texts"]) for place, given in enumerate(file.get("sections", []))
        ),
        notes=tuple(
            _text(file, ("notes", place), note, merged["texts"]) for place, note in enumerate(file.get("notes", []))
        ),
        tables=merged["tables"],
        page=file.get("page", "parts"),
    )


def read_condition(text: str) -> tuple[str, float]:
    """Return the corruption and the level of a condition.

    >>> read_condition("gaussian 5"), read_condition("clean")
    (('gaussian', 5.0), ('clean', 0.0))
    """
    corruption, _, level = text.rpartition(" ")
    try:
        return (CLEAN, 0.0) if text == CLEAN else (corruption.strip(), float(level))
    except ValueError:
        raise InputError(f"a condition is 'clean' or 'CORRUPTION LEVEL', such as 'gaussian 5', got {text!r}") from None


def _with_extended(file: YamlFile) -> list[YamlFile]:
    """The file, what it extends, what that extends, and so on."""
    files = [file]
    while (base := files[-1].get("extends")) is not None:
        last = files[-1]
        with last.naming("extends"):
            check_value("extends", base, str)
            path = last.path.parent / base
            if path.resolve() in [source.path.resolve() for source in files]:
                raise InputError(f"{base} extends itself")
            files.append(read_yaml(path))
    return files


def _part(files: list[YamlFile], name: str) -> Part:
    """A part from the outermost defaults to the file's own keys; a later value replaces an earlier one whole."""
    layers = [(source, place) for source in reversed(files) for place in (("defaults",), ("parts", name))]
    given: dict[str, Any] = {}
    shorter: dict[str, Any] | None = {}
    for file, place in layers:
        values = value_at(file, place)
        if "data" in values:
            values = {**values, "data": _find_data(file, place, values["data"])}
        quick = values.get("quick", {})
        given |= values
        shorter = None if quick is False else {**(shorter or {}), **quick}
    where = next((file.where(("parts", name)) for file in files if name in file.get("parts", {})), "")
    if "data" not in given:
        raise InputError(f"{where}: the key 'data' is required in part {name!r}")
    full = {key: value for key, value in given.items() if key not in _NOT_ARGUMENTS}
    _check_options(layers, full["data"])
    short = None if shorter is None else full | shorter
    return Part(full, short, given.get("title", ""), given.get("set", name), where)


def _find_data(file: YamlFile, place: Place, data: str | list[str]) -> str | list[str]:
    """Names of data sets as they are, paths relative to the file."""
    from consilience.data.named_sets import data_names

    if not isinstance(data, str):
        return [str(_find_data(file, place, name)) for name in data]
    if data in data_names():
        return data
    path = file.path.parent / data
    with file.naming(*place, "data"):
        if not path.exists() and not path.suffix:
            raise unknown_name("data set", data, data_names(), f"There is no file {path} either")
        if not path.exists():
            raise InputError(f"the data file {path} does not exist")
    return str(path)


def _check_options(layers: Iterable[tuple[YamlFile, Place]], data: str | list[str]) -> None:
    """Refuse keys that are neither of a part nor options of the data."""
    from consilience.core.settings import settings_of
    from consilience.data import load_data
    from consilience.data.named_sets import registry

    sets = [registry().get(name) for name in ([data] if isinstance(data, str) else data)]
    options = {"data_dir", "modalities", "seed"} | {
        option for data_set in sets if data_set for option in data_set.options
    }
    if None in sets:
        options |= set(settings_of(load_data))
    for file, place in layers:
        for inner in (place, (*place, "quick")):
            values = value_at(file, inner)
            for key in values if isinstance(values, Mapping) else ():
                with file.naming(*inner, key):
                    if key not in PART_KEYS and key not in options:
                        advice = f"It is neither a key of a part nor an option of the data {data!r}"
                        raise unknown_name("key", key, {*PART_KEYS, *options}, advice)


def _published(file: YamlFile, parts: Mapping[str, Part]) -> Iterable[tuple[tuple[str, str, str, float], Figure]]:
    for part, conditions in (file.get("published") or {}).items():
        with file.naming("published", part):
            check_value(f"published.{part}", conditions, Mapping[str, Any])
        for condition, methods in conditions.items():
            with file.naming("published", part, condition):
                corruption, level = _check_condition(parts, part, condition)
                check_value(f"published.{part}.{condition}", methods, Mapping[str, Any])
            for method, figure in methods.items():
                with file.naming("published", part, condition, method):
                    _check_method(parts[part], method)
                    check_value(method, figure, float | list[float])
                    if isinstance(figure, list) and len(figure) != 2:
                        raise InputError(f"{method}: a figure is a number or [mean, worst seed], got {figure}")
                    yield (part, method, corruption, level), Figure(*(figure if isinstance(figure, list) else [figure]))


def _claims(file: YamlFile, parts: Mapping[str, Part]) -> Iterable[Claim]:
    for number, given in enumerate(file.get("claims", [])):
        with file.naming("claims", number):
            condition = _check_condition(parts, given["part"], given.get("at", CLEAN))
            for method in (given["method"], given["than"]):
                _check_method(parts[given["part"]], method)
        smallest = float(given.get("smallest_effect", 0))
        yield Claim(given["says"], given["part"], given["method"], given["than"], *condition, smallest)


def _check_condition(parts: Mapping[str, Part], part: str, text: str) -> tuple[str, float]:
    if part not in parts:
        raise unknown_name("part", part, parts)
    corruption, level = read_condition(text)
    full = parts[part].full
    if level and "corruption" in full and corruption not in full["corruption"]:
        raise unknown_name("corruption", corruption, full["corruption"], f"Part {part!r} does not have it")
    if level and level not in full.get("levels", (level,)):
        raise InputError(f"part {part!r} does not have level {level:g}, only {', '.join(map(str, full['levels']))}")
    return corruption, level


def _check_method(part: Part, method: str) -> None:
    known = [*part.full.get("methods", ()), *([part.full["reference"]] if "reference" in part.full else [])]
    if "methods" in part.full and method not in known and f"{method.partition(':')[0]}:" not in known:
        raise unknown_name("method", method, known, "It is not compared in this part")


def _section(file: YamlFile, number: int, given: Mapping[str, Any], texts: Mapping[str, str]) -> SectionRequest:
    place: Place = ("sections", number)
    with file.naming(*place):
        if "kind" not in given:
            raise InputError("the key 'kind' is required in a section")
        check_value("kind", given["kind"], str)
    settings = {key: value for key, value in given.items() if key != "kind"}
    if isinstance(words := settings.get("words"), list):
        settings["words"] = [_text(file, (*place, "words", line), text, texts) for line, text in enumerate(words)]
    return SectionRequest(given["kind"], settings, file.path.parent, file.where(place))


def _text(file: YamlFile, place: Place, given: str | Mapping[str, str], texts: Mapping[str, str]) -> str:
    if isinstance(given, str):
        return given
    with file.naming(*place):
        if not isinstance(given, Mapping) or list(given) != ["text"]:
            raise InputError(f"this must be a string or `text: NAME`, got {given!r}; put text with a colon in quotes")
        if given["text"] not in texts:
            raise unknown_name("text", given["text"], texts)
    return texts[given["text"]]


def _merged(files: list[YamlFile], key: str) -> dict[str, Any]:
    return {name: value for file in reversed(files) for name, value in file.get(key, {}).items()}
