"""`consilience COMMAND …`: parses the command line and runs a command; an error becomes one line and an exit code."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
import traceback
import warnings
from argparse import Action, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, Namespace

from consilience.cli import (
    compare,
    completion,
    data,
    demo,
    explain,
    export,
    fuse,
    generate,
    methods,
    predict,
    report,
    reproduce,
    serve,
    train,
    watch,
)
from consilience.core.errors import ConsilienceError, InputError, unknown_name
from consilience.core.progress_lines import ConsoleHandler
from consilience.core.stop_signals import STOP
from consilience.version import __version__

# Each has a docstring (the help), USAGE, EXAMPLES, add_arguments(parser) and run(chosen, command).
COMMANDS: dict[str, ModuleType] = {
    "compare": compare,
    "train": train,
    "predict": predict,
    "explain": explain,
    "watch": watch,
    "serve": serve,
    "export": export,
    "generate": generate,
    "fuse": fuse,
    "report": report,
    "reproduce": reproduce,
    "methods": methods,
    "data": data,
    "demo": demo,
    "completion": completion,
}
USER_ERROR = 2  # the exit code
_RESUMABLE = ("compare", "reproduce")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after `consilience`; None: those of the process.

    Returns:
        The exit code: 0, 2 for an error that the user can fix, 130 for Ctrl-C, 143 for SIGTERM.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        STOP.install()
    logging.basicConfig(format="%(message)s", handlers=[ConsoleHandler(sys.stderr)])
    logging.getLogger("consilience").setLevel(logging.INFO)
    try:
        return _run(given)
    except BaseException as error:
        # An interrupt may come as the error of a library.
        if STOP.received is None and not isinstance(error, KeyboardInterrupt):
            raise
        STOP.say()
        return STOP.exit_code


def _run(given: list[str]) -> int:
    """Run a command; returns the exit code."""
    STOP.message = "consilience: stopped"
    try:
        try:
            _open_output()
            name, chosen = parse(given)
            if name in _RESUMABLE:
                STOP.message += ". Finished work is kept: the same command continues from there"
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                COMMANDS[name].run(chosen, ["consilience", *given])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        _drop_output()
        return 0
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # what rich makes of it
            return 0
        raise
    except (ConsilienceError, OSError) as error:
        if "--debug" in given:
            traceback.print_exc()
        _drop_output()
        message = str(error)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            # files are written by functions that name them, so this is standard output
            message = "cannot write the output: No space left on device"
        with suppress(OSError):
            print(f"consilience: error: {' '.join(message.split())}", file=sys.stderr, flush=True)
        return USER_ERROR
    return 0


def _open_output() -> None:
    """Check that there is a standard output, and let it show what its encoding does not have."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise InputError("standard output is closed; redirect it to a file, or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Drop what cannot be written to standard output, which Python would try again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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


class _Help(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the line breaks of examples; shows a default only where there is one."""

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        if default is None or default is False or default == "==SUPPRESS==" or not action.option_strings:
            return text
        shown = " ".join(f"{value:g}" for value in default) if isinstance(default, list) else f"{default}"
        return f"{text} (default: {shown})".strip()


def build_parser(chosen: str | None = None) -> ArgumentParser:
    """Build the parser, which raises errors instead of printing them.

    Args:
        chosen: The command whose options are needed; None: only the list of commands is needed.
    """
    listed = "\n".join(f"  consilience {name} --help" for name in COMMANDS)
    parser = ArgumentParser(
        prog="consilience",
        description="Multimodal fusion: several modalities, one decision.",
        epilog=f"every command shows examples:\n{listed}",
        formatter_class=_Help,
        exit_on_error=False,
    )
    parser.add_argument("--version", action="version", version=f"consilience {__version__}")
    subcommands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for name in COMMANDS if chosen is None else [chosen]:
        module = COMMANDS[name]
        text = (module.__doc__ or "").strip()
        subparser = ArgumentParser(
            usage=f"consilience {name} {module.USAGE}",
            description=text,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=_Help,
            exit_on_error=False,
            print_config=None,
        )
        if name == chosen:
            subparser.add_argument(
                "--config", action="config", metavar="FILE", help="YAML file with any of the options"
            )
            subparser.add_argument("--debug", action="store_true", help="show the full traceback of an error")
            module.add_arguments(subparser)
        subcommands.add_subcommand(name, subparser, help=text.splitlines()[0])
    return parser


def parse(given: Sequence[str]) -> tuple[str, Namespace]:
    """Return the command and its options.

    Raises:
        InputError: If the command, an option or a value is wrong; the message suggests the nearest name.
    """
    named = next((word for word in given if not word.startswith("-")), None)
    if named is not None and named not in COMMANDS:
        raise unknown_name("command", named, COMMANDS, "See consilience --help")
    parser = build_parser(named)
    _check_configs(given)
    try:
        chosen = parser.parse_args(list(given))
    except (ArgumentError, ArgumentTypeError) as error:
        raise InputError(_message(str(error), named)) from error
    return chosen.command, chosen[chosen.command]


def _check_configs(given: Sequence[str]) -> None:
    """Refuse files of options that are not UTF-8, not YAML, or too large once their aliases are replaced."""
    named = [word.partition("=")[2] for word in given if word.startswith("--config=")]
    named += [after for word, after in pairwise(given) if word == "--config"]
    for path in map(Path, named):
        if path.is_file():
            from consilience.reproduction.yaml_lines import read_yaml

            try:
                read_yaml(path)
            except InputError as error:
                raise InputError(f"--config: {error}") from error


def _message(error: str, command: str | None) -> str:
    if command is None:
        return f"a command is missing: consilience COMMAND, one of {', '.join(COMMANDS)}. See consilience --help"
    advice = f"See consilience {command} --help"
    options = _options(COMMANDS[command])
    if unknown := re.search(r"[Uu]nrecognized arguments: (\S+)", error):
        word = unknown[1].partition("=")[0]
        close = get_close_matches(word, options, n=1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        return f"{command}: unknown {'option' if word.startswith('-') else 'argument'} {word!r}{hint} {advice}"
    if unknown := re.search(r"does not accept (?:option|nested key) '([^']+)'", error):  # of a --config file
        names = [option.removeprefix("--") for option in options if option not in ("-h", "--help")]
        return f"{command}: --config: {unknown_name('option', unknown[1].replace('_', '-'), names)}. {advice}"
    text = plain_error(error, command)
    if absent := re.fullmatch(r"the following arguments are required: (.*)", text):
        names = [f"--{name}" if f"--{name}" in options else name for name in absent[1].split(", ")]
        text = f"{' and '.join(names)} must be given"
    return f"{command}: {text}. {advice}"


def plain_error(error: str, command: str) -> str:
    """Return the error of a parser without its technical parts.

    >>> plain_error("argument --seeds: --seeds must be a whole number ≥ 1, got 'x'", "compare")
    "--seeds must be a whole number ≥ 1, got 'x'"
    >>> plain_error("the following arguments are required: compare.data", "compare")
    'the following arguments are required: data'
    """
    text = " ".join(error.split()).replace(f"{command}.", "").removeprefix("error: ")
    text = re.sub(r"^argument \S+: ", "", text)
    text = re.sub(r'Parser key "(\w+)"(?: element \d+)?:', lambda key: f"--{key[1].replace('_', '-')}:", text)
    return text.rstrip(".")


def _options(command: ModuleType) -> list[str]:
    parser = ArgumentParser()
    command.add_arguments(parser)
    actions: Any = parser._actions
    return [option for action in actions for option in action.option_strings] + ["--debug"]
