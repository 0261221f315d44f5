"""`consilience COMMAND …`: runs a command; an error becomes one line and an exit code."""

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
# Exit codes, as shells use them.
USER_ERROR, INTERRUPTED = 2, 130
_RESUMABLE = ("compare", "reproduce")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after `consilience`; None: those of the process.

    Returns:
        The exit code: 0, 2 for an error that the user can fix, 130 for Ctrl-C.
    """
    from consilience.cli.parser import parse

    given = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("consilience").setLevel(logging.INFO)
    name = ""
    try:
        name, chosen = parse(given, COMMANDS)
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            COMMANDS[name].run(chosen, ["consilience", *given])
        sys.stdout.flush()
    except KeyboardInterrupt:
        if arguments is None:  # the process ends now; a second Ctrl-C must not interrupt its cleanup
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        kept = ". Finished work is kept: the same command continues from there" if name in _RESUMABLE else ""
        print(f"consilience: stopped{kept}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended, as `head` does; a flush at exit would raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ConsilienceError, OSError) as error:
        if "--debug" in given:
            traceback.print_exc()
        print(f"consilience: error: {' '.join(str(error).split())}", file=sys.stderr)
        return USER_ERROR
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a UserWarning as one line, and other warnings as Python does."""
    text = warnings.formatwarning(message, category, filename, lineno, line)
    if issubclass(category, UserWarning):
        text = f"consilience: {' '.join(str(message).split())}\n"
    print(text, end="", file=file or sys.stderr)
