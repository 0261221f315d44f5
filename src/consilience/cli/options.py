"""Options that several commands share, and how NAME=VALUE on a command line becomes what the library takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consilience.errors import InputError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

_TRAINING: dict[str, type] = {
    "epochs": int,
    "batch_size": int,
    "lr": float,
    "optimizer": str,
    "weight_decay": float,
    "patience": int,
    "warmup": float,
    "schedule": str,
    "modality_dropout": float,
    "precision": str,
    "device": str,
    "devices": int,
    "nodes": int,
    "strategy": str,
}


def add_loading(parser: ArgumentParser) -> None:
    """How to read a data set."""
    parser.add_argument("--target", type=str, default=None, help="the column to predict")
    parser.add_argument("--modality", action="append", type=str, default=None, help="NAME=GLOB[,GLOB…]; repeatable")
    parser.add_argument("--kind", action="append", type=str, default=None, help="NAME=KIND, such as review=text")
    parser.add_argument("--split", type=str, default=None, help="the column that says train, validation or test")
    parser.add_argument("--fill", type=str, default=None, help="median, mean or zero for single empty cells")
    parser.add_argument("--task", type=str, default=None, help="classification or regression")
    parser.add_argument("--data-dir", type=str, default=None, help="where the files of named sets lie")
    parser.add_argument("--option", action="append", type=str, default=None, help="NAME=VALUE of a named set")


def add_training(parser: ArgumentParser) -> None:
    """How to train, as `consilience.training.Trainer` has it."""
    parser.add_argument("--encoder", action="append", type=str, default=None, help="MODALITY=ENCODER; repeatable")
    parser.add_argument("--setting", action="append", type=str, default=None, help="METHOD.NAME=VALUE; repeatable")
    for name, kind in _TRAINING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=None)


def add_running(parser: ArgumentParser) -> None:
    """Where and with how many processes a comparison runs."""
    parser.add_argument("--out", type=str, default=None, help="the run folder; runs/… unless given")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cluster", type=str, default=None, help="ray: its cluster, through joblib")
    add_format(parser)


def add_format(parser: ArgumentParser) -> None:
    """How to print the table."""
    parser.add_argument("--format", type=str, default="console", help="of the table: console, markdown or latex")


def loading(chosen: Namespace) -> dict[str, Any]:
    """The arguments of `load_data`."""
    modalities: dict[str, list[str]] = {}
    for name, globs in each_pair("modality", chosen.modality):
        modalities.setdefault(name, []).extend(globs.split(","))
    given = {
        "target": chosen.target,
        "modalities": modalities or None,
        "kinds": dict(each_pair("kind", chosen.kind)) or None,
        "split": chosen.split,
        "fill": chosen.fill,
        "task": chosen.task,
        "data_dir": chosen.data_dir,
        **{name: value_of(text) for name, text in each_pair("option", chosen.option)},
    }
    return {name: value for name, value in given.items() if value is not None}


def training(chosen: Namespace) -> dict[str, Any]:
    """The settings of `Trainer` that were given."""
    return {name: chosen[name] for name in _TRAINING if chosen[name] is not None}


def encoders(chosen: Namespace) -> dict[str, Any]:
    """Modality → encoder."""
    return dict(each_pair("encoder", chosen.encoder))


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
    except ValueError:
        return text
