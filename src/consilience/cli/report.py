"""Draw the report of a comparison again, and print its table in any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.cli.compare import show

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "FOLDER [options]"
EXAMPLES = """  consilience report runs/sensors
  consilience report runs/sensors --format latex"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the run folder and the format."""
    parser.add_argument("folder", type=str, help="run folder of a comparison")
    options.add_format(parser)
    options.add_worst(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Draw the report and print the table."""
    from consilience.comparison import reopen

    comparison = reopen(chosen.folder)
    comparison.report()
    show(comparison, chosen.format, chosen.worst)
