"""List the data sets, or describe one: modalities, classes and their balance, what is missing, the split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from consilience.cli import options
from consilience.core.errors import InputError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "list | describe DATA [options]"
EXAMPLES = """  consilience data list
  consilience data describe digits
  consilience data describe sensors.csv --target fault --modality temp=TS* --modality pressure=PS*"""


def add_arguments(parser: ArgumentParser) -> None:
    """What to do, and with which set."""
    parser.add_argument("action", type=str, help="list or describe")
    parser.add_argument("data", type=str, nargs="?", default=None)
    parser.add_argument("--json", action="store_true", help="plain JSON for other programs")
    options.add_loading(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List or describe."""
    from consilience.data import list_sets, load_data

    if chosen.action == "list" and chosen.data is None:
        sets = list_sets(chosen.data_dir)
        print(json.dumps(sets, indent=1) if chosen.json else "\n".join(map(in_one_line, sets)))
    elif chosen.action == "describe" and chosen.data is not None:
        described = load_data(chosen.data, **options.loading(chosen)).describe()
        print(json.dumps(described, indent=1) if chosen.json else in_words(described))
    else:
        raise InputError("data: say 'consilience data list', or 'consilience data describe NAME_OR_FILE'")


def in_one_line(one: Mapping[str, Any]) -> str:
    """A set's entry in the list."""
    where = "built in" if one["built_in"] else "found" if one["available"] else "needs files"
    return f"{one['name']:22} {where:12} {one['description']}"


def in_words(described: dict[str, Any]) -> str:
    """A set's description for people."""
    sizes = ", ".join(f"{count} {part}" for part, count in described["split"].items())
    drawn = "the data's own split" if described["official_split"] else "split drawn here, with a seed"
    lines = [
        f"{described['name']}: {described['description'] or 'a set of your own'}",
        *([f"licence: {described['licence']}"] if described["licence"] else []),
        f"{described['samples']} samples ({sizes}; {drawn}), {described['task']}",
    ]
    for one in described["modalities"]:
        shape = "×".join(map(str, one["shape"]))
        lines.append(f"  {one['name']:20} {one['kind']:9} {shape:12} {one['missing']:6.1%} missing")
    lines += [
        f"  class {one['class']!r:14} {one['samples']:7} samples {one['share']:6.1%}"
        for one in described.get("classes", ())
    ]
    lines += [
        "  target " + "  ".join(f"{name} {value:.4g}" for name, value in one.items())
        for one in described.get("targets", ())
    ]
    return "\n".join(lines)
