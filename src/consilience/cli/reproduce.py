"""Run a named experiment and set ours beside the published figures."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.cli.compare import say

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

USAGE = "NAME | --list [options]"
EXAMPLES = """  consilience reproduce --list
  consilience reproduce digits-robustness --quick --jobs 2"""


def add_arguments(parser: ArgumentParser) -> None:
    """Which experiment, and how large."""
    parser.add_argument("name", type=str, nargs="?", default=None)
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument("--quick", action="store_true", help="minutes on two cores instead of full size")
    options.add_running(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List, or run one by its protocol."""
    from consilience.comparison.experiments import experiments, find_experiment

    options.check_format(chosen)
    if chosen.list or chosen.name is None:
        for name, one in experiments().items():
            print(f"{name:24} {one.title}")
        return
    experiment = find_experiment(chosen.name)
    where = {"out": chosen.out, "jobs": chosen.jobs, "cluster": chosen.cluster}
    comparison = experiment.run(quick=chosen.quick, command=shlex.join(command), **where)
    say(comparison, chosen.format, chosen.worst)
    if chosen.format != "console":
        return
    if experiment.published:
        print(experiment.beside_published(comparison))
    for note in experiment.notes:
        print(f"note: {note}")
