"""The keys of a protocol file, and the check that a file has no others and no values of another type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from consilience.comparison.plan import registered_name, split_settings
from consilience.core.errors import InputError, unknown_name
from consilience.core.settings import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    check_settings,
    check_value,
)
from consilience.corruption.augmentation import read_augment
from consilience.reproduction.yaml_lines import Place, YamlFile

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
    "seeds": (PositiveInt, "number of seeds"),
    "repeats": (PositiveInt, "draws of the noise for every seed"),
    "probability": (Fraction, "with which a modality of a sample is corrupted"),
    "metric": (str, "the main metric"),
    "settings": (Mapping[str, Any], "method → its settings, and settings of training for this method only"),
    "encoders": (Mapping[str, Any] | Literal["auto"], "modality → its encoder; auto: as `compare` chooses them"),
    "training": (Mapping[str, Any], "settings of training"),
    "tune": (NonNegativeInt, "trials of random search for every method"),
    "class_weight": (str | Mapping[str, float], "`balanced`, or class → weight in training"),
    "choose_by": (str, "the metric by which a method is chosen for `best/`"),
    "refit": (bool, "whether `best/` holds the chosen method trained once more; `true` by default"),
}
CLAIM_KEYS: dict[str, tuple[Any, str]] = {
    "says": (str, "the claim, a sentence without its full stop; required"),
    "part": (str, "the part that decides it; required"),
    "method": (str, "the method that is better; required"),
    "than": (str, "the method that is worse; required"),
    "at": (str, "the condition, `CORRUPTION LEVEL`; `clean` by default"),
    "smallest_effect": (NonNegativeFloat, "by how much it is better at least, in the metric's own unit; 0 by default"),
}


def check_file(file: YamlFile, required: Iterable[str]) -> None:
    """Check the keys and values that one file gives, each with its line."""
    check_keys(file, (), PROTOCOL_KEYS, required)
    for name in ("parts", "published", "texts", "tables"):
        for key, value in (file.get(name) or {}).items():
            with file.naming(name, key):
                check_value(f"{name}.{key}", value, str if name == "texts" else Mapping[str, Any] | None)
    for place in [("defaults",), *(("parts", name) for name in file.get("parts", {}))]:
        _check_part(file, place)
    for number, _ in enumerate(file.get("claims", [])):
        check_keys(file, ("claims", number), CLAIM_KEYS, ("says", "part", "method", "than"))


def _check_part(file: YamlFile, place: Place) -> None:
    from consilience.corruption import corruption_names
    from consilience.evaluation import find_metric
    from consilience.methods import find

    values = value_at(file, place)
    # Options of the data are checked with the whole part, where it is known which data it has.
    check_keys(file, place, PART_KEYS, also=values)
    for key in ("methods", "settings", "reference"):
        names = values.get(key, ())
        for number, name in enumerate([names] if isinstance(names, str) else names):
            with file.naming(*place, key, number if key == "methods" else name):
                if not name.endswith(":"):  # all members of a family
                    method, _ = find(registered_name(name))
                    if key == "settings":
                        given = check_value(name, names[name], Mapping[str, Any])
                        own, training = split_settings(name, given)
                        check_settings(f"method {name!r}", method, own)
                        check_training(training)
    given = values.get("corruption", ())
    for corruption in [given] if isinstance(given, str | Mapping) else given:
        for name in corruption.values() if isinstance(corruption, Mapping) else (corruption,):
            with file.naming(*place, "corruption"):
                if name is not None and name not in corruption_names():
                    raise unknown_name("corruption", name, corruption_names())
    if "metric" in values:
        with file.naming(*place, "metric"):
            find_metric(values["metric"])
    for name, value in values.get("training", {}).items():
        with file.naming(*place, "training", name):
            check_training({name: value})
    if isinstance(values.get("quick"), Mapping):
        _check_part(file, (*place, "quick"))


def check_training(given: Mapping[str, Any]) -> None:
    """Check some settings of training."""
    from consilience.training.training_settings import TrainingSettings

    check_settings("training", TrainingSettings, given)
    read_augment(given.get("augment"))


def check_keys(
    file: YamlFile,
    place: Place,
    known: Mapping[str, tuple[Any, str]],
    required: Iterable[str] = (),
    also: Iterable[str] = (),
) -> None:
    """Refuse unknown keys, values of another type, and required keys that are missing."""
    values = value_at(file, place)
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


def value_at(file: YamlFile, place: Place) -> Any:
    """The value at a place; an empty mapping if there is none."""
    value: Any = file.content
    for step in place:
        value = value.get(step) if isinstance(value, Mapping) else value[step]
        if value is None:
            return {}
    return value
