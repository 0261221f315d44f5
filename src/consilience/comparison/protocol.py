"""Protocol files: comparisons in YAML, with published figures, claims and notes. Their format is in docs/protocols.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from consilience.comparison.plan import registered_name
from consilience.comparison.yaml_lines import Place, YamlFile, read_yaml
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import Interval, check_value

CLEAN = "clean"
Condition = tuple[str, float]
PageKind = Literal["parts", "ranks"]

# Every key with its type and meaning; docs/protocols.md has the same tables, and a test compares them.
PROTOCOL_KEYS: dict[str, tuple[Any, str]] = {
    "title": (str, "title of the page, such as the question that it answers; required"),
    "paper": (str, "whose table or figure is reproduced"),
    "extends": (str, "another protocol, relative to this file, whose defaults, parts, texts, tables and paper apply"),
    "defaults": (Mapping[str, Any], "keys of a part that apply to every part"),
    "parts": (Mapping[str, Any], "name → comparison; required. `NAME: {}` takes over the part of the extended file"),
    "published": (
        Mapping[str, Any],
        "part → condition → method → figure, or [mean, worst seed], in the metric's own unit",
    ),
    "claims": (list[Mapping[str, Any]], "what the paper says; each gets a verdict"),
    "sections": (list[Mapping[str, Any]], "further sections of the page: `kind` and the settings of that kind"),
    "notes": (list[str | Mapping[str, Any]], "reasons for differences; `text: NAME` takes one from `texts`"),
    "texts": (Mapping[str, Any], "name → note, for files that extend this one"),
    "tables": (Mapping[str, Any], "name → table of the paper, for sections: row → figures, one for each column"),
    "page": (PageKind, "`parts`: a table for each part, the default; `ranks`: mean ranks over the sets"),
}
SCRIPT_KEYS: dict[str, tuple[Any, str]] = {
    "title": (str, "title, for `--list`; required"),
    "paper": (str, "whose table or figure is reproduced"),
    "script": (str, "a Python file, relative to this one, with a function `run`"),
    "settings": (Mapping[str, Any], "keyword arguments of `run`, besides `name`"),
}
PART_KEYS: dict[str, tuple[Any, str]] = {
    "title": (str, "heading on the page; by default the names of the sets"),
    "set": (str, "on a page of ranks: parts with the same `set` count as one set"),
    "quick": (Mapping[str, Any] | Literal[False], "keys that differ with --quick; `false` leaves the part out"),
    "data": (str | list[str], "name of a data set, or a path relative to this file; required"),
    "methods": (list[str], "names of methods; NAME@LABEL is a variant with the settings of NAME@LABEL"),
    "reference": (str, "the method that the others are compared with"),
    "corruption": (
        str | list[Any] | Mapping[str, Any],
        "a corruption, a mapping modality → corruption, or a list of them",
    ),
    "levels": (list[float], "levels of corruption; 0, the clean set, always belongs to them"),
    "seeds": (Annotated[int, Interval(1)], "number of seeds"),
    "repeats": (Annotated[int, Interval(1)], "draws of the noise for every seed"),
    "probability": (Annotated[float, Interval(0, 1)], "with which a modality of a sample is corrupted"),
    "metric": (str, "the main metric"),
    "settings": (Mapping[str, Any], "method → its settings"),
    "encoders": (Mapping[str, Any], "modality → its encoder"),
    "training": (Mapping[str, Any], "settings of training"),
    "tune": (Annotated[int, Interval(0)], "trials of random search for every method"),
}
CLAIM_KEYS: dict[str, tuple[Any, str]] = {
    "says": (str, "the claim, a sentence without its full stop; required"),
    "part": (str, "the part that decides it; required"),
    "method": (str, "the method that is better; required"),
    "than": (str, "the method that is worse; required"),
    "at": (str, "the condition, `CORRUPTION LEVEL`; `clean` by default"),
}
_NOT_ARGUMENTS = ("title", "set", "quick")


@dataclass(frozen=True)
class Part:
    """One comparison. full, quick: the arguments of `compare`; quick is None if the quick form leaves the part out."""

    full: Mapping[str, Any]
    quick: Mapping[str, Any] | None
    title: str = ""
    set: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says that a comparison can check: under a condition, one method is better than another."""

    says: str
    part: str
    method: str
    than: str
    corruption: str = CLEAN
    level: float = 0.0


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
    """A protocol file, read and checked. published: (part, method, corruption, level) → figure."""

    path: Path
    title: str
    parts: Mapping[str, Part]
    paper: str = ""
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


