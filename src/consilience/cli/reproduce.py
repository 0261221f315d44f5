"""Run a named experiment and set ours beside the published figures."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.cli.compare import say

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from consilience.comparison.experiments import Reproduction

USAGE = "NAME | --list [options]"
EXAMPLES = """  consilience reproduce --list
  consilience reproduce digits-robustness --quick --jobs 2
  consilience reproduce progressive-synthetic --quick --jobs 2"""


def add_arguments(parser: ArgumentParser) -> None:
    """Which experiment, and how large."""
    parser.add_argument("name", type=str, nargs="?", default=None)
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
    options.add_running(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List, or run one by its protocol."""
    from consilience.comparison.experiments import Experiment, Reproduction, experiments, find_experiment

    options.check_format(chosen)
    if chosen.list or chosen.name is None:
        for name, one in experiments().items():
            print(f"{name:24} {one.title}")
        return
    experiment = find_experiment(chosen.name)
    where = {"out": chosen.out, "jobs": chosen.jobs, "cluster": chosen.cluster}
    outcome = experiment.run(quick=chosen.quick, command=shlex.join(command), **where)
    if isinstance(outcome, Reproduction):
        say_account(outcome, chosen.format)
    else:
        say(outcome, chosen.format, chosen.worst)
    if chosen.format != "console":
        return
    if isinstance(experiment, Experiment) and experiment.published and not isinstance(outcome, Reproduction):
        print(experiment.beside_published(outcome))
    for note in experiment.notes:
        print(f"note: {note}")


def say_account(done: Reproduction, format: str) -> None:
    """The tables; on a console also the answer in words, and where the page is."""
    from rich.console import Console

    tables = done.account.table(format)
    if format != "console":
        print(tables, end="")
        return
    console = Console()
    console.print(tables)
    for sentence in done.account.answer:
        console.print(sentence.replace("`", ""), markup=False, highlight=False)
    print(f"\nreport: {done.page}")
