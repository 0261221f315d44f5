"""Options that several commands share, and how NAME=VALUE on a command line becomes what the library takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

# The settings of `consilience.training.Trainer` that a command line may give, with their types and what they are.
_TRAINING: dict[str, tuple[Any, str]] = {
    "epochs": (int, "at most so many; fewer where validation stops improving"),
    "batch_size": (int, "samples per step"),
    "lr": (float, "learning rate"),
    "optimizer": (str, "adam, adamw, sgd, adagrad or rmsprop"),
    "weight_decay": (float, "pull of the weights towards 0"),
    "patience": (int, "epochs without improvement on validation before training stops"),
    "warmup": (float, "epochs over which the learning rate rises"),
    "schedule": (str, "of the learning rate: constant, plateau or cosine"),
    "average": (float | str, "keep averaged weights: mean, or the decay of a moving average such as 0.99"),
    "modality_dropout": (float, "probability of hiding a modality of a training sample"),
    "precision": (str, "32, bf16, bf16-true, 16 or 64"),
    "device": (str, "auto, cpu, cuda, cuda:1, …"),
    "devices": (int, "how many of them train one model"),
    "nodes": (int, "machines that train one model"),
    "strategy": (str, "how they share it, as Lightning Fabric has it: ddp, fsdp, …"),
}
# Not "append": of a list in a YAML file, that would make one string.
_REPEATABLE: dict[str, Any] = {"action": "extend", "nargs": 1, "type": str}
FORMATS = ("console", "markdown", "latex")


def add_loading(parser: ArgumentParser) -> None:
    """How to read a data set."""
    group = parser.add_argument_group("data")
    group.add_argument("--target", type=str, metavar="COLUMN", help="the column to predict")
    group.add_argument(
        "--modality", **_REPEATABLE, metavar="NAME=GLOB[,GLOB…]", help="once for each modality; NAME alone for arrays"
    )
    group.add_argument(
        "--kind", **_REPEATABLE, metavar="NAME=KIND", help="where it does not follow, such as review=text"
    )
    group.add_argument("--split", type=str, metavar="COLUMN", help="says train, validation or test; drawn unless given")
    group.add_argument("--fill", type=str, metavar="HOW", help="median, mean or zero for single empty cells")
    group.add_argument("--task", type=str, help="classification or regression, where the target does not say")
    group.add_argument("--data-dir", type=str, metavar="FOLDER", help="where the files of named sets lie")
    group.add_argument("--option", **_REPEATABLE, metavar="NAME=VALUE", help="of a named set; repeatable")


def add_training(parser: ArgumentParser) -> None:
    """How to train, as `consilience.training.Trainer` has it."""
    group = parser.add_argument_group("training")
    group.add_argument(
        "--encoder", **_REPEATABLE, metavar="MODALITY=ENCODER", help="name, name:value or JSON; repeatable"
    )
    group.add_argument("--setting", **_REPEATABLE, metavar="METHOD.NAME=VALUE", help="of a method; repeatable")
    for name, (kind, said) in _TRAINING.items():
        group.add_argument(
            f"--{name.replace('_', '-')}", type=kind, metavar="N" if kind in (int, float) else "NAME", help=said
        )


def add_running(parser: ArgumentParser) -> None:
    """Where and with how many processes a comparison runs."""
    group = parser.add_argument_group("running")
    group.add_argument("--out", type=str, metavar="FOLDER", help="the run folder; runs/… unless given")
    group.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    group.add_argument(
        "--side-by-side", action="store_true", help="train a method's seeds as one batched model where it allows that"
    )
    group.add_argument("--cluster", type=str, metavar="ray", help="work on a Ray cluster, found by RAY_ADDRESS")
    add_format(parser)


def add_format(parser: ArgumentParser) -> None:
    """How to print the table."""
    parser.add_argument("--format", type=str, default=FORMATS[0], help=f"of the table: {', '.join(FORMATS)}")


def add_worst(parser: ArgumentParser) -> None:
    """Whether the table of a comparison tells the worst seed."""
    parser.add_argument("--worst", action="store_true", help="add the worst seed to every cell of the table")


def check_format(chosen: Namespace) -> None:
    """Refuse a wrong format before the work, not after it."""
    if chosen.format not in FORMATS:
        raise unknown_name("format", chosen.format, FORMATS)


def check_out(path: Path) -> None:
    """Refuse to begin where the result could not be written."""
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if existing != path and not existing.is_dir():
        raise InputError(f"cannot write to {path}: {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise InputError(f"cannot write to {path}: {existing} is read-only")


def check_out_file(command: str, option: str, path: Path, read: Iterable[str | Path]) -> None:
    """Refuse to begin where a file could not be written, or would take the place of one that is read."""
    check_out(path)
    if path.is_dir():
        raise InputError(f"{command}: --{option} {path} is a folder")
    if path.exists() and any(Path(one).exists() and path.samefile(one) for one in read):
        raise InputError(f"{command}: --{option} {path} would overwrite a file that is read")


def loading(chosen: Namespace) -> dict[str, Any]:
    """The arguments of `load_data`."""
    given = {
        "target": chosen.target,
        "modalities": modalities(chosen.modality or []),
        "kinds": dict(each_pair("kind", chosen.kind)) or None,
        "split": chosen.split,
        "fill": chosen.fill,
        "task": chosen.task,
        "data_dir": chosen.data_dir,
        **{name: value_of(text) for name, text in each_pair("option", chosen.option)},
    }
    return {name: value for name, value in given.items() if value is not None}


def modalities(given: Sequence[str]) -> dict[str, list[str]] | list[str] | None:
    """Each modality's columns in a table; names alone say which modalities of arrays to keep.

    >>> modalities(["temp=TS*,hall"]), modalities(["image", "sound"])
    ({'temp': ['TS*', 'hall']}, ['image', 'sound'])
    """
    if given and not any("=" in one for one in given):
        return list(given)
    columns: dict[str, list[str]] = {}
    for name, globs in each_pair("modality", given):
        if name in columns:
            raise InputError(f"--modality {name} is given twice: give all its columns at once, {name}=GLOB,GLOB")
        columns[name] = globs.split(",")
    return columns or None


def training(chosen: Namespace) -> dict[str, Any]:
    """The settings of `Trainer` that were given."""
    return {name: chosen[name] for name in _TRAINING if chosen[name] is not None}


def encoders(chosen: Namespace) -> dict[str, Any]:
    """Modality → encoder: a name, a name with its main setting, or settings as JSON."""
    return {name: value_of(text) for name, text in each_pair("encoder", chosen.encoder)}


def settings(chosen: Namespace) -> dict[str, dict[str, Any]]:
    """Method → its settings."""
    found: dict[str, dict[str, Any]] = {}
    for place, text in each_pair("setting", chosen.setting):
        method, dot, name = place.rpartition(".")
        if not dot:
            raise InputError(f"--setting must read METHOD.NAME=VALUE, got {place}={text}")
        found.setdefault(method, {})[name] = value_of(text)
    return found


def each_pair(option: str, given: Sequence[str] | None) -> list[tuple[str, str]]:
    """NAME=VALUE, each split at its first equals sign.

    >>> each_pair("modality", ["temp=TS*"])
    [('temp', 'TS*')]
    """
    pairs = []
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--{option} must read NAME=VALUE, got {one!r}")
        pairs.append((name, value))
    return pairs


def value_of(text: str) -> Any:
    """Numbers, true, false and lists as JSON reads them; everything else is a string.

    >>> value_of("0.5"), value_of("[64, 32]"), value_of("adam")
    (0.5, [64, 32], 'adam')
    """
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{"):
            raise InputError(f"{text!r} begins like JSON, and is none: {error}") from error
        return text
