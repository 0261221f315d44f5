"""Print a script by which a shell completes commands, options and names of methods with the tab key.

Put eval "$(consilience completion bash)" into ~/.bashrc, the same with zsh into ~/.zshrc; for fish, write the output to
~/.config/fish/completions/consilience.fish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from consilience.core.settings import check_value

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "[bash | zsh | fish]"
EXAMPLES = """  consilience completion bash
  consilience completion zsh
  consilience completion fish"""

Shell = Literal["bash", "zsh", "fish"]
# Options whose values are names of methods.
_OF_METHODS = ("--methods", "--method", "--reference")

_BASH = """_consilience() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" place option=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  for ((place = COMP_CWORD - 1; place > 1; place--)); do
    case "${{COMP_WORDS[place]}}" in -*) option="${{COMP_WORDS[place]}}"; break ;; esac
  done
  case "$word" in
    -*)
      case "${{COMP_WORDS[1]}}" in
{cases}
      esac
      return ;;
  esac
  case "$option" in
    {of_methods}) COMPREPLY=($(compgen -W "{methods}" -- "$word")); return ;;
  esac
  if [ "${{COMP_WORDS[1]}}" = methods ]; then
    COMPREPLY=($(compgen -W "{methods}" -- "$word"))
    return
  fi
  COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _consilience consilience"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", type=str, nargs="?", default="bash", help="bash, zsh or fish")


def run(chosen: Namespace, command: list[str]) -> None:
    """Print the script."""
    check_value("shell", chosen.shell, Shell, "completion")
    print(script(chosen.shell))


def script(shell: str) -> str:
    """Return the script of a shell.

    Example:
        >>> "complete -o filenames -F _consilience consilience" in script("bash")
        True
    """
    from consilience.cli.main import COMMANDS
    from consilience.methods import METHODS

    commands = {name: (_options(module), _summary(module)) for name, module in COMMANDS.items()}
    methods = " ".join(name for name in METHODS if not name.endswith(":"))
    if shell == "fish":
        return _fish(commands, methods)
    cases = "\n".join(
        f'        {name}) COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$word")) ;;'
        for name, (known, _) in commands.items()
    )
    text = _BASH.format(commands=" ".join(commands), cases=cases, methods=methods, of_methods="|".join(_OF_METHODS))
    return f"autoload -U +X bashcompinit && bashcompinit\n{text}" if shell == "zsh" else text


def _fish(commands: dict[str, tuple[list[str], str]], methods: str) -> str:
    lines = ["complete -c consilience -e"]
    for name, (known, summary) in commands.items():
        said = summary.replace("'", "’")
        lines.append(f"complete -c consilience -n __fish_use_subcommand -f -a {name} -d '{said}'")
        for option in known:
            values = f" -x -a '{methods}'" if option in _OF_METHODS else ""
            seen = f"-n '__fish_seen_subcommand_from {name}'"
            lines.append(f"complete -c consilience {seen} -l {option.removeprefix('--')}{values}")
    lines.append(f"complete -c consilience -n '__fish_seen_subcommand_from methods' -f -a '{methods}'")
    return "\n".join(lines)


def _options(module: Any) -> list[str]:
    from jsonargparse import ArgumentParser

    parser: Any = ArgumentParser()
    module.add_arguments(parser)
    found = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    return sorted({*found, "--config", "--debug"} - {"--print_config"})


def _summary(module: Any) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]
