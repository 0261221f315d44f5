"""`consilience COMMAND …`: finds the command, runs it, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TextIO

from consilience.cli import compare, data, fuse, generate, methods, predict, report, reproduce, train
from consilience.core.errors import ConsilienceError

# Each has a docstring (the help), USAGE, EXAMPLES, add_arguments(parser) and run(chosen, command).
COMMANDS: dict[str, ModuleType] = {
    "compare": compare,
    "train": train,
    "predict": predict,
    "generate": generate,
    "fuse": fuse,
    "report": report,
    "reproduce": reproduce,
    "methods": methods,
    "data": data,
}
# Exit codes: 2 for what the user can mend, 130 for Ctrl-C, as shells have it.
MENDABLE, INTERRUPTED = 2, 130
_GOES_ON = ("compare", "reproduce")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from consilience.cli.parser import parse

    given = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("consilience").setLevel(logging.INFO)
    name = ""
    try:
        name, chosen = parse(given, COMMANDS)
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            COMMANDS[name].run(chosen, ["consilience", *given])
        sys.stdout.flush()
    except KeyboardInterrupt:
        if arguments is None:  # a program of its own, which now ends: pressed again, nothing is to be left half done
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        kept = ". What is finished is kept: the same command goes on from there" if name in _GOES_ON else ""
        print(f"consilience: stopped{kept}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does; exiting would flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ConsilienceError, OSError) as error:
        if "--debug" in given:
            traceback.print_exc()
        print(f"consilience: error: {' '.join(str(error).split())}", file=sys.stderr)
        return MENDABLE
    return 0


def _say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What is meant for the user is one line, like an error; what is meant for programmers stays as Python has it."""
    told = warnings.formatwarning(message, category, filename, lineno, line)
    if issubclass(category, UserWarning):
        told = f"consilience: {' '.join(str(message).split())}\n"
    print(told, end="", file=file or sys.stderr)
