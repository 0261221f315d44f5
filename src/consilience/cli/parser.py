"""Parses the command line, and turns the errors of the parser into one sentence."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from consilience.core.errors import InputError, unknown_name
from consilience.version import __version__

if TYPE_CHECKING:
    from argparse import Action

    from jsonargparse import Namespace


class _Help(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the line breaks of examples; shows a default only where there is one."""

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        if default in (None, False, "==SUPPRESS==") or not action.option_strings:
            return text
        shown = " ".join(f"{value:g}" for value in default) if isinstance(default, list) else f"{default}"
        return f"{text} (default: {shown})".strip()


def build_parser(commands: Mapping[str, ModuleType], chosen: str | None = None) -> ArgumentParser:
    """Build the parser, which raises errors instead of printing them.

    Args:
        commands: Name → module.
        chosen: The command whose options are needed; None: only the list of commands is needed.
    """
    listed = "\n".join(f"  consilience {name} --help" for name in commands)
    parser = ArgumentParser(
        prog="consilience",
        description="Multimodal fusion: several modalities, one decision.",
        epilog=f"every command shows examples:\n{listed}",
        formatter_class=_Help,
        exit_on_error=False,
    )
    parser.add_argument("--version", action="version", version=f"consilience {__version__}")
    subcommands = parser.add_subcommands(dest="command", metavar="COMMAND")
    for name in commands if chosen is None else [chosen]:
        module = commands[name]
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


def parse(given: Sequence[str], commands: Mapping[str, ModuleType]) -> tuple[str, Namespace]:
    """Return the command and its options.

    Raises:
        InputError: If the command, an option or a value is wrong; the message suggests the nearest name.
    """
    from jsonargparse import ArgumentError

    named = next((word for word in given if not word.startswith("-")), None)
    if named is not None and named not in commands:
        raise unknown_name("command", named, commands, "See consilience --help")
    parser = build_parser(commands, named)
    try:
        chosen = parser.parse_args(list(given))
    except (ArgumentError, ArgumentTypeError) as error:
        raise InputError(_message(str(error), named, commands)) from error
    return chosen.command, chosen[chosen.command]


def _message(error: str, command: str | None, commands: Mapping[str, ModuleType]) -> str:
    if command is None:
        return f"a command is missing: consilience COMMAND, one of {', '.join(commands)}. See consilience --help"
    advice = f"See consilience {command} --help"
    options = _options(commands[command])
    if unknown := re.search(r"[Uu]nrecognized arguments: (\S+)", error):
        word = unknown[1].partition("=")[0]
        close = get_close_matches(word, options, n=1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        return f"{command}: unknown {'option' if word.startswith('-') else 'argument'} {word!r}{hint} {advice}"
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
