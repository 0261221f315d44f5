"""List the methods: what each does, the tasks it serves, the kinds it reads, and its paper."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any, get_args

from consilience.core.modalities import Kind
from consilience.core.settings import settings_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.methods import Method

USAGE = "[NAME …] [options]"
EXAMPLES = """  consilience methods
  consilience methods qmf
  consilience methods --json"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add names and the output format."""
    names = "methods to explain: what each does, its equation and its settings; all in short if absent"
    parser.add_argument("names", nargs="*", type=str, help=names)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(chosen: Namespace, command: list[str]) -> None:
    """Print all methods in short, or those that are named in full."""
    from consilience.methods import find, registry

    if chosen.names:
        explained = [explain(name, find(name)[0]) for name in chosen.names]
        print(json.dumps(explained, indent=1, default=str) if chosen.json else "\n\n".join(map(say, explained)))
        return
    listed = [describe(name, cls) for name, cls in registry().items()]
    if chosen.json:
        print(json.dumps(listed, indent=1))
        return
    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False, markup=False)
    for method in listed:
        console.print(method["name"], style="bold")
        reads = "all kinds" if set(method["reads"]) == set(get_args(Kind)) else ", ".join(method["reads"])
        serves = f"{', '.join(method['tasks'])}; reads {reads}"
        for line in filter(None, (method["does"], serves, method["paper"])):
            console.print(Padding(line, (0, 0, 0, 4)))


def explain(name: str, cls: type[Method]) -> dict[str, Any]:
    """Return a method in full: also its whole docstring, its equation, and its settings with their defaults."""
    about, _, arguments = (inspect.getdoc(cls) or "").partition("\n\nArgs:\n")
    arguments, _, rest = arguments.partition("\n\n")
    helps = {name: " ".join(text.split()) for name, text in re.findall(r"^ {4}(\w+): ((?:.|\n {8})*)", arguments, re.M)}
    settings = {
        setting.name: {"default": setting.default, "allowed": setting.allowed, "help": helps.get(setting.name, "")}
        for setting in settings_of(cls).values()
    }
    full = {"equation": cls.equation, "about": f"{about}\n\n{rest}".strip(), "settings": settings}
    return {**describe(name, cls), **full}


def say(method: Mapping[str, Any]) -> str:
    """Return a method that `explain` describes as text."""
    reads = "all kinds" if set(method["reads"]) == set(get_args(Kind)) else ", ".join(method["reads"])
    lines = [method["name"], "", method["about"], ""]
    lines += [f"equation: {method['equation']}"] if method["equation"] else []
    lines += [f"paper: {method['paper']}"] if method["paper"] else []
    lines += [f"{', '.join(method['tasks'])}; reads {reads}", ""]
    if not method["settings"]:
        return "\n".join([*lines, "It has no settings."])
    lines.append(f"settings, as in --setting {method['name']}.NAME=VALUE:")
    for name, setting in method["settings"].items():
        lines.append(f"  {name} = {setting['default']!r} ({setting['allowed']})")
        lines += [f"      {line}" for line in wrap(setting["help"], 100)]
    return "\n".join(lines)


def describe(name: str, cls: type[Method]) -> dict[str, Any]:
    """Return a method as plain values; a family is listed once, as `family:NAME`."""
    about = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    return {
        "name": f"{name}NAME" if name.endswith(":") else name,
        "does": about,
        "tasks": list(cls.tasks),
        "reads": [*cls.reads, *(["text"] if "tokens" in cls.reads else [])],  # text becomes tokens
        "paper": cls.paper,
    }