@dataclass(frozen=True)
class ScriptProtocol:
    """A file that names a script and its settings."""

    path: Path
    title: str
    script: Path
    paper: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_protocol(path: str | Path) -> Protocol | ScriptProtocol:
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
        _check_keys(file, (), SCRIPT_KEYS, required=("title", "script"))
        script = file.path.parent / file["script"]
        if not script.is_file():
            raise InputError(f"{file.where(('script',))}: the script {script} does not exist")
        return ScriptProtocol(file.path, file["title"], script, file.get("paper", ""), file.get("settings", {}))
    files = _with_extended(file)
    for each in files:
        _check_file(each, required=("title",) if each is file else ())
    names = list(file.get("parts") or (name for each in files for name in each.get("parts", {})))
    if not names:
        raise InputError(f"{file.path}: the key 'parts' is required: name → comparison")
    parts = {name: _part(files, name) for name in dict.fromkeys(names)}
    merged = {key: _merged(files, key) for key in ("texts", "tables")}
    return Protocol(
        path=file.path,
        title=file["title"],
        parts=parts,
        paper=next((each["paper"] for each in files if "paper" in each.content), ""),
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


def read_condition(text: str) -> Condition:
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
            if path.resolve() in [each.path.resolve() for each in files]:
                raise InputError(f"{base} extends itself")
            files.append(read_yaml(path))
    return files


def _check_file(file: YamlFile, required: Iterable[str]) -> None:
    """Check the keys and values that one file gives, each with its line."""
    _check_keys(file, (), PROTOCOL_KEYS, required)
    for name in ("parts", "published", "texts", "tables"):
        for key, value in (file.get(name) or {}).items():
            with file.naming(name, key):
                check_value(f"{name}.{key}", value, str if name == "texts" else Mapping[str, Any] | None)
    for place in [
        ("defaults",) if "defaults" in file.content else (),
        *(("parts", name) for name in file.get("parts", {})),
    ]:
        if place:
            _check_part(file, place)
    for number, _ in enumerate(file.get("claims", [])):
        _check_keys(file, ("claims", number), CLAIM_KEYS, ("says", "part", "method", "than"))


def _check_part(file: YamlFile, place: Place) -> None:
    from consilience.corruption import corruption_names
    from consilience.evaluation import find_metric
    from consilience.methods import find

    values = _at(file, place)
    # Options of the data are checked with the whole part, where it is known which data it has.
    _check_keys(file, place, PART_KEYS, also=values)
    for key in ("methods", "settings", "reference"):
        names = values.get(key, ())
        for number, name in enumerate([names] if isinstance(names, str) else names):
            with file.naming(*place, key, number if key == "methods" else name):
                if not name.endswith(":"):  # all members of a family
                    find(registered_name(name))
    given = values.get("corruption", ())
    for corruption in [given] if isinstance(given, str | Mapping) else given:
        for name in corruption.values() if isinstance(corruption, Mapping) else (corruption,):
            with file.naming(*place, "corruption"):
                if name is not None and name not in corruption_names():
                    raise unknown_name("corruption", name, corruption_names())
    if "metric" in values:
        with file.naming(*place, "metric"):
            find_metric(values["metric"])
    _check_training(file, place, values.get("training", {}))
    if isinstance(values.get("quick"), Mapping):
        _check_part(file, (*place, "quick"))


def _check_training(file: YamlFile, place: Place, training: Mapping[str, Any]) -> None:
    from consilience.core.settings import check_settings
    from consilience.training.settings import TrainingSettings

    for name, value in training.items():
        with file.naming(*place, "training", name):
            check_settings("training", TrainingSettings, {name: value})


def _check_keys(
    file: YamlFile,
    place: Place,
    known: Mapping[str, tuple[Any, str]],
    required: Iterable[str] = (),
    also: Iterable[str] = (),
) -> None:
    """Refuse unknown keys, values of another type, and required keys that are missing."""
    values = _at(file, place)
    inside = f"It was given in {'.'.join(map(str, place))}" if place else ""
    for key, value in values.items():
        with file.naming(*place, key):
            if key in known:
                check_value(key, value, known[key][0])
            elif key not in also:
                raise unknown_name("key", key, known, inside)
    for key in required:
        if key not in values:
            raise InputError(f"{file.where(place)}: the key {key!r} is required{' here' if place else ''}")


def _part(files: list[YamlFile], name: str) -> Part:
    """A part from the outermost defaults to the file's own keys; a later value replaces an earlier one whole."""
    layers = [(each, place) for each in reversed(files) for place in (("defaults",), ("parts", name))]
    given: dict[str, Any] = {}
    shorter: dict[str, Any] | None = {}
    for file, place in layers:
        values = _at(file, place)
        if "data" in values:
            values = {**values, "data": _find_data(file, place, values["data"])}
        quick = values.get("quick", {})
        given |= values
        shorter = None if quick is False else {**(shorter or {}), **quick}
    if "data" not in given:
        raise InputError(f"{files[0].where(('parts', name))}: the key 'data' is required in part {name!r}")
    full = {key: value for key, value in given.items() if key not in _NOT_ARGUMENTS}
    _check_options(layers, full["data"])
    return Part(full, None if shorter is None else full | shorter, given.get("title", ""), given.get("set", name))


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
    from consilience.data import load_data
    from consilience.core.settings import settings_of
    from consilience.data.named_sets import registry

    sets = [registry().get(name) for name in ([data] if isinstance(data, str) else data)]
    options = {"data_dir", "modalities", "seed"} | {option for each in sets if each for option in each.options}
    if None in sets:
        options |= set(settings_of(load_data))
    for file, place in layers:
        for inner in (place, (*place, "quick")):
            values = _at(file, inner)
            for key in values if isinstance(values, Mapping) else ():
                with file.naming(*inner, key):
                    if key not in PART_KEYS and key not in options:
                        advice = f"It is neither a key of a part nor an option of the data {data!r}"
                        raise unknown_name("key", key, {*PART_KEYS, *options}, advice)


def _published(file: YamlFile, parts: Mapping[str, Part]) -> Iterable[tuple[tuple[str, str, str, float], Figure]]:
    for part, conditions in (file.get("published") or {}).items():
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
        yield Claim(given["says"], given["part"], given["method"], given["than"], *condition)


def _check_condition(parts: Mapping[str, Part], part: str, text: str) -> Condition:
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
    known = [*part.full.get("methods", ()), part.full.get("reference", method)]
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
            raise InputError(f"here stands a string or `text: NAME`, got {given!r}; put text with a colon in quotes")
        if given["text"] not in texts:
            raise unknown_name("text", given["text"], texts)
    return texts[given["text"]]


def _merged(files: list[YamlFile], key: str) -> dict[str, Any]:
    return {name: value for each in reversed(files) for name, value in each.get(key, {}).items()}


def _at(file: YamlFile, place: Place) -> Any:
    """The value at a place; an empty mapping if there is none."""
    value: Any = file.content
    for step in place:
        value = value.get(step) if isinstance(value, Mapping) else value[step]  # type: ignore[call-overload,index]
        if value is None:
            return {}
    return value
