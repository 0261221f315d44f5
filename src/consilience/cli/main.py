"""`consilience COMMAND …`: finds the command, runs it, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import logging
import sys
import traceback
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from consilience.cli import compare, data, methods, predict, report, reproduce, train
from consilience.errors import ConsilienceError
from consilience.version import __version__

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

# Each has a docstring (the help), EXAMPLES, add_arguments(parser) and run(chosen, command).
COMMANDS: dict[str, ModuleType] = {
    "compare": compare,
    "train": train,
    "predict": predict,
    "report": report,
    "reproduce": reproduce,
    "methods": methods,
    "data": data,
}
# Exit codes: 2 for what the user can mend, 130 for Ctrl-C, as shells have it.
MENDABLE, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("consilience").setLevel(logging.INFO)
    try:
        chosen = build_parser().parse_args(given)
        COMMANDS[chosen.command].run(chosen[chosen.command], ["consilience", *given])
    except KeyboardInterrupt:
        print("consilience: stopped. What is finished is kept: the same command goes on from there", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return 0
    except (ConsilienceError, OSError) as error:
        if "--debug" in given:
            traceback.print_exc()
        print(f"consilience: error: {' '.join(str(error).split())}", file=sys.stderr)
        return MENDABLE
    return 0


def build_parser() -> ArgumentParser:
    """The parser of all commands."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(prog="consilience", description="Multimodal fusion: several modalities, one decision.")
    parser.add_argument("--version", action="version", version=f"consilience {__version__}")
    commands = parser.add_subcommands(dest="command")
    for name, module in COMMANDS.items():
        said = (module.__doc__ or "").strip()
        one = ArgumentParser(
            description=said, epilog=f"examples:\n{module.EXAMPLES}", formatter_class=RawDescriptionHelpFormatter
        )
        one.add_argument("--config", action="config", help="a YAML file with any of the options below")
        one.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
        module.add_arguments(one)
        commands.add_subcommand(name, one, help=said.splitlines()[0])
    return parser
