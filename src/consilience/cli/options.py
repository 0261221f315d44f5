"""Options of the command line: derived from declared settings, and shared by several commands."""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError
from consilience.core.settings import PositiveInt, Setting, accepts, check_value, settings_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Format = Literal["console", "markdown", "latex"]
# Settings of training that a command decides or has its own option for.
_NOT_OFFERED = ("seed", "verbose", "on_interrupt", "checkpoint_seconds")
# Not "append": that would make one string of a list in a YAML file.
_REPEATABLE: dict[str, Any] = {"action": "extend", "nargs": 1, "type": str}


def add_option(group: Any, name: str, annotation: Any, help: str, *, default: Any = None, **further: Any) -> None:
    """Add an option whose values are checked against an annotation.

    Args:
        group: The parser, or a group of it.
        name: Name in Python; the option is `--` and the name with hyphens.
        annotation: What is allowed, such as `PositiveInt` or `float | None`; "none" stands for None.
        help: One line of help.
        default: Value if the option is not given.
        **further: Such as `nargs` and `metavar`, which is "N" for numbers and "NAME" for others by default.
    """
    option = f"--{name.replace('_', '-')}"
    number = accepts(annotation, 1) or accepts(annotation, 0.5)
    further.setdefault("metavar", "N" if number else "true|false" if accepts(annotation, True) else "NAME")
    group.add_argument(option, type=_reader(option, annotation), default=default, help=help, **further)


def _reader(option: str, annotation: Any) -> Callable[[Any], Any]:
    """A function that makes a value of the text of an option, or of what a YAML file has."""

    def read(value: Any) -> Any:
        if str(value).lower() == "none" and accepts(annotation, None):
            return "none"  # None would mean that the option is not given
        for reading in _readings(value):
            if accepts(annotation, reading):
                return check_value(option, reading, annotation)
        if isinstance(value, str) and "=" in value and accepts(annotation, {}):
            value = _read_parts(option, value, annotation)
        try:
            return check_value(option, value_of(value) if isinstance(value, str) else value, annotation)
        except InputError as error:
            hint = _say_commas(option, value, annotation)
            raise ArgumentTypeError(str(error).replace("unknown --", "unknown ") + hint) from error

    return read


def _read_parts(option: str, value: str, annotation: Any) -> dict[str, Any]:
    """The mapping of a text of the form NAME=VALUE[,NAME=VALUE…].

    >>> from collections.abc import Mapping
    >>> _read_parts("--lr", "text=2e-5,head=1e-3", float | Mapping[str, float])
    {'text': 2e-05, 'head': 0.001}
    """
    found: dict[str, Any] = {}
    for pair in value.split(","):
        name, equals, text = pair.partition("=")
        if not (name and equals and text):
            raise ArgumentTypeError(f"{option} must have the form NAME=VALUE[,NAME=VALUE…], got {value!r}")
        if name in found:
            raise ArgumentTypeError(f"{option} names {name} twice: {value!r}")
        found[name] = next((each for each in _readings(text) if accepts(annotation, {name: each})), text)
    return found


def _say_commas(option: str, value: Any, annotation: Any) -> str:
    """What is meant by a value with commas: a number with a decimal comma, or several values.

    >>> _say_commas("--lr", "0,01", float), _say_commas("--levels", "0,5,10", float)
    (': write a decimal point, --lr 0.01', ': put spaces between values, --levels 0 5 10')
    """
    if not isinstance(value, str) or "," not in value:
        return ""
    if re.fullmatch(r"[-+]?\d+,\d+", value) and accepts(annotation, float(value.replace(",", "."))):
        return f": write a decimal point, {option} {value.replace(',', '.')}"
    parts = value.split(",")
    if all(any(accepts(annotation, each) for each in _readings(part)) for part in parts):
        return f": put spaces between values, {option} {' '.join(parts)}"
    return ""


def _readings(value: Any) -> list[Any]:
    """What a text may mean: a number, true or false, or the text itself."""
    if not isinstance(value, str):
        return [value, str(value)]
    readings: list[Any] = []
    for kind in (int, float):
        try:
            readings.append(kind(value))
        except ValueError:
            continue
    return [*readings, *({"true": [True], "false": [False]}.get(value.lower(), [])), value]


def check_names(command: str, option: str, given: Sequence[str] | None) -> None:
    """Raise an error for names that were joined by commas: an option takes them with spaces between.

    Example:
        >>> check_names("compare", "methods", ["late,concat"])
        Traceback (most recent call last):
        consilience.core.errors.InputError: compare: --methods late,concat is one name: put spaces between names, \
--methods late concat
    """
    if joined := [name for name in given or () if "," in name]:
        names = " ".join(name for each in given or () for name in each.split(",") if name)
        raise InputError(
            f"{command}: --{option} {' '.join(joined)} is one name: put spaces between names, --{option} {names}"
        )


