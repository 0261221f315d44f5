"""List the methods: what each does, the tasks it serves, the kinds it reads, and its paper."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

from consilience.core.modalities import Kind

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.methods import Method

USAGE = "[options]"
EXAMPLES = """  consilience methods
  consilience methods --json"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the output format."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(chosen: Namespace, command: list[str]) -> None:
    """Print all methods."""
    from consilience.methods import registry

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
