"""From the words of a command line to a command's options, and from a parser's complaint to one sentence."""

from __future__ import annotations

import re
from argparse import RawDescriptionHelpFormatter
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

_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


class _Help(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Examples stay as they are written, and only a default that says something is shown."""

    def _get_help_string(self, action: Action) -> str:
        said = action.help or ""
        default = action.default
        if default in (None, False, "==SUPPRESS==") or not action.option_strings:
            return said
        shown = " ".join(f"{one:g}" for one in default) if isinstance(default, list) else f"{default}"
        return f"{said} (default: {shown})".strip()


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
    """The command and its options; a wrong word is one sentence that suggests the right one."""
    from jsonargparse import ArgumentError

    named = next((word for word in given if not word.startswith("-")), None)
    if named is not None and named not in commands:
        raise unknown_name("command", named, commands, "See consilience --help")
    parser = build_parser(commands, named)
    try:
        chosen = parser.parse_args(list(given))
    except ArgumentError as error:
        raise InputError(_complaint(str(error), named, given, commands)) from error
    return chosen.command, chosen[chosen.command]


def _complaint(message: str, command: str | None, given: Sequence[str], commands: Mapping[str, ModuleType]) -> str:
    if command is None:
        return f"say what to do: consilience COMMAND, one of {', '.join(commands)}; consilience --help says more"
    advice = f"See consilience {command} --help"
    options = _options(commands[command])
    if unknown := re.search(r"[Uu]nrecognized arguments: (\S+)", message):
        word = unknown[1].partition("=")[0]
        close = get_close_matches(word, options, n=1)
        hint = f": did you mean {close[0]!r}?" if close else "."
        return f"{command}: unknown {'option' if word.startswith('-') else 'argument'} {word!r}{hint} {advice}"
    said = in_words(message, command)
    if absent := re.fullmatch(r"the following arguments are required: (.*)", said):
        named = [f"--{name}" if f"--{name}" in options else name for name in absent[1].split(", ")]
        said = f"{' and '.join(named)} must be given"
    return f"{command}: {said}. {advice}"


def in_words(message: str, command: str) -> str:
    """A parser's complaint as a sentence.

    >>> in_words("Parser key \\"seeds\\":\\n  Expected a <class 'int'>. Got value: x", "compare")
    '--seeds: expected a whole number, got x'
    >>> in_words("the following arguments are required: compare.data", "compare")
    'the following arguments are required: data'
    """
    message = " ".join(message.split()).replace(f"{command}.", "").removeprefix("error: ")
    message = re.sub(r'Parser key "(\w+)"(?: element \d+)?:', lambda found: f"--{found[1].replace('_', '-')}:", message)
    message = re.sub(
        r"Expected an? <class '(\w+)'>", lambda found: f"expected {_KINDS.get(found[1], found[1])}", message
    )
    return message.replace(". Got value:", ", got").rstrip(".")


def _options(command: ModuleType) -> list[str]:
    parser = ArgumentParser()
    command.add_arguments(parser)
    actions: Any = parser._actions
    return [option for action in actions for option in action.option_strings] + ["--debug"]
