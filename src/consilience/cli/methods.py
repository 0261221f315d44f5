"""List the methods: what each does, the tasks it serves, the kinds it reads, and its paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

EXAMPLES = "  consilience methods"


def add_arguments(parser: ArgumentParser) -> None:
    """None."""


def run(chosen: Namespace, command: list[str]) -> None:
    """Print the registry."""
    from rich.console import Console
    from rich.table import Table

    from consilience.methods import registry

    table = Table("method", "what it does", "tasks", "reads", "paper", box=None)
    for name, cls in registry().items():
        about = (cls.__doc__ or "").strip().splitlines()[0]
        asked = f"{name}NAME" if name.endswith(":") else name
        table.add_row(asked, about, ", ".join(cls.tasks), ", ".join(cls.reads), cls.paper)
    Console().print(table)
