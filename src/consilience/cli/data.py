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
  consilience data describe sensors.csv --target fault --modality 'temp=TS*' --modality 'pressure=PS*'
  consilience data describe patients.csv --target outcome --modality photo=photo_path:image --media photo.size=32"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action and the data set."""
    parser.add_argument("action", type=str, help="list or describe")
    parser.add_argument("data", type=str, nargs="?", default=None, help="name of a data set, or a file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options.add_loading(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List the data sets, or describe one."""
    from consilience.data import list_sets, load_data

    if chosen.action == "list" and chosen.data is None:
        sets = list_sets(chosen.data_dir)
        print(json.dumps(sets, indent=1) if chosen.json else "\n".join(map(in_one_line, sets)))
    elif chosen.action == "describe" and chosen.data is not None:
        described = load_data(chosen.data, **options.loading(chosen)).describe()
        print(json.dumps(described, indent=1) if chosen.json else in_words(described))
    else:
        raise InputError("data: use 'consilience data list' or 'consilience data describe NAME_OR_FILE'")


def in_one_line(entry: Mapping[str, Any]) -> str:
    """Return the line of a data set in the list."""
    where = "built in" if entry["built_in"] else "found" if entry["available"] else "needs files"
    return f"{entry['name']:22} {where:12} {entry['description']}"


def in_words(described: dict[str, Any]) -> str:
    """Return the description of a data set as text."""
    from consilience.data.split_rules import split_words
    from consilience.report.wording import say_filled

    sizes = ", ".join(f"{count} {part}" for part, count in described["split"].items())
    rule = described.get("split_rule")
    drawn = "split drawn at random" if rule is None else f"split {split_words(rule)}"
    drawn = "the data's own split" if described["official_split"] else drawn
    lines = [
        f"{described['name']}: {described['description'] or 'data of your own'}",
        *([f"licence: {described['licence']}"] if described["licence"] else []),
        f"{described['samples']} samples ({sizes}; {drawn}), {described['task'] or 'no targets'}",
    ]
    for modality in described["modalities"]:
        shape = "×".join(map(str, modality["shape"]))
        lines.append(f"  {modality['name']:20} {modality['kind']:9} {shape:12} {modality['missing']:6.1%} missing")
        if "files" in modality:
            lines[-1] += f"  {_files_in_words(modality['files'])}"
        if "filled" in modality:
            lines[-1] += f"  {say_filled(modality['filled'])}"
    lines += [
        f"  class {label['class']!r:14} {label['samples']:7} samples {label['share']:6.1%}"
        for label in described.get("classes", ())
    ]
    lines += [
        "  target " + "  ".join(f"{name} {value:.4g}" for name, value in target.items())
        for target in described.get("targets", ())
    ]
    return "\n".join(lines)


def _files_in_words(files: Mapping[str, Any]) -> str:
    """Return which files a column of paths names."""
    endings = ", ".join(f"{count} {ending}" for ending, count in files["endings"].items())
    broken = f", {files['broken']} unreadable" if files["broken"] else ""
    return f"files of {files['column']}: {endings}{broken}"
