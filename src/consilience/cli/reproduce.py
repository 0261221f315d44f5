"""Run a named experiment and set ours beside the published figures."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from consilience.cli import options
from consilience.core.errors import InputError
from consilience.data.named_sets import DATA_VARIABLE

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
    parser.add_argument("--data-dir", type=str, metavar="FOLDER", help="where the files of named sets lie")
    options.add_running(parser)


def run(chosen: Namespace, command: list[str]) -> None:
    """List, or run one by its protocol."""
    from consilience.comparison.experiments import Experiment, experiments, find_experiment

    if chosen.list or chosen.name is None:
        listed = experiments()
        width = max(map(len, listed))
        for name, one in listed.items():
            print(f"{name:{width}}  {one.title}")
        return
    experiment = find_experiment(chosen.name)
    if chosen.data_dir is not None:
        os.environ[DATA_VARIABLE] = chosen.data_dir  # the processes that do the jobs read it too
    how = {"out": chosen.out, "jobs": chosen.jobs, "cluster": chosen.cluster}
    if chosen.side_by_side:
        if not isinstance(experiment, Experiment):
            raise InputError(f"--side-by-side is for comparisons of methods: {chosen.name} has a way of its own")
        how["side_by_side"] = True
    say_account(experiment.run(quick=chosen.quick, command=shlex.join(command), **how), chosen.format)


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