def add_loading(parser: ArgumentParser) -> None:
    """Add the options of `load_data`."""
    from consilience.data.loading import load_data

    group = parser.add_argument_group("data")
    declared = settings_of(load_data)
    for name, metavar in (("target", "COLUMN"), ("split", "COLUMN"), ("fill", "HOW"), ("task", "TASK")):
        group.add_argument(f"--{name}", type=str, metavar=metavar, help=declared[name].help)
    for name in ("group", "time"):
        group.add_argument(f"--{name}", type=str, metavar="COLUMN", help=declared[name].help)
    add_option(group, "folds", declared["folds"].annotation, declared["folds"].help, metavar="K")
    group.add_argument("--data-dir", type=str, metavar="FOLDER", help=declared["data_dir"].help)
    columns = f"{declared['modalities'].help}; repeatable"
    group.add_argument("--modality", **_REPEATABLE, metavar="NAME=GLOB[,GLOB…][:KIND]", help=columns)
    group.add_argument("--kind", **_REPEATABLE, metavar="NAME=KIND", help=f"{declared['kinds'].help}; repeatable")
    media = f"{declared['media'].help}; repeatable"
    group.add_argument("--media", **_REPEATABLE, metavar="NAME.SETTING=VALUE", help=media)
    group.add_argument("--broken", type=str, metavar="HOW", help=declared["broken"].help)
    add_option(group, "buffer", declared["buffer"].annotation, declared["buffer"].help, metavar="ROWS")
    group.add_argument("--option", **_REPEATABLE, metavar="NAME=VALUE", help="option of a named data set; repeatable")


def training_settings() -> dict[str, Setting]:
    """Return the settings of training that have an option, by name."""
    from consilience.training.training_settings import TrainingSettings

    return {name: setting for name, setting in settings_of(TrainingSettings).items() if name not in _NOT_OFFERED}


def add_training(parser: ArgumentParser) -> None:
    """Add the options of encoders, of methods, and every setting of training."""
    from consilience.training.part_names import BY_PART

    group = parser.add_argument_group("training")
    encoder = "encoder of a modality: name, name:value or JSON; repeatable"
    group.add_argument("--encoder", **_REPEATABLE, metavar="MODALITY=ENCODER", help=encoder)
    group.add_argument(
        "--setting",
        **_REPEATABLE,
        metavar="METHOD.NAME=VALUE",
        help="setting of a method, or of its training; repeatable",
    )
    for name, setting in training_settings().items():
        default = "none" if setting.default is None else str(setting.default).lower()
        help = setting.help.replace("None:", "none:")  # as it is written here
        several: dict[str, Any] = {"nargs": "+", "metavar": "WHAT"} if accepts(setting.annotation, ["", ""]) else {}
        if name in BY_PART:
            several["metavar"] = f"{'' if name == 'freeze' else 'N|'}PART={'WHEN' if name == 'freeze' else 'N'}[,…]"
        add_option(group, name, setting.annotation, f"{help} (default: {default})", **several)


def add_class_weight(parser: ArgumentParser) -> None:
    """Add the weights of classes."""
    help = "weights of classes in training: balanced, or CLASS=WEIGHT for some classes, the others having weight 1"
    parser.add_argument("--class-weight", nargs="+", type=str, metavar="WHAT", help=help)


def class_weight(chosen: Namespace) -> dict[str, float] | str | None:
    """Return class → weight, "balanced" or None."""
    given = chosen.class_weight
    if given is None or given == ["none"]:
        return None
    if given == ["balanced"]:
        return "balanced"
    weights: dict[str, float] = {}
    for pair in given:
        name, equals, value = pair.rpartition("=")  # a class may have "=" in its name
        try:
            weights[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"--class-weight must be balanced, or have the form CLASS=WEIGHT, got {pair!r}")
    return weights


def add_passed_encoders(parser: ArgumentParser) -> None:
    """Add the encoders that a saved model needs and does not hold."""
    encoder = "encoder that a saved model does not hold, such as text=frozen:FOLDER; repeatable"
    parser.add_argument("--encoder", **_REPEATABLE, metavar="MODALITY=ENCODER", help=encoder)


def add_running(parser: ArgumentParser, jobs: int | None = 1) -> None:
    """Add the run folder, the number of processes and the format of the table; None: it depends on the methods."""
    group = parser.add_argument_group("running")
    group.add_argument("--out", type=str, metavar="FOLDER", help="run folder; a new one in runs/ if absent")
    processes = "number of processes" + ("; 1 if absent, without --methods one a core, up to 4" if jobs is None else "")
    add_option(group, "jobs", PositiveInt, processes, default=jobs)
    group.add_argument(
        "--side-by-side", action="store_true", help="train the seeds of a method as one batched model where possible"
    )
    group.add_argument("--cluster", type=str, metavar="ray", help="run on a Ray cluster, found by RAY_ADDRESS")
    add_format(parser)


