"""Draw a comparison's report again, or print its table in another format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.cli.compare import say

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "FOLDER [options]"
EXAMPLES = """  consilience report runs/sensors
  consilience report runs/sensors --format latex"""


def add_arguments(parser: ArgumentParser) -> None:
    """The run folder and the format."""
    parser.add_argument("folder", type=str, help="a run folder")
    options.add_format(parser)
    options.add_worst(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """Redraw and print."""
    from consilience.comparison import reopen

    options.check_format(chosen)
    comparison = reopen(chosen.folder)
    comparison.report()
    say(comparison, chosen.format, chosen.worst)