def add_format(parser: ArgumentParser) -> None:
    """Add the format of the printed table."""
    add_option(parser, "format", Format, "format of the table: console, markdown or latex", default="console")


def add_worst(parser: ArgumentParser) -> None:
    """Add the option that shows the worst seed."""
    parser.add_argument("--worst", action="store_true", help="add the worst seed to every cell of the table")


def check_out(path: Path) -> None:
    """Raise an error if a path cannot be written to, before the work is done."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if existing != path and not existing.is_dir():
        raise InputError(f"cannot write to {path}: {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise InputError(f"cannot write to {path}: {existing} is read-only")


def check_out_file(command: str, option: str, path: Path, inputs: Iterable[str | Path]) -> None:
    """Raise an error if a file cannot be written, or if it is one of the inputs."""
    check_out(path)
    if path.is_dir():
        raise InputError(f"{command}: --{option} {path} is a folder")
    if path.exists() and any(Path(file).exists() and path.samefile(file) for file in inputs):
        raise InputError(f"{command}: --{option} {path} would overwrite an input file")


def loading(chosen: Namespace) -> dict[str, Any]:
    """Return the arguments of `load_data`."""
    given = {
        "target": chosen.target,
        "modalities": modalities(chosen.modality or []),
        "kinds": dict(each_pair("kind", chosen.kind)) or None,
        "split": chosen.split,
        "fill": chosen.fill,
        "task": chosen.task,
        "group": chosen.group,
        "time": chosen.time,
        "folds": chosen.folds,
        "media": named_settings("media", chosen.media) or None,
        "broken": chosen.broken,
        "buffer": chosen.buffer,
        "data_dir": chosen.data_dir,
        **{name: value_of(text) for name, text in each_pair("option", chosen.option)},
    }
    return {name: value for name, value in given.items() if value is not None}


def modalities(given: Sequence[str]) -> dict[str, list[str]] | list[str] | None:
    """Return the columns of each modality in a table, or the names of modalities if there are only names.

    >>> modalities(["temp=TS*,hall"]), modalities(["image", "sound"])
    ({'temp': ['TS*', 'hall']}, ['image', 'sound'])
    """
    if given and not any("=" in pair for pair in given):
        return list(given)
    return columns("modality", given) or None


def columns(option: str, given: Sequence[str], command: str = "") -> dict[str, list[str]]:
    """Return name → columns or globs for every NAME=GLOB[,GLOB…]; each name may be given once."""
    chosen: dict[str, list[str]] = {}
    for name, globs in each_pair(option, given):
        if name in chosen:
            raise InputError(
                f"{command}--{option} {name} is given twice: give all its columns at once, {name}=GLOB,GLOB"
            )
        chosen[name] = globs.split(",")
    return chosen


def training(chosen: Namespace) -> dict[str, Any]:
    """Return the settings of training that were given."""
    given = {name: chosen[name] for name in training_settings() if chosen[name] is not None}
    return {name: None if value in ("none", ["none"]) else value for name, value in given.items()}


def encoders(chosen: Namespace) -> dict[str, Any]:
    """Return modality → encoder: a name, a name with its main setting, or settings as JSON."""
    return {name: value_of(text) for name, text in each_pair("encoder", chosen.encoder)}


def settings(chosen: Namespace) -> dict[str, dict[str, Any]]:
    """Return method → its settings."""
    return named_settings("setting", chosen.setting, "METHOD")


def named_settings(option: str, given: Sequence[str] | None, owner: str = "MODALITY") -> dict[str, dict[str, Any]]:
    """Return method or modality → its settings, of every OWNER.NAME=VALUE.

    >>> named_settings("media", ["photo.size=64", "photo.colour=grey"])
    {'photo': {'size': 64, 'colour': 'grey'}}
    """
    by_owner: dict[str, dict[str, Any]] = {}
    for place, text in each_pair(option, given):
        name, dot, setting = place.rpartition(".")
        if not dot:
            raise InputError(f"--{option} must have the form {owner}.NAME=VALUE, got {place}={text}")
        by_owner.setdefault(name, {})[setting] = value_of(text)
    return by_owner


def each_pair(option: str, given: Sequence[str] | None) -> list[tuple[str, str]]:
    """Split every NAME=VALUE at its first equals sign.

    >>> each_pair("modality", ["temp=TS*"])
    [('temp', 'TS*')]
    """
    pairs = []
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--{option} must have the form NAME=VALUE, got {pair!r}")
        pairs.append((name, value))
    return pairs


def value_of(text: str) -> Any:
    """Read numbers, true, false and lists as JSON; everything else is a string.

    >>> value_of("0.5"), value_of("[64, 32]"), value_of("adam")
    (0.5, [64, 32], 'adam')
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{"):
            raise InputError(f"{text!r} is not valid JSON: {error}") from error
        return text
